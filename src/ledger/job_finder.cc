// SPDX-License-Identifier: Apache-2.0
#include "job_finder.h"

#include <algorithm>
#include <utility>

namespace inductorfs::ledger {
namespace {

constexpr size_t kIdLimit = 64;

/// Of a thread that has ended, or that nobody can see. Whether it is one of a job is not known.
FoundJob hidden(bool is_job) {
  FoundJob job;
  job.name.kind = "hidden";
  job.is_job = is_job;
  return job;
}

std::string value_of(const std::map<std::string, std::string>& variables, const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? std::string() : found->second.substr(0, kIdLimit);
}

}  // namespace

JobFinder::JobFinder(JobProcesses processes, Variables variables, const Clock& clock, RunsTorch runs_torch)
    : kernel_(std::move(processes)),
      variables_(std::move(variables)),
      clock_(clock),
      runs_torch_(std::move(runs_torch)) {}

FoundJob JobFinder::find(pid_t thread) {
  const SteadyTime now = clock_.now();
  const auto known = threads_.find(thread);
  if (known != threads_.end() && now - known->second.checked < kTrust) return known->second.job;
  const auto process = thread > 0 ? kernel_.process_of(thread) : std::nullopt;
  if (known != threads_.end() && process == known->second.process) {
    // Its variables may have become known only now, and it may have loaded torch.
    if (known->second.job.variables.empty() || !known->second.job.is_job) known->second.job = look(thread, *process);
    known->second.checked = now;
    return known->second.job;
  }
  // Its number is nobody else's so soon. One that ended before anybody looked has not compiled.
  if (!process && known != threads_.end()) return known->second.job;
  if (!process) return hidden(thread <= 0);
  FoundJob job = look(thread, *process);
  if (threads_.size() >= kMostThreads) {
    threads_.erase(std::min_element(threads_.begin(), threads_.end(), [](const auto& one, const auto& other) {
      return one.second.checked < other.second.checked;
    }));
  }
  threads_[thread] = {*process, job, now};
  return job;
}

/// Those of the process, or of its interpreter: of a compiler nobody knows them.
std::map<std::string, std::string> JobFinder::variables_of(pid_t thread, const JobSigns& signs) const {
  if (!variables_) return {};
  auto variables = variables_(thread);
  const bool asks_worker = variables.empty() && signs.worker != signs.process.pid;
  return asks_worker ? variables_(signs.worker) : variables;
}

FoundJob JobFinder::look(pid_t thread, const ProcessId& process) {
  const auto known = jobs_.find(process.pid);
  // Of what is no job: it may have become another program.
  const bool is_known = known != jobs_.end() && known->second.signs.process == process && known->second.job.is_job;
  // Its variables may have become known only now, and name another job.
  if (is_known && (!known->second.job.variables.empty() || variables_of(thread, known->second.signs).empty())) {
    return known->second.job;
  }
  if (!is_known && jobs_.size() >= kMostThreads) jobs_.clear();
  const auto signs = is_known ? std::optional(known->second.signs) : kernel_.signs_of(thread);
  if (!signs || !(signs->process == process)) return hidden(true);
  FoundJob job = job_of(thread, *signs);
  const auto runs_torch = runs_torch_ ? runs_torch_(thread) : std::nullopt;
  job.is_job = runs_torch.value_or(signs->interpreted);
  if (is_known) {
    job.script = known->second.job.script;
  } else if (job.is_job) {
    job.script = script_of(*signs);
  }
  jobs_[process.pid] = {*signs, job};
  return job;
}

std::string JobFinder::script_of(const JobSigns& signs) {
  const SteadyTime now = clock_.now();
  if (const auto late = late_.find(signs.user); !kernel_.script_of || (late != late_.end() && now < late->second))
    return {};
  if (auto script = kernel_.script_of(signs)) return std::move(*script);
  if (late_.size() >= kMostThreads) late_.clear();
  late_[signs.user] = now + kScriptsLate;
  return {};
}

FoundJob JobFinder::job_of(pid_t thread, const JobSigns& signs) const {
  FoundJob job;
  job.process = signs.process;
  job.name.user = signs.user;
  job.variables = variables_of(thread, signs);
  job.command = signs.command;
  job.cpus = signs.cpus;
  const CgroupJob& group = signs.group;
  const std::string slurm = group.kind == "slurm" ? group.id : value_of(job.variables, "SLURM_JOB_ID");
  // torchrun's own default says nothing.
  const std::string elastic = value_of(job.variables, "TORCHELASTIC_RUN_ID");
  if (!slurm.empty()) {
    job.name.kind = "slurm";
    job.name.id = slurm;
  } else if (!elastic.empty() && elastic != "none") {
    job.name.kind = "torchelastic";
    job.name.id = elastic;
  } else if (group.kind == "pod") {
    job.name.kind = group.kind;
    job.name.id = group.id;
  } else {
    job.name.kind = group.container.empty() ? "process" : "container";
    job.name.id = (group.container.empty() ? "" : group.container + " process ") + std::to_string(signs.first);
  }
  return job;
}

}  // namespace inductorfs::ledger
