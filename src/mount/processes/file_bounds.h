// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/base/result.h"
#include "inductorfs/config/settings.h"

namespace inductorfs::mount {

/// Has the kernel judge what this worker opens, makes and renames by where it lies, for good: in its tree of files, or
/// where it has none, in what a tree would show (worker_tree.h) and around its log; nowhere else, whoever sends it an
/// open directory of the host. It reaches no abstract socket of others (where the kernel has that: Linux 6.12), binds
/// no TCP port (6.7), and connects to none but the server's and the name service's; to any where the server names
/// others, as Sentinels and Redis Clusters do. What is done by a name and opens nothing (stat, extended attributes,
/// times, connect to a socket) the kernel does not judge. Makes the directories of store and log when they are missing.
/// Once, before there are threads, without new privileges (prctl(2)). kNotSupported where the kernel has no Landlock
/// that lets files be renamed across directories (Linux 5.19; landlock(7)).
[[nodiscard]] Result<void> stay_in_places(const config::Settings& settings);

}  // namespace inductorfs::mount
