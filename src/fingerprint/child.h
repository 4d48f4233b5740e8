// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"

namespace inductorfs::fingerprint {

/// What a child printed and how it ended. Immutable value.
struct ChildAnswer {
  int exit_code = 0;  ///< 128 + signal number when a signal ended it
  std::string out;
  std::string err;
};

/// More than this on one of the child's streams is an error: `g++ -v` prints 2 KB, the probes less.
inline constexpr size_t kChildOutputLimit = size_t{1} << 20;

/// Runs a program (looked up in PATH) to its end, in a process group of its own, with /dev/null as input, no inherited
/// descriptors, no blocked signals, LC_ALL=C, and without the variables that point into a mounted cache: a child that
/// touched our own mount would wait for us while we wait for it. `environment` holds further NAME=value.
///
/// kNotFound with text when there is no such program, kTimedOut when it was killed at the deadline, kTooLarge when it
/// printed too much. A failing program is an answer, not an error.
[[nodiscard]] Result<ChildAnswer> run_child(const std::vector<std::string>& command, Milliseconds deadline,
                                            const std::vector<std::string>& environment = {});

}  // namespace inductorfs::fingerprint
