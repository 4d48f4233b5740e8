// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "inductorfs/base/clock.h"
#include "inductorfs/ledger/job_processes.h"

namespace inductorfs::ledger {

/// What processes have in common that belong to one job. Text in it may be of a user's choice.
struct JobName {
  uid_t user = 0;
  std::string kind;  ///< "slurm", "torchelastic", "pod", "container" or "process"; "hidden": see JobFinder::find
  std::string id;    ///< of the job, the run, the pod, or the process that started the others
  auto operator<=>(const JobName&) const = default;
};

struct FoundJob {
  JobName name;
  ProcessId process;    ///< the one that the thread belongs to
  std::string command;  ///< the name of the process that started the others
  std::map<std::string, std::string> variables;
  std::string script;  ///< JobProcesses::script_of
  uint64_t cpus = 0;   ///< JobSigns::cpus
  bool is_job = true;  ///< false: known to be no program of torch or Triton, or ended before anybody could look
};

/// Finds the job that a thread works for, from what the kernel tells of its processes:
/// - that of Slurm (SLURM_JOB_ID, or its cgroup), or of torchrun (TORCHELASTIC_RUN_ID);
/// - else the pod of Kubernetes that its cgroup is of;
/// - else the first of its ancestors that run the same program for the same user, in the container of its cgroup; for
///   a compiler the first of those of the interpreter that started it.
///
/// Needs external synchronisation.
class JobFinder {
 public:
  using Variables = std::function<std::map<std::string, std::string>(pid_t thread)>;
  using RunsTorch = std::function<std::optional<bool>(pid_t thread)>;
  JobFinder(JobProcesses processes, Variables variables, const Clock& clock, RunsTorch runs_torch = {});

  /// Of a thread that cannot be seen (it has ended, or is of another PID namespace) the kind is "hidden".
  [[nodiscard]] FoundJob find(pid_t thread);
  [[nodiscard]] bool lives(const ProcessId& process) const { return kernel_.may_live(process); }

 private:
  struct Known {
    ProcessId process;
    FoundJob job;
    SteadyTime checked{};
  };
  struct KnownJob {
    JobSigns signs;
    FoundJob job;
  };
  static constexpr size_t kMostThreads = 4096;
  /// Within it no other thread gets the number of one that has ended, as good as certainly.
  static constexpr Milliseconds kTrust{1'000};
  static constexpr Milliseconds kScriptsLate{60'000};

  [[nodiscard]] FoundJob look(pid_t thread, const ProcessId& process);
  [[nodiscard]] std::string script_of(const JobSigns& signs);
  [[nodiscard]] FoundJob job_of(pid_t thread, const JobSigns& signs) const;
  [[nodiscard]] std::map<std::string, std::string> variables_of(pid_t thread, const JobSigns& signs) const;

  const JobProcesses kernel_;
  const Variables variables_;
  const Clock& clock_;
  const RunsTorch runs_torch_;
  std::map<uid_t, SteadyTime> late_;  ///< whose scripts are not asked for until then: one did not come in time
  std::map<pid_t, Known> threads_;
  std::map<pid_t, KnownJob> jobs_;  ///< what one thread costs to find out is true of all of them
};

}  // namespace inductorfs::ledger
