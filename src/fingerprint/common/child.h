// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
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

/// The most bytes on each of the child's streams; more is an error. The probes print some KB.
inline constexpr size_t kChildOutputLimit = size_t{1} << 20;

struct ChildOptions {
  std::vector<std::string> environment;  ///< further NAME=value
  /// For programs that root runs and did not bring along: the child gets a default PATH and `environment` and nothing
  /// else of this process's environment; it has limits of memory, processor time, file size and descriptors, and can
  /// gain no privileges.
  bool bare = false;
  uint64_t memory = 0;              ///< the most bytes of its own that a bare child may have; 0: as programs need
  int descriptor = -1;              ///< the child has it as kChildDescriptor; -1: none
  std::function<bool()> cancelled;  ///< asked every kCancelStep; true kills the child
};
inline constexpr int kChildDescriptor = 4;
inline constexpr Milliseconds kCancelStep{100};

/// Runs a program to its end. It runs in a session of its own (so it has no terminal), in the directory /, with
/// /dev/null as input, no inherited descriptors, no blocked signals, LC_ALL=C, and without the variables that point
/// into a mounted cache: a child that touched our own mount would wait for us while we wait for it. The OOM killer
/// takes the child before this process, and the child is killed when the calling thread ends. A program without a slash
/// is looked up in PATH.
///
/// kNotFound with text when there is no such program, kTimedOut when it was killed at the deadline, kUnavailable when
/// it was cancelled, kTooLarge when it printed too much. A failing program is an answer, not an error.
[[nodiscard]] Result<ChildAnswer> run_child(const std::vector<std::string>& command, Milliseconds deadline,
                                            const ChildOptions& options = {});

/// Has the OOM killer take this process before the one that started it, whose score it has inherited. A process may
/// always raise its score. Best effort: /proc may be absent.
void go_first();

/// Returns the absolute path of a program's file, as a shell would find it in PATH; empty when there is none.
[[nodiscard]] std::string program_file(const std::string& name);

}  // namespace inductorfs::fingerprint
