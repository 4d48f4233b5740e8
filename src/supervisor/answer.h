// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <span>

#include "core.h"

/// The answers to the kernel while no worker can give any: as little as keeps processes going. Nothing here allocates.
namespace inductorfs::supervisor {

/// The mount's root, which the kernel checks permissions against.
struct Root {
  uid_t uid = 0;
  gid_t gid = 0;
  mode_t mode = 0755;
};

inline constexpr size_t kAnswerLimit = 512;

/// Returns the reply to one message of the kernel, ready to be written to the device; empty for a message that needs
/// none. Names are absent, what was opened can be released, and everything else is EIO.
[[nodiscard]] std::span<const char> answer(std::span<const char> request, const Root& root,
                                           std::array<char, kAnswerLimit>& room) noexcept;

/// Returns the line that tells a caller of the control socket why nobody serves. `ended`: the exit code of the last
/// worker, or its signal as a negative number; `seconds`: until another one is tried.
[[nodiscard]] std::span<const char> no_worker_line(int ended, Time seconds,
                                                   std::array<char, kAnswerLimit>& room) noexcept;
/// The same while a killed worker does not end (Core::is_held()).
[[nodiscard]] std::span<const char> held_line(pid_t worker, std::array<char, kAnswerLimit>& room) noexcept;

}  // namespace inductorfs::supervisor
