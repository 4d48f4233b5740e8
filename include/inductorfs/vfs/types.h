// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/result.h"

/// The plain values in which the file system speaks to its kernel adapter. No word of libfuse here.
namespace inductorfs::vfs {

/// An inode as the kernel knows it in one session. Never reused while the mount lives.
enum class NodeId : uint64_t {};
inline constexpr NodeId kRootNode{1};

/// Who asks. `pid` is the thread's id in the daemon's pid namespace, 0 when it has none there.
struct Caller {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;
};

struct Timestamp {
  int64_t seconds = 0;
  int64_t nanoseconds = 0;
  bool operator==(const Timestamp&) const = default;
};

struct Attributes {
  uint64_t inode_number = 0;  ///< st_ino: stable over remounts for local files, not the NodeId
  mode_t mode = 0;            ///< with the file type
  nlink_t links = 1;
  uid_t uid = 0;
  gid_t gid = 0;
  dev_t device = 0;  ///< of a device node
  uint64_t size = 0;
  uint64_t blocks = 0;  ///< of 512 bytes
  Timestamp accessed;
  Timestamp modified;
  Timestamp changed;
};

/// Which attributes a setattr sets; unset ones stay.
struct AttributeChange {
  std::optional<mode_t> mode;
  std::optional<uid_t> uid;
  std::optional<gid_t> gid;
  std::optional<uint64_t> size;
  std::optional<Timestamp> accessed;
  std::optional<Timestamp> modified;
  bool accessed_now = false;
  bool modified_now = false;
};

/// A name that is there. The kernel now holds one more reference to `node`, to be given back by forget().
struct Found {
  NodeId node{};
  Attributes attributes;
  /// Whether the kernel may keep the name until it is told otherwise; false: it asks again at the next use.
  bool keep = true;
};

/// The answer to a lookup: found; absent (kNotFound) with whether the kernel may keep that; or an error.
struct LookupAnswer {
  Result<Found> found;
  bool keep_absence = false;
};
using LookupDone = std::function<void(LookupAnswer)>;

struct DirectoryItem {
  std::string_view name;
  uint64_t inode_number = 0;
  mode_t type = 0;           ///< S_IFREG, S_IFDIR, ...
  uint64_t next_cookie = 0;  ///< pass it to readdir to go on after this item
};

enum class RenameMode { kReplace, kNoReplace, kExchange };

/// What the file system tells the kernel when something changed behind its back. Implemented by the adapter; called
/// from the file system's own notifier thread, with no lock held, never from within an operation. Confined to the
/// notify thread.
class KernelCache {
 public:
  virtual ~KernelCache() = default;
  virtual void forget_name(NodeId parent, const std::string& name) = 0;
  virtual void forget_content(NodeId node) = 0;
};

}  // namespace inductorfs::vfs
