// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"

/// The plain values in which the file system speaks to its kernel adapter. Nothing of libfuse appears here.
namespace inductorfs::vfs {

/// An inode as the kernel knows it in one session. A NodeId is never reused while the mount lives.
enum class NodeId : uint64_t {};
inline constexpr NodeId kRootNode{1};

/// The thread that sent a request.
struct Caller {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;  ///< the thread's id in the daemon's PID namespace, kOtherNamespace or kWriteBack
};
/// Caller::pid of a thread that has no id in the daemon's PID namespace, as the kernel says it (fs/fuse/dev.c:
/// fuse_get_req).
inline constexpr pid_t kOtherNamespace = 0;
/// Caller::pid where the kernel writes pages of a shared mapping back: it does not say which process wrote them.
inline constexpr pid_t kWriteBack = -1;

struct Timestamp {
  int64_t seconds = 0;
  int64_t nanoseconds = 0;
  bool operator==(const Timestamp&) const = default;
};

struct Attributes {
  uint64_t inode_number = 0;  ///< st_ino; it is not the NodeId, and for local files it is the same after a remount
  mode_t mode = 0;            ///< includes the file type
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

/// The attributes that a setattr request sets; those without a value stay as they are.
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

/// A name that exists. The kernel now holds one more reference to `node`, which it gives back by forget().
struct Found {
  NodeId node{};
  Attributes attributes;
  /// True: the kernel may keep the name until it is told otherwise. False: it asks again at the next use.
  bool keep = true;
  /// True: the kernel may keep the attributes although it may not keep the name, which leads elsewhere for others.
  bool keep_attributes = false;
};

/// What a program's request for a name came to, or that it made the name.
enum class UseKind {
  kLocal,    ///< a file of this host
  kCluster,  ///< an entry of the cluster whose bytes, if it has any, were here already
  kFetched,  ///< an entry of the cluster whose bytes the request waited for
  kNothing,  ///< the cluster has nothing of this name in the scopes of this place
  kRemoved,  ///< the same, and it had: an operator, the server or a node has taken it away since this worker began
  kPrivate,  ///< nothing of the cluster is shown in this place
  kFrozen,   ///< an operator has frozen the cluster
  kDeleted,  ///< the cluster has it, and a program has deleted it here
  kLost,     ///< the cluster named it, and had lost its bytes
  kLate,     ///< the bytes did not come in time
  kAway,     ///< the server was not asked, for it did not answer before
  kUnread,   ///< what the cluster has was not read yet since the mount began, or since the environment is known
  kNoRoom,   ///< the local disk had no room for the bytes
  kUnfit,    ///< the cluster has it, and this host cannot use it
  kRefused,  ///< it was found, and the program did not take it and made it again. In no UseNotice
  kMade,     ///< the program gave a file or a set of files this name
  kAwaited,  ///< another process makes it; what comes of it is told when that is known. In no UseNotice
};

/// The answer to a lookup: the name was found; it is absent (kNotFound), and `keep_absence` says whether the kernel may
/// remember that; or an error.
struct LookupAnswer {
  Result<Found> found;
  bool keep_absence = false;
  UseKind use = UseKind::kLocal;                       ///< what led to the answer
  std::optional<codec::Digest> digest = std::nullopt;  ///< of an entry of the cluster that was found
};
using LookupDone = std::function<void(LookupAnswer)>;

struct DirectoryItem {
  std::string_view name;
  uint64_t inode_number = 0;
  mode_t type = 0;           ///< S_IFREG, S_IFDIR, ...
  uint64_t next_cookie = 0;  ///< the cookie with which read_directory() goes on after this item
};

enum class RenameMode { kReplace, kNoReplace, kExchange };

/// What the file system tells the kernel when something has changed behind its back. The kernel adapter implements it.
/// The file system calls it from its own notifier thread, with no lock held, never from within an operation.
/// Confined to the notify thread.
class KernelCache {
 public:
  virtual ~KernelCache() = default;
  virtual void forget_name(NodeId parent, const std::string& name) = 0;
  virtual void forget_content(NodeId node) = 0;
};

/// No user's number (chown(2)), for everybody.
inline constexpr uid_t kAnyUser = static_cast<uid_t>(-1);

/// Owner, group and mode of a cache root.
struct RootAccess {
  uid_t uid = 0;
  gid_t gid = 0;
  mode_t mode = 0;
};

/// One use of a name that layout::key_asked_by() knows, or of a file of such a key.
struct UseNotice {
  UseKind use = UseKind::kLocal;
  pid_t thread = kOtherNamespace;  ///< Caller::pid
  std::string path;                ///< as programs see it, relative to the mount
  std::string place;        ///< as FileSystem::explain() takes it: one environment's name, where these are learned
  std::string environment;  ///< of that name; empty where environments are not learned
  std::chrono::nanoseconds waited{0};
  uint64_t bytes = 0;  ///< of kFetched
  std::optional<codec::Digest> digest;
};

/// What a job asked for and got, in one cache root, from its first request on until it was quiet.
struct JobStart {
  std::string root;                ///< layout::Name::root
  std::vector<std::string> keys;   ///< layout::AskedKey::key, in the order in which they were asked for first
  std::vector<std::string> first;  ///< those that its processes asked for first
};

}  // namespace inductorfs::vfs
