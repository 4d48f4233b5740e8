// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "inductorfs/vfs/types.h"

/// What a file system says of itself and of one path, for people. Plain values.
namespace inductorfs::vfs {

/// What `inductorfs explain` prints about one path.
struct Explanation {
  std::string path;
  std::string canonical;
  std::string family;
  std::string rule;   ///< why the family is shared in this way, and the source for that
  std::string scope;  ///< id, or empty
  std::string scope_text;
  std::string why_private;
  std::string digest;
  std::string origin;
  std::string made_for;  ///< ids, separated by a space, of the scopes whose facts the writers of a local file had
  std::string where;     ///< "local file", "sealed local file", "store", "cluster", "directory", "nowhere"
  bool visible = false;
  UseKind absent = UseKind::kNothing;  ///< unless it is visible: why a lookup finds nothing
  std::string why;                     ///< why the path is visible, or why it is not
  std::string publish;                 ///< "published", "queued: ...", "kept local: ...", or empty
};

/// A file on the local disk.
struct OwnFile {
  std::string path;   ///< relative to the mount
  std::string bytes;  ///< empty when it has more than the caller's limit
  int64_t mtime_ns = 0;
};

/// A cache root (layout::Name) with names that the kernel knows.
struct RootStatus {
  std::string path;         ///< relative to the mount
  uid_t owner = 0;          ///< of its directory
  std::string shared_with;  ///< "everybody", "user=NAME", "group=NAME", or why it is shared with nobody
  std::string environment;  ///< where environments are learned: that of the programs which have this part of the root
};

/// What a user has on the local disk (docs/semantics/limits.md).
struct UserHolding {
  uid_t user = 0;
  uint64_t bytes = 0;
  uint64_t files = 0;
  bool is_limited = false;
  uint64_t refused = 0;  ///< requests beyond a limit; 0 when the last was an hour ago
};

struct FileSystemStatus {
  uint64_t nodes = 0;
  uint64_t unsealed = 0;                     ///< files that wait to be sealed
  std::vector<std::string> in_place;         ///< some of the files that were written in place: "path: why it waits"
  std::vector<std::string> still_written;    ///< some of the files that were never quiet; sync() does not wait for them
  uint64_t pending_sets = 0;                 ///< Triton key directories with a pending set of some writer
  std::vector<std::string> refused;          ///< the last refusals, 20 of all users together: "path: reason"
  uint64_t foreign = 0;                      ///< artefacts that stay here because of who wrote them, or how
  std::vector<std::string> foreign_reasons;  ///< the last 20 distinct reasons
  uint64_t roots = 0;                        ///< cache roots below the mountpoint with names that the kernel knows
  std::vector<RootStatus> first_roots;       ///< the first 64 of them, by path
  std::vector<UserHolding> users;            ///< the first 20: those who were refused, then those who have most
  bool users_known = false;                  ///< all files of before were counted since this worker began
  uint64_t user_bytes = 0;                   ///< the limits of one user; 0: none
  uint64_t user_files = 0;
};

}  // namespace inductorfs::vfs
