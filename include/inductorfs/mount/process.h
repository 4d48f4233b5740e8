// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/settings.h"

/// How this process becomes a daemon, and what it tells the processes that wait for it.
namespace inductorfs::mount {

/// Reports once that the mount answers, or why it never will: to the process that started this one, and to systemd. If
/// an object is destroyed before it reported anything, the starter sees the end of the pipe.
/// Needs external synchronisation.
class Readiness {
 public:
  Readiness() = default;
  explicit Readiness(Fd pipe) : pipe_(std::move(pipe)) {}
  /// `warnings` are lines for the process that started this one; empty for none.
  void ready(const std::string& warnings = {});
  void failed(const Error& error);
  /// Says whether a process waits for the report, which that process then prints.
  [[nodiscard]] bool has_listener() const { return static_cast<bool>(pipe_); }
  [[nodiscard]] int fd() const { return pipe_.get(); }

 private:
  void say(std::string_view text);
  Fd pipe_;
};

/// Says which side of the fork this is, and holds what that side needs.
struct Forked {
  bool child = false;
  Readiness readiness;  ///< the child's
  Fd pipe;              ///< the parent's
  pid_t pid = 0;
};
/// Forks; the child leads a session of its own. The process must have one thread.
[[nodiscard]] Result<Forked> fork_daemon();
/// Waits, in the parent, for the child's report. Returns the child's warnings (mostly empty) when the child is ready;
/// else the child's error as kInvalid or kInternal, or kTimedOut (it then ends the child), or kInternal when the child
/// died without a report.
[[nodiscard]] Result<std::string> await_ready(const Forked& forked, std::chrono::seconds patience,
                                              const std::string& log);

/// Prepares the process for its life as a daemon: chdir("/"), umask(0), an environment without variables that would
/// lead Python, the compiler or SQLite into the mount, as many descriptors as the hard limit allows, no SIGPIPE.
/// The three standard descriptors become /dev/null unless `keep_stdio`.
[[nodiscard]] Result<void> settle(const std::string& mountpoint, bool keep_stdio);
/// Gives up, for what this process starts too, all rights of root's but these capabilities, and the system calls that
/// no such process makes (CallFilter::for_starting()); with no new privileges a program that root starts gets no more
/// than it has. Has no effect on an ordinary user's process, which has none, and needs fusermount3.
[[nodiscard]] Result<void> keep_rights(std::span<const int> capabilities);
/// Takes the process out of write-back throttling, as far as its rights allow, and from the limit of locked memory:
/// every process that has a file of the mount open depends on this one.
void protect();

/// Tells systemd ("READY=1", "STATUS=..."), if systemd listens.
void notify_systemd(const std::string& state);

/// Returns the exit code of a mount that could not be made: 2 for kInvalid (an option or what it names is wrong, and
/// another try will not help), else 1.
[[nodiscard]] int exit_code_of(const Error& error);
/// For an option that is wrong, or what it names: only another value helps, and the exit code says so (exit_code_of).
[[nodiscard]] tl::unexpected<Error> wrong_option(const Error& error);
/// Says whether no time mends what is wrong with a path that an option names, as it does for a full disk, a dead one,
/// or another daemon.
[[nodiscard]] bool is_lasting(ErrorCode code);
/// For a path that an option names: wrong_option() of an error that is lasting, else the error.
[[nodiscard]] tl::unexpected<Error> wrong_path(const Error& error);
/// Returns "inductorfs: what: where: remedy", exactly one line.
[[nodiscard]] std::string error_line(const Error& error);
/// Returns "inductorfs: warning: what; remedy", exactly one line.
[[nodiscard]] std::string warning_line(const std::string& warning);
/// Returns what these settings allow and hardly mean, one sentence each with its remedy: a password that others may
/// read, a store that may grow beyond its disk. Looks at the disks.
[[nodiscard]] std::vector<std::string> cautions(const config::Settings& settings);

}  // namespace inductorfs::mount
