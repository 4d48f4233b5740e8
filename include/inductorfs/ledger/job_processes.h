// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

/// What the kernel tells of the processes of a job, without a look at their memory.
namespace inductorfs::ledger {

/// A process, and not a later one with its number.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start = 0;  ///< clock ticks since boot
  auto operator<=>(const ProcessId&) const = default;
};

/// The job or pod that the text of a /proc/PID/cgroup names, as kind and id; both empty if it names none.
struct CgroupJob {
  std::string kind;
  std::string id;
  std::string container;  ///< the beginning of the container's id; empty outside of containers
};
[[nodiscard]] CgroupJob job_in_cgroup(std::string_view text);

/// Text in it may be of a user's choice. Immutable value.
struct JobSigns {
  ProcessId process;  ///< the one that the thread belongs to
  uid_t user = 0;
  pid_t worker = 0;     ///< the interpreter that the process works for: itself, or the one that started a compiler
  pid_t first = 0;      ///< the first of that one's ancestors that run the same program for the same user
  std::string command;  ///< the name of the first one
  CgroupJob group;
  bool interpreted = true;  ///< `worker` runs Python
  uint64_t cpus = 0;        ///< on which the process may run; 0: not known
};

/// Tells of processes. Each call may block for a quarter of a second, signs_of for some seconds.
struct JobProcesses {
  /// Empty for a thread that has ended, or cannot be seen.
  std::function<std::optional<ProcessId>(pid_t thread)> process_of;
  std::function<std::optional<JobSigns>(pid_t thread)> signs_of;
  /// Which program the interpreter runs that a process works for, see read_job_script(). Empty when that does not come
  /// in time.
  std::function<std::optional<std::string>(const JobSigns& signs)> script_of;
  /// Also when that is not known.
  std::function<bool(const ProcessId&)> may_live;
};

/// Reads a /proc directory by itself.
[[nodiscard]] JobProcesses processes_in(const std::string& proc);

/// Reads the signs of a thread's process: its stat, status and cgroup, and stat, status, comm and the link exe of those
/// that started it. Does not block.
[[nodiscard]] std::optional<JobSigns> read_job_signs(const std::string& proc, pid_t thread);
inline constexpr size_t kScriptLimit = 256;
/// Reads which program the interpreter `worker` runs, or the first of its ancestors that run the same interpreter for
/// the same user: "/opt/train.py", "-m package" or "-c". Launchers (torchrun) do not count where they have started
/// another. It is no more of the command line than that, because arguments may hold secrets. Of a user's choice, but
/// printable. May block for as long as that process likes.
[[nodiscard]] std::string read_job_script(const std::string& proc, pid_t worker);
/// As one line of JSON, and back; whatever is missing or of another type gives none.
[[nodiscard]] std::string to_text(const JobSigns& signs);
[[nodiscard]] std::optional<JobSigns> job_signs_from(std::string_view text);

}  // namespace inductorfs::ledger
