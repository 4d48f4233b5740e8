// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fingerprint/common/in_root.h"
#include "fingerprint/processes/writers_process.h"
#include "inductorfs/base/fd.h"

namespace inductorfs::fingerprint {

/// What the kernel opens to nobody but who may examine a process (ptrace(2)). To read it takes no right any more: who
/// has opened it parses what the process's user chose after he has become that user (confine()). All of it is of one
/// program.
struct OpenedProcess {
  Process process;  ///< what the kernel says of it, and its `memory`; look_at() adds the rest
  bool has_memory = false;
  std::string space;
  std::string root_link;  ///< what /proc/PID/root says
  std::string root_path;  ///< Process::root
  bool maps_our_paths = false;
  std::string executable_path;  ///< what /proc/PID/exe says
  InRoot root = InRoot::host();
  Fd executable{};  ///< by O_PATH
  Fd maps{};
  Fd mounts{};  ///< none: its mount namespace is ours
  Fd memory{};  ///< with the next one, for its variables alone
  Fd first_environment{};
};

/// Examines a process by its memory map. This and the functions below may block for ever: on the process's memory map,
/// which the process may hold while it waits for a write of its own to this very mount, and on the file systems that it
/// uses. False when the mapped files may not be seen, or the process has none (a kernel thread, a zombie, one that runs
/// another program by now).
[[nodiscard]] bool look_at(OpenedProcess& opened);
/// Reads the environment; empty when neither its memory nor its first environment may be read.
[[nodiscard]] std::optional<LiveEnvironment> environment_of(const OpenedProcess& opened);
/// Returns the files that the variables of this environment name, with their identities.
[[nodiscard]] std::vector<NamedFile> files_of(const OpenedProcess& opened, const LiveEnvironment& environment);

}  // namespace inductorfs::fingerprint
