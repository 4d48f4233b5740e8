// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "command_line.h"
#include "paths.h"

/// The commands that ask a running daemon, and `fingerprint`. Each prints its answer to standard output or the one line
/// of its error to standard error, and gives the exit code.
namespace inductorfs::daemon {

[[nodiscard]] int unmount_command(const Invocation& invocation, const Environment& environment);
[[nodiscard]] int status_command(const Invocation& invocation, const Environment& environment);
[[nodiscard]] int sync_command(const Invocation& invocation, const Environment& environment);
[[nodiscard]] int explain_command(const Invocation& invocation, const Environment& environment);
/// Puts the families of the configuration into force. Requires: called once, while the process has one thread.
[[nodiscard]] Result<void> change_families(const Settings& settings, const std::string& file);
[[nodiscard]] int fingerprint_command(const Invocation& invocation);

}  // namespace inductorfs::daemon
