// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/places/mount_table.h"

/// Paths that others may have prepared, walked one name at a time by descriptor: what was looked at is what is used,
/// whatever is put at the path meanwhile. By descriptor and not by openat2(2), which is younger than Linux 5.4.
namespace inductorfs::places {

/// A file on the way, opened with O_PATH.
struct Step {
  Fd fd;
  uint64_t mount = 0;  ///< MountEntry::id of the mount it lies in
};

[[nodiscard]] Result<uint64_t> mount_id_of(const Fd& fd);
/// "/proc/self/fd/N": a path for calls that take no descriptor. It leads to what is open, not to what has its name now.
[[nodiscard]] std::string through_descriptor(const Fd& fd);

[[nodiscard]] Result<Step> open_root();
/// What `name` is in `at`, which has the whole path `path`: a symbolic link itself, not what it leads to. kNotFound: it
/// is not there. kNotPermitted: it is a mount that another ordinary user serves, for whom whoever touches it would
/// wait. `entered`: set when another mount begins there. Nothing in that is asked, as its daemon may hang.
[[nodiscard]] Result<Step> step_into(const Step& at, const std::string& name, const std::string& path,
                                     std::optional<MountEntry>& entered);

/// What is at this absolute path now, by such steps.
[[nodiscard]] Result<Step> open_path(const std::string& path);

/// Acts on files as another user, with no more rights than that user has, until the end of the block: only this thread
/// does. Nothing may throw meanwhile. Needs external synchronisation.
class ActingAs {
 public:
  ActingAs(uid_t uid, gid_t gid);
  ~ActingAs();
  ActingAs(const ActingAs&) = delete;
  ActingAs& operator=(const ActingAs&) = delete;
  /// False where this process may not.
  [[nodiscard]] bool works() const { return works_; }

 private:
  uid_t uid_;
  gid_t gid_;
  bool works_ = false;
};

}  // namespace inductorfs::places
