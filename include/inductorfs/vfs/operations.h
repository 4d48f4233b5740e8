// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/statvfs.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/vfs/types.h"

/// What the kernel asks of a file system. Every operation may block on the local disk. Only a lookup, and the opening
/// of a directory, may need the network; the answer then comes later, from another thread, so that no caller's thread
/// waits. The kernel's own locks on directories order concurrent changes of one directory.
///
/// The process whose call gives a file of a shared family its name, or changes its bytes, counts as the file's writer
/// (Host::writers()): what another environment wrote never leaves the host.
namespace inductorfs::vfs {

/// Names, and the directories that they lie in. Safe for concurrent use.
class NameOperations {
 public:
  virtual ~NameOperations() = default;
  virtual void lookup(NodeId parent, std::string_view name, const Caller& caller, LookupDone done) = 0;
  virtual void forget(NodeId node, uint64_t count) = 0;
  [[nodiscard]] virtual Result<Found> create(NodeId parent, std::string_view name, mode_t mode, const Caller&) = 0;
  [[nodiscard]] virtual Result<Found> make_node(NodeId parent, std::string_view name, mode_t mode, dev_t device,
                                                const Caller&) = 0;
  [[nodiscard]] virtual Result<Found> make_directory(NodeId parent, std::string_view name, mode_t mode,
                                                     const Caller&) = 0;
  [[nodiscard]] virtual Result<Found> make_symlink(NodeId parent, std::string_view name, const std::string& target,
                                                   const Caller&) = 0;
  [[nodiscard]] virtual Result<Found> link(NodeId node, NodeId new_parent, std::string_view new_name,
                                           const Caller&) = 0;
  [[nodiscard]] virtual Result<void> unlink(NodeId parent, std::string_view name, const Caller&) = 0;
  [[nodiscard]] virtual Result<void> remove_directory(NodeId parent, std::string_view name, const Caller&) = 0;
  [[nodiscard]] virtual Result<void> rename(NodeId parent, std::string_view name, NodeId new_parent,
                                            std::string_view new_name, RenameMode mode, const Caller&) = 0;
  [[nodiscard]] virtual Result<std::string> read_link(NodeId node, const Caller&) = 0;

  /// Says whether open_directory() has to be called before a directory is read. It never changes.
  [[nodiscard]] virtual bool waits_at_directories() const = 0;
  /// Calls `done` when the directory may be read: at once, or later from another thread, where another process of the
  /// cluster is about to put something there that the caller wants (FileSystemOptions::compile_once).
  virtual void open_directory(NodeId directory, const Caller&, std::function<void()> done) = 0;
  /// Passes the items after `cookie` (0: from the start) to `take` until that answers false. "." and ".." are included.
  /// Cookies stay valid while the kernel knows the directory, whatever is created or removed meanwhile.
  [[nodiscard]] virtual Result<void> read_directory(NodeId directory, uint64_t cookie, const Caller&,
                                                    const std::function<bool(const DirectoryItem&)>& take) = 0;
};

/// What a file says of itself. Safe for concurrent use.
class AttributeOperations {
 public:
  virtual ~AttributeOperations() = default;
  [[nodiscard]] virtual Result<Attributes> get_attributes(NodeId node) = 0;
  [[nodiscard]] virtual Result<Attributes> set_attributes(NodeId node, const AttributeChange& change,
                                                          const Caller&) = 0;
  [[nodiscard]] virtual Result<std::string> get_xattr(NodeId node, const std::string& name) = 0;
  [[nodiscard]] virtual Result<std::vector<std::string>> list_xattrs(NodeId node) = 0;
  /// `flags` are XATTR_CREATE and XATTR_REPLACE. Names under "user.inductorfs." are read-only: kNotPermitted.
  [[nodiscard]] virtual Result<void> set_xattr(NodeId node, const std::string& name, std::string_view value,
                                               int flags) = 0;
  [[nodiscard]] virtual Result<void> remove_xattr(NodeId node, const std::string& name) = 0;
  [[nodiscard]] virtual Result<struct statvfs> statistics() = 0;
};

/// The bytes of files. Safe for concurrent use.
class DataOperations {
 public:
  virtual ~DataOperations() = default;
  [[nodiscard]] virtual Result<size_t> read(NodeId node, char* out, size_t size, uint64_t offset) = 0;
  [[nodiscard]] virtual Result<void> write(NodeId node, std::string_view bytes, uint64_t offset, const Caller&) = 0;
  [[nodiscard]] virtual Result<void> allocate(NodeId node, int mode, uint64_t offset, uint64_t length,
                                              const Caller&) = 0;
  /// Returns how many bytes were copied. That may be less than `length` even before the end of the file; the caller
  /// then asks again.
  [[nodiscard]] virtual Result<size_t> copy_range(NodeId from, uint64_t from_offset, NodeId to, uint64_t to_offset,
                                                  size_t length, const Caller&) = 0;
  /// Writes the data to the local disk, with the promise that a local file system gives.
  [[nodiscard]] virtual Result<void> sync_file(NodeId node, bool data_only) = 0;
};

/// What a session of the kernel works with.
struct Operations {
  NameOperations& names;
  AttributeOperations& attributes;
  DataOperations& data;
};

}  // namespace inductorfs::vfs
