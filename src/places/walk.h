// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/places/own_mounts.h"

/// Walks paths that other users may have prepared, one name at a time by descriptor: the file that was examined is the
/// one that is used, whatever is put at the path meanwhile. It does not use openat2(2), which is younger than Linux
/// 5.4.
namespace inductorfs::places {

/// A file on the way, opened with O_PATH.
struct Step {
  Fd fd;
  uint64_t mount = 0;  ///< MountEntry::id of the mount it lies in
};

/// Returns "/proc/self/fd/N", a path for calls that take no descriptor. It leads to the open file, not to the file that
/// has its name now.
[[nodiscard]] std::string through_descriptor(const Fd& fd);

[[nodiscard]] Result<Step> open_root();
/// Opens `name` in `at`, which has the whole path `path`; of a symbolic link it opens the link itself. kNotFound when
/// it is not there. kNotPermitted when it is a mount that another ordinary user serves, because a process that touches
/// it would wait for that user. If another mount begins there, `entered` is set; nothing is asked of that mount,
/// because its daemon may hang.
[[nodiscard]] Result<Step> step_into(const Step& at, const std::string& name, const std::string& path,
                                     std::optional<MountEntry>& entered);

/// Returns where the symbolic link leads; empty when `name` is none.
[[nodiscard]] std::string link_target(const Fd& directory, const std::string& name);

/// Opens what is at this absolute path now, by such steps.
[[nodiscard]] Result<Step> open_path(const std::string& path);

/// Acts on files as another user, with no more rights than that user has, until the end of the block; only this thread
/// does. Nothing may throw meanwhile. Needs external synchronisation.
class ActingAs {
 public:
  ActingAs(uid_t uid, gid_t gid);
  ~ActingAs();
  ActingAs(const ActingAs&) = delete;
  ActingAs& operator=(const ActingAs&) = delete;
  /// Returns false if this process has no right to do so.
  [[nodiscard]] bool works() const { return works_; }

 private:
  uid_t uid_;
  gid_t gid_;
  bool works_ = false;
};

}  // namespace inductorfs::places
