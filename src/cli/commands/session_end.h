// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace inductorfs::cli {

/// Says that systemd-logind ends the processes of a session when its user logs out, a mount's among them, and what to
/// do instead. Empty if it does not, or if this is no session. `cgroup` is the text of /proc/self/cgroup, `settings`
/// are those of logind.conf(5) and its drop-ins, the last of which counts. Pure.
[[nodiscard]] std::string session_end_warning(const std::string& cgroup, const std::vector<std::string>& settings);
/// The same for this process and host. Root is left alone (KillExcludeUsers=root is the default). Reads local files.
[[nodiscard]] std::string session_end_warning();

}  // namespace inductorfs::cli
