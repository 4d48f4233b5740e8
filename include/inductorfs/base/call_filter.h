// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inductorfs/base/result.h"

/// Which system calls a process may still make (seccomp(2)): what it was made for, and nothing that a taken-over one
/// would begin with.
namespace inductorfs {

/// Immutable value, safe for concurrent use.
class CallFilter {
 public:
  /// Of a process that reads files and what it has open, and answers at a descriptor that it has: it makes no file, no
  /// socket, no process and no thread, runs no program, changes no right and no signal of others, and opens nothing for
  /// writing. openat2(2), whose flags no filter sees, is refused with ENOSYS, as is each other call
  /// (open_in_root() does without it). kNotSupported where the library knows no such filter for this machine.
  [[nodiscard]] static Result<CallFilter> for_reading();

  /// Whether this kernel has such filters; an emulator of another processor has none.
  [[nodiscard]] static bool is_supported();

  /// Puts the calling thread under the filter, and what it starts, for good; it can win no privileges from then on. It
  /// allocates nothing, so a child of fork(2) may call it. Errors are those of seccomp(2), and leave it free.
  [[nodiscard]] Result<void> apply() const;

 private:
  explicit CallFilter(std::string program) : program_(std::move(program)) {}
  std::string program_;  ///< of struct sock_filter
};

}  // namespace inductorfs
