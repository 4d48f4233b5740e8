// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inductorfs/base/counters.h"
#include "inductorfs/config/json_forward.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/host/host.h"
#include "inductorfs/remote/remote.h"
#include "inductorfs/vfs/file_system.h"

/// Tells a user who expects that a mount shares what is written to it whether it does.
namespace inductorfs::mount {

/// Returns one line that says why nothing that torch makes is shared, and what to do; empty if it is shared. "torch
/// none" is a known fact, so that no family is private because of it, and yet every job's artefact stays on its host.
/// Empty also for a local cache for which neither an interpreter nor facts were named.
[[nodiscard]] std::string sharing_warning(const config::Settings& settings, const fingerprint::Fingerprint& facts);

/// Returns one line for the user who mounts, if the remote that was named has not answered; empty if it has, and for a
/// local cache. Shows no password.
[[nodiscard]] std::string remote_warning(const config::Settings& settings, const remote::Operators::Health& health,
                                         const std::string& refusal);

/// Adds to an error of a question to the cluster which remote did not answer, and what to do; leaves every other error
/// as it is. Shows no password.
[[nodiscard]] Error unreached(const config::Settings& settings, const Error& error);

/// Returns one line that says that what processes of another PID namespace write is not shared, and what to do; empty
/// if no such process has written (`writes`), and where the mount examines no writers.
[[nodiscard]] std::string namespace_warning(const config::Settings& settings, uint64_t writes);

/// Says of which user some programs are, and why their environment is not known: "2 programs of uid 1000: ...".
[[nodiscard]] std::string unknown_text(const fingerprint::UnknownJobs& jobs);

/// Reports what became of everything that was written since this worker began to serve: {"published": groups, "kept":
/// artefacts that stay on this host, "why": [reasons], "nothing_shared": whether something of a shared family was kept,
/// no group was published, and none lost its contest to a group that the cluster has}. An empty object without a
/// remote. `unknown`: the programs whose environments are not known, where environments are learned.
[[nodiscard]] config::Json sync_report(const config::Settings& settings, Counters& counters,
                                       const vfs::FileSystemStatus& files, const host::Scopes& scopes,
                                       const std::vector<fingerprint::UnknownJobs>& unknown = {});

}  // namespace inductorfs::mount
