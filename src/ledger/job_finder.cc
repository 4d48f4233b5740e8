// SPDX-License-Identifier: Apache-2.0
#include "job_finder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/process_start.h"
#include "inductorfs/base/text.h"

namespace inductorfs::ledger {
namespace {

constexpr uint64_t kProcLimit = 16'384;
constexpr size_t kIdLimit = 64;
constexpr int kMostAncestors = 16;
constexpr size_t kContainerId = 64;
constexpr size_t kShownContainerId = 12;
constexpr size_t kPodUid = 36;

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The number behind a label at the beginning of a line of /proc/PID/status; nothing when it is not there.
std::optional<uint64_t> labelled(std::string_view text, std::string_view label) {
  size_t at = text.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  at = text.find_first_of("0123456789", at + label.size());
  if (at == std::string_view::npos) return std::nullopt;
  uint64_t number = 0;
  const auto parsed = std::from_chars(text.data() + at, text.data() + text.size(), number);
  return parsed.ec == std::errc() ? std::optional(number) : std::nullopt;
}

/// The digits behind "/job_", as in /slurm/uid_1000/job_4711/step_0.
std::string slurm_job(std::string_view path) {
  constexpr std::string_view kJob = "/job_";
  const size_t at = path.find("slurm") == std::string_view::npos ? path.npos : path.find(kJob);
  if (at == path.npos) return {};
  const std::string_view rest = path.substr(at + kJob.size());
  const auto end = std::find_if_not(rest.begin(), rest.end(), is_digit);
  const auto size = static_cast<size_t>(end - rest.begin());
  const bool whole = size > 0 && size <= kIdLimit && (size == rest.size() || rest[size] == '/');
  return whole ? std::string(rest.substr(0, size)) : std::string();
}

/// The uid behind "pod", as in /kubepods/burstable/pod<uid>/<container>, or kubepods-burstable-pod<uid>.slice, where it
/// has low lines for its hyphens.
std::string pod_of(std::string_view path) {
  if (path.find("kubepods") == path.npos) return {};
  for (const std::string_view mark : {"/pod", "-pod"}) {
    const size_t at = path.find(mark);
    if (at == path.npos) continue;
    std::string uid(path.substr(at + mark.size(), kPodUid));
    std::replace(uid.begin(), uid.end(), '_', '-');
    const bool is_uid =
        uid.size() == kPodUid && std::all_of(uid.begin(), uid.end(), [](char c) { return is_hex(c) || c == '-'; });
    if (is_uid) return uid;
  }
  return {};
}

/// The beginning of the last run of exactly 64 hexadecimal digits.
std::string container_of(std::string_view path) {
  std::string found;
  for (size_t i = 0; i < path.size();) {
    const auto end = std::find_if_not(path.begin() + static_cast<ptrdiff_t>(i), path.end(), is_hex);
    const auto size = static_cast<size_t>(end - path.begin()) - i;
    if (size == kContainerId) found = path.substr(i, kShownContainerId);
    i += std::max<size_t>(size, 1);
  }
  return found;
}

std::string value_of(const std::map<std::string, std::string>& variables, const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? std::string() : found->second.substr(0, kIdLimit);
}

}  // namespace

CgroupJob job_in_cgroup(std::string_view text) {
  CgroupJob job;
  while (!text.empty()) {
    const std::string_view path = take_part(text, '\n');
    if (job.container.empty()) job.container = container_of(path);
    if (!job.kind.empty()) continue;
    if (std::string id = slurm_job(path); !id.empty()) {
      job.kind = "slurm";
      job.id = std::move(id);
    } else if (std::string pod = pod_of(path); !pod.empty()) {
      job.kind = "pod";
      job.id = std::move(pod);
    }
  }
  return job;
}

JobFinder::JobFinder(std::string proc, Variables variables, const Clock& clock)
    : proc_(std::move(proc)), variables_(std::move(variables)), clock_(clock) {}

std::string JobFinder::text_of(pid_t pid, const char* name) const {
  return read_file(AT_FDCWD, proc_ + "/" + std::to_string(pid) + "/" + name, kProcLimit).value_or("");
}

std::optional<uint64_t> JobFinder::start_of(pid_t pid) const { return start_in_stat(text_of(pid, "stat")); }

bool JobFinder::lives(const ProcessId& process) const {
  const std::string stat = text_of(process.pid, "stat");
  const size_t name_end = stat.rfind(") ");
  const bool is_zombie = name_end != std::string::npos && stat.compare(name_end, 3, ") Z") == 0;
  return !is_zombie && start_in_stat(stat) == process.start;
}

FoundJob JobFinder::find(pid_t thread) {
  const SteadyTime now = clock_.now();
  const auto known = threads_.find(thread);
  if (known != threads_.end() && now - known->second.checked < kTrust) return known->second.job;
  const auto start = thread > 0 ? start_of(thread) : std::nullopt;
  if (known != threads_.end() && start == known->second.start) {
    // Its variables may have become known only now.
    if (known->second.job.variables.empty()) known->second.job = look(thread);
    known->second.checked = now;
    return known->second.job;
  }
  if (!start) return {{0, "hidden", {}}, {}, {}, {}};
  FoundJob job = look(thread);
  if (threads_.size() >= kMostThreads) {
    threads_.erase(std::min_element(threads_.begin(), threads_.end(), [](const auto& one, const auto& other) {
      return one.second.checked < other.second.checked;
    }));
  }
  threads_[thread] = {*start, job, now};
  return job;
}

std::string JobFinder::program_of(pid_t pid) const {
  std::array<char, 512> text{};
  const std::string link = proc_ + "/" + std::to_string(pid) + "/exe";
  const ssize_t size = ::readlink(link.c_str(), text.data(), text.size());
  return {text.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

std::optional<pid_t> JobFinder::parent_of(pid_t pid, uid_t user) const {
  const auto parent = parent_in_stat(text_of(pid, "stat"));
  if (!parent || *parent <= 1 || labelled(text_of(*parent, "status"), "\nUid:") != user) return std::nullopt;
  return parent;
}

pid_t JobFinder::worker_of(pid_t process, uid_t user) const {
  const auto is_python = [this](pid_t pid) {
    const std::string program = program_of(pid);
    return program.compare(program.rfind('/') + 1, 6, "python") == 0;
  };
  pid_t worker = process;
  for (int i = 0; i < kMostAncestors && !is_python(worker); ++i) {
    const auto parent = parent_of(worker, user);
    if (!parent) return process;
    worker = *parent;
  }
  return worker;
}

std::map<std::string, std::string> JobFinder::variables_of(pid_t thread, pid_t process, uid_t user) const {
  if (!variables_) return {};
  auto variables = variables_(thread);
  const pid_t worker = variables.empty() ? worker_of(process, user) : process;
  return worker == process ? variables : variables_(worker);
}

pid_t JobFinder::first_of(pid_t process, uid_t user) const {
  const pid_t worker = worker_of(process, user);
  const std::string program = program_of(worker);
  pid_t first = worker;
  for (int i = 0; i < kMostAncestors && !program.empty(); ++i) {
    const auto parent = parent_of(first, user);
    if (!parent || program_of(*parent) != program) break;
    first = *parent;
  }
  return first;
}

FoundJob JobFinder::look(pid_t thread) {
  const std::string status = text_of(thread, "status");
  const auto process = static_cast<pid_t>(labelled(status, "\nTgid:").value_or(0));
  const auto user = static_cast<uid_t>(labelled(status, "\nUid:").value_or(0));
  const auto start = process > 0 ? start_of(process) : std::nullopt;
  if (!start) return {{0, "hidden", {}}, {}, {}, {}};
  const auto known = processes_.find(process);
  const bool is_known = known != processes_.end() && known->second.start == *start;
  // Its variables may have become known only now, and name another job.
  if (is_known && (!known->second.job.variables.empty() || variables_of(thread, process, user).empty())) {
    return known->second.job;
  }
  if (!is_known && processes_.size() >= kMostThreads) processes_.clear();
  FoundJob job = look_at(thread, {process, *start}, user);
  processes_[process] = {*start, job};
  return job;
}

FoundJob JobFinder::look_at(pid_t thread, const ProcessId& process_id, uid_t user) const {
  const pid_t process = process_id.pid;
  FoundJob job;
  job.process = process_id;
  job.name.user = user;
  job.variables = variables_of(thread, process, user);
  const pid_t first = first_of(process, user);
  job.command = text_of(first, "comm");
  if (job.command.ends_with('\n')) job.command.pop_back();
  const CgroupJob group = job_in_cgroup(text_of(process, "cgroup"));
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
    job.name.id = (group.container.empty() ? "" : group.container + " process ") + std::to_string(first);
  }
  return job;
}

}  // namespace inductorfs::ledger
