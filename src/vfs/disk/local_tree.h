// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/frame.h"
#include "inductorfs/vfs/types.h"
#include "vfs/disk/file_charges.h"
#include "vfs/disk/held_parent.h"

namespace inductorfs::vfs {

[[nodiscard]] inline int64_t modified_ns(const struct stat& status) {
  return status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
}

/// The plain directory on the local disk behind a mount: `view/` (the local part of the tree, path by path), `pending/`
/// (files of pending Triton sets), `orphans/` (deleted files that some process still has open), `stale/` (files for
/// other facts of this host that the cluster is still to get) and `set-aside/` (files that could not be read). All
/// paths are relative to that directory. There are regular files and directories of the daemon's own only; owners,
/// modes and types are what vfs/disk/inode_marks.h tells of them. No component of a path is ever followed if it is a
/// symbolic link, and users may exchange directories for files at any time. All calls that go by a path below the
/// directory are here (tests/lint/check_paths.py). Calls block on the local disk.
/// Safe for concurrent use.
class LocalTree {
 public:
  struct Item {
    std::string name;
    uint64_t inode_number = 0;
    mode_t type = 0;
  };

  /// The folders of the directory, which the comment above describes; set_aside() makes the last one.
  static constexpr const char* kViewFolder = "view";
  static constexpr const char* kPendingFolder = "pending";
  static constexpr const char* kOrphanFolder = "orphans";
  static constexpr const char* kStaleFolder = "stale";
  static constexpr const char* kSetAsideFolder = "set-aside";
  /// A symbolic link in a directory of pending/, to the path in the view at which its files are put.
  static constexpr const char* kWhereLink = ".where";

  /// The longest path below the mount: every file is reached by its whole path, and PATH_MAX counts "view/" and the
  /// NUL.
  static constexpr size_t kPathLimit = 4096 - sizeof("view/");

  /// defaults::kHalfOfDisk among the limits is that.
  [[nodiscard]] static Result<LocalTree> open(const std::string& directory, uid_t owner, gid_t group, mode_t mode,
                                              UserCharges::Limits limits = {});
  /// Gives view/ the owner and mode of the directory that the mount covers, which may have changed since the last
  /// mount.
  [[nodiscard]] Result<void> dress_root() const;

  /// Says whether a directory has a view.
  [[nodiscard]] static bool is_at(const std::string& directory);

  [[nodiscard]] static std::string view(std::string_view path) {
    return path.empty() ? std::string(kViewFolder) : in_folder(kViewFolder, path);
  }
  [[nodiscard]] static std::string orphan(NodeId node) {
    return in_folder(kOrphanFolder, std::to_string(static_cast<uint64_t>(node)));
  }
  [[nodiscard]] static bool is_orphan(std::string_view path) { return path.starts_with(in_folder(kOrphanFolder, {})); }
  [[nodiscard]] static std::string stale(std::string_view digest_hex) { return in_folder(kStaleFolder, digest_hex); }
  [[nodiscard]] static std::string in_folder(std::string_view folder, std::string_view name) {
    return std::string(folder) + "/" + std::string(name);
  }

  /// As jobs see it. Returns an empty optional when the path does not exist.
  [[nodiscard]] Result<std::optional<struct stat>> stat(const std::string& path) const;
  [[nodiscard]] Result<std::vector<Item>> list(const std::string& path) const;
  [[nodiscard]] Result<Fd> open_directory(const std::string& path) const;
  [[nodiscard]] bool is_empty(const std::string& path) const;
  /// Opens a regular file; kInvalid where another kind of file has got the name, which is never opened. An inode of the
  /// store's (is_stores()) is not opened to be written to: kBusy.
  [[nodiscard]] Result<Fd> open_file(const std::string& path, bool writable) const;
  /// Returns the whole content of a file that open_file() opens; kTooLarge when it has more than `limit` bytes.
  [[nodiscard]] Result<std::string> read_file(const std::string& path, uint64_t limit) const;
  [[nodiscard]] Result<void> rename(const std::string& from, const std::string& to, unsigned flags = 0) const;
  /// One that is not there is no error, unless it `must_exist`.
  [[nodiscard]] Result<void> unlink(const std::string& path, bool must_exist = false) const;
  [[nodiscard]] Result<void> link(const std::string& from, const std::string& to) const;
  /// Gives an open file a name, whatever has its earlier name by now.
  [[nodiscard]] Result<void> link(const Fd& file, const std::string& to) const;
  /// Removes what is there, with all below it, like rm -rf.
  [[nodiscard]] Result<void> remove_tree(const std::string& path) const;

