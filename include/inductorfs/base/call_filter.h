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
  /// Of a process that reads files and what it has open, and answers at a descriptor that it has: it makes no name, no
  /// socket, no process and no thread, runs no program, changes no right, sends no signal, and opens nothing for
  /// writing. What it may read it opens: of a device or a pipe that can be an act, too. openat2(2), whose flags no
  /// filter sees, is refused with ENOSYS, as is each other call (open_in_root() does without it); calls of another
  /// instruction set end the process. kNotSupported where the kernel, the container or the library has no such filter.
  [[nodiscard]] static Result<CallFilter> for_reading();

  /// Puts the calling thread under the filter, and what it starts, for good; it can win no privileges from then on. It
  /// allocates nothing, so a child of fork(2) may call it. Errors are those of seccomp(2), and leave it free.
  [[nodiscard]] Result<void> apply() const;

 private:
  explicit CallFilter(std::string program) : program_(std::move(program)) {}
  std::string program_;  ///< of struct sock_filter
};

}  // namespace inductorfs
