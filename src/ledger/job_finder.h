// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/clock.h"

namespace inductorfs::ledger {

/// What processes have in common that belong to one job. Text in it may be of a user's choice.
struct JobName {
  uid_t user = 0;
  std::string kind;  ///< "slurm", "torchelastic", "pod", "container" or "process"; "hidden": see JobFinder::find
  std::string id;    ///< of the job, the run, the pod, or the process that started the others
  auto operator<=>(const JobName&) const = default;
};

/// A process, and not a later one with its number.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start = 0;  ///< clock ticks since boot
  auto operator<=>(const ProcessId&) const = default;
};

struct FoundJob {
  JobName name;
  ProcessId process;    ///< the one that the thread belongs to
  std::string command;  ///< the name of the process that started the others
  std::map<std::string, std::string> variables;
};

/// Finds the job that a thread works for:
/// - that of Slurm (SLURM_JOB_ID, or its cgroup), or of torchrun (TORCHELASTIC_RUN_ID);
/// - else the pod of Kubernetes that its cgroup is of;
/// - else the first of its ancestors that run the same program for the same user, in the container of its cgroup; for
///   a compiler the first of those of the interpreter that started it.
///
/// It reads only what the kernel tells of itself (stat, status, cgroup, comm, the link exe), and never the memory of a
/// process. Needs external synchronisation.
class JobFinder {
 public:
  using Variables = std::function<std::map<std::string, std::string>(pid_t thread)>;
  JobFinder(std::string proc, Variables variables, const Clock& clock);

  /// Of a thread that cannot be seen (it has ended, or is of another PID namespace) the kind is "hidden".
  [[nodiscard]] FoundJob find(pid_t thread);
  [[nodiscard]] bool lives(const ProcessId& process) const;

 private:
  struct Known {
    uint64_t start = 0;  ///< of the thread
    FoundJob job;
    SteadyTime checked{};
  };
  static constexpr size_t kMostThreads = 4096;
  /// Within it no other thread gets the number of one that has ended, as good as certainly.
  static constexpr Milliseconds kTrust{1'000};

  [[nodiscard]] FoundJob look(pid_t thread);
  [[nodiscard]] FoundJob look_at(pid_t thread, const ProcessId& process, uid_t user) const;
  [[nodiscard]] std::string program_of(pid_t pid) const;
  /// Empty where that is another user's, or the first process of a PID namespace.
  [[nodiscard]] std::optional<pid_t> parent_of(pid_t pid, uid_t user) const;
  /// The interpreter that a process works for: itself, or the one that started a compiler.
  [[nodiscard]] pid_t worker_of(pid_t process, uid_t user) const;
  [[nodiscard]] pid_t first_of(pid_t process, uid_t user) const;
  /// Those of the process, or of its interpreter: of a compiler nobody knows them.
  [[nodiscard]] std::map<std::string, std::string> variables_of(pid_t thread, pid_t process, uid_t user) const;
  [[nodiscard]] std::optional<uint64_t> start_of(pid_t pid) const;
  [[nodiscard]] std::string text_of(pid_t pid, const char* name) const;

  std::string proc_;
  Variables variables_;
  const Clock& clock_;
  struct KnownProcess {
    uint64_t start = 0;
    FoundJob job;
  };
  std::map<pid_t, Known> threads_;
  std::map<pid_t, KnownProcess> processes_;  ///< what one thread costs to find out is true of all of them
};

/// Returns the job or pod that the text of a /proc/PID/cgroup names, as kind and id; both empty if it names none.
struct CgroupJob {
  std::string kind;
  std::string id;
  std::string container;  ///< the beginning of the container's id; empty outside of containers
};
[[nodiscard]] CgroupJob job_in_cgroup(std::string_view text);

}  // namespace inductorfs::ledger