  // ---- as the system calls of a similar name; the last component is not followed either
  /// A file, or a directory, that is nobody's yet: of the daemon alone.
  [[nodiscard]] Result<Fd> create_file(const std::string& path) const;
  [[nodiscard]] Result<void> make_directory(const std::string& path) const;
  [[nodiscard]] Result<void> remove_directory(const std::string& path) const;
  /// A symbolic link with this content, a FIFO or a socket.
  [[nodiscard]] Result<void> make_special(const std::string& path, const FileOwner& owner, std::string_view target,
                                          UserCharges::NewFile* made = nullptr) const;
  /// A link of the daemon's own.
  [[nodiscard]] Result<void> make_symlink(const std::string& target, const std::string& path) const;
  [[nodiscard]] Result<std::string> read_link(const std::string& path) const;
  [[nodiscard]] Result<void> give_to(const std::string& path, const FileOwner& owner,
                                     UserCharges::NewFile* made = nullptr) const;
  /// chown(2): takes the set-id bits of what can be run.
  [[nodiscard]] Result<void> set_owner(const std::string& path, std::optional<uid_t> uid,
                                       std::optional<gid_t> gid) const;
  [[nodiscard]] Result<void> set_mode(const std::string& path, mode_t mode) const;
  /// nullptr: now.
  [[nodiscard]] Result<void> set_times(const std::string& path, const struct timespec* times) const;
  static constexpr size_t kXattrLimit = size_t{64} * 1024;  ///< XATTR_SIZE_MAX and XATTR_LIST_MAX of linux/limits.h
  [[nodiscard]] Result<std::string> xattr(const std::string& path, const std::string& name,
                                          size_t most = kXattrLimit) const;
  [[nodiscard]] Result<std::vector<std::string>> xattr_names(const std::string& path) const;
  /// Without a value: removes it.
  [[nodiscard]] Result<void> set_xattr(const std::string& path, const std::string& name,
                                       std::optional<std::string_view> value, int flags) const;
  [[nodiscard]] Result<struct statvfs> statistics() const;
  /// Writes all that was changed to the disk.
  [[nodiscard]] Result<void> sync() const;
  /// To look at a file, or to change what is noted of it.
  [[nodiscard]] Result<Fd> hold(const std::string& path) const;
  /// For what takes the directory and the name apart (store::BlobStore::adopt, write_file_atomically).
  [[nodiscard]] Result<HeldParent> held(std::string_view path) const;

  /// What users have.
  [[nodiscard]] FileCharges& charges() const { return *charges_; }

  /// Makes every missing directory of view/<path> with this owner and mode.
  [[nodiscard]] Result<void> make_view_directories(std::string_view path, const RootAccess& access) const;
  /// Moves what lies at a path of the view to set-aside/<number>, by the descriptor of its directory, because the path
  /// itself may be longer than kPathLimit. Returns its new path.
  [[nodiscard]] Result<std::string> set_aside(const std::string& path) const;

 private:
  Fd root_;
  Fd view_;  ///< most paths begin here
  uid_t owner_ = 0;
  gid_t group_ = 0;
  mode_t mode_ = 0755;
  std::unique_ptr<FileCharges> charges_;
};

/// Lists the first `most` items of a directory that is open. `path` is for the error only.
[[nodiscard]] Result<std::vector<LocalTree::Item>> list_open(Fd directory, const std::string& path,
                                                             size_t most = SIZE_MAX);
/// Lists what open_directory() returned, whole; nothing when it is not there.
[[nodiscard]] Result<std::vector<LocalTree::Item>> list_if_there(Result<Fd> directory, const std::string& path);
/// Lists the directory that is at `below` in `directory`, wherever that is by now. It is a step of a walk, which
/// makes progress by it; what is no directory any more has no items.
[[nodiscard]] Result<std::vector<LocalTree::Item>> list_below(const Fd& directory, const std::string& below);
/// Returns "directory/name".
[[nodiscard]] std::string join(std::string_view directory, std::string_view name);
/// Returns /proc/self/fd/N: a name for an open file that system calls by path accept.
[[nodiscard]] std::string proc_path(int fd);
/// Hands on the first `size` bytes of something, piece by piece; returns how many there were.
[[nodiscard]] Result<uint64_t> stream_bytes(const codec::ReadAt& from, uint64_t size, const codec::ByteSink& to);
/// Copies them to the start of a file.
[[nodiscard]] Result<uint64_t> copy_bytes(const codec::ReadAt& from, int to, uint64_t size);
[[nodiscard]] codec::ReadAt bytes_of(int file);
/// Compares two files of at most `most` bytes; false also when one of the two is larger, or cannot be read.
[[nodiscard]] bool same_bytes(const LocalTree& tree, const std::string& one, const std::string& other, uint64_t most);

}  // namespace inductorfs::vfs
