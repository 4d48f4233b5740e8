// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "inductorfs/base/result.h"

/// Files of /proc that are of the host and of no process, for those, too, whose /proc has processes alone: their tree
/// has them at its top (mount/worker_tree.h). Safe for concurrent use.
namespace inductorfs {

inline constexpr const char* kBootIdCopy = "/boot-id";
inline constexpr const char* kCpuInfo = "/proc/cpuinfo";
inline constexpr const char* kShownCpuInfo = "/cpuinfo";

/// Returns what the kernel calls this boot (/proc/sys/kernel/random/boot_id), with its line end; empty: it is not
/// known.
[[nodiscard]] std::string boot_id();

/// Returns /proc/cpuinfo as it is now. Errors are those of read_file().
[[nodiscard]] Result<std::string> cpu_info(uint64_t limit);

}  // namespace inductorfs
