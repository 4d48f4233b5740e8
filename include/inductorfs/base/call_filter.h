// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
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

  /// Of a process that serves a mount: it reads and writes files, connects and listens, and has threads. It runs no
  /// program and no memory that it has written, changes no right, user or namespace, makes no set-id file,
  /// mounts nothing, looks into no process, and stops none but itself, which is the one that calls this. Each other
  /// call is refused with ENOSYS.
  [[nodiscard]] static Result<CallFilter> for_serving();

  /// Of a process that starts programs, and does what these want: all calls but those by which a process gets at the
  /// kernel's inside, its clock or its keys, at another process's memory, or at files by a number. Each of these is
  /// refused with ENOSYS.
  [[nodiscard]] static Result<CallFilter> for_starting();

  /// Puts the calling thread under the filter, and what it starts, for good; it can win no privileges from then on. It
  /// allocates nothing, so a child of fork(2) may call it. Errors are those of seccomp(2), and leave it free.
  [[nodiscard]] Result<void> apply() const;

 private:
  using Context = std::unique_ptr<void, void (*)(void*)>;  ///< of libseccomp
  [[nodiscard]] static Result<CallFilter> made_by(bool (*add)(const Context& context), uint32_t others);
  explicit CallFilter(std::string program) : program_(std::move(program)) {}
  std::string program_;  ///< of struct sock_filter
};

}  // namespace inductorfs
