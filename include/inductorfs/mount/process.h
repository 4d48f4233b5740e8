// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"

/// How this process becomes a daemon, and what it tells those who wait for it.
namespace inductorfs::mount {

/// Says once that the mount answers, or why it never will: to the process that started it, and to systemd. An object
/// that goes without having said anything lets the starter see the end of the pipe. Needs external synchronisation.
class Readiness {
 public:
  Readiness() = default;
  explicit Readiness(Fd pipe) : pipe_(std::move(pipe)) {}
  /// `warnings`: for the person who started it, one a line; empty for none.
  void ready(const std::string& warnings = {});
  void failed(const Error& error);
  /// Whether a process waits for the word, which then prints it.
  [[nodiscard]] bool has_listener() const { return static_cast<bool>(pipe_); }
  [[nodiscard]] int fd() const { return pipe_.get(); }

 private:
  void say(std::string_view text);
  Fd pipe_;
};

/// Which side of the fork this is, and what that side needs.
struct Forked {
  bool child = false;
  Readiness readiness;  ///< the child's
  Fd pipe;              ///< the parent's
  pid_t pid = 0;
};
/// Forks; the child leads a session of its own. Requires: one thread.
[[nodiscard]] Result<Forked> fork_daemon();
/// The parent's part: the child's warnings, mostly empty, when it said ready; else its error, or kTimedOut (the child
/// is ended then), or kInternal when it died without a word.
[[nodiscard]] Result<std::string> await_ready(const Forked& forked, std::chrono::seconds patience,
                                              const std::string& log);

/// chdir("/"), umask(0), environment without what would lead Python, the compiler or SQLite into the mount, all
/// descriptors that the hard limit allows, no SIGPIPE. `keep_stdio`: not to /dev/null.
[[nodiscard]] Result<void> settle(const std::string& mountpoint, bool keep_stdio);
/// Out of the reach of write-back throttling, as far as the rights go: every process that
/// has a file of the mount open depends on this one.
void protect();

/// Tells systemd ("READY=1", "STATUS=..."), when it listens.
void notify_systemd(const std::string& state);

/// "inductorfs: what: where: remedy", exactly one line.
[[nodiscard]] std::string error_line(const Error& error);
/// "inductorfs: warning: what; remedy", exactly one line.
[[nodiscard]] std::string warning_line(const std::string& warning);

}  // namespace inductorfs::mount
