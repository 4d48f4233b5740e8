// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/ledger/job_processes.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/number.h"
#include "inductorfs/base/process_start.h"
#include "inductorfs/base/text.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/paths.h"

namespace inductorfs::ledger {

using config::Json;

namespace {

constexpr uint64_t kProcLimit = 16'384;
constexpr size_t kIdLimit = 64;
constexpr size_t kCommandLimit = 64;
constexpr int kMostAncestors = 16;
constexpr size_t kContainerId = 64;
constexpr size_t kShownContainerId = 12;
constexpr size_t kPodUid = 36;

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

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

/// Reads files of a /proc directory. Immutable after construction.
class Proc {
 public:
  explicit Proc(const std::string& proc) : proc_(proc) {}

  [[nodiscard]] std::string text_of(pid_t pid, const char* name) const {
    return read_file(AT_FDCWD, proc_ + "/" + std::to_string(pid) + "/" + name, kProcLimit).value_or("");
  }

  [[nodiscard]] std::string program_of(pid_t pid) const {
    std::array<char, 512> text{};
    const std::string link = proc_ + "/" + std::to_string(pid) + "/exe";
    const ssize_t size = ::readlink(link.c_str(), text.data(), text.size());
    return {text.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))};
  }

  /// Empty where that is another user's, or the first process of a PID namespace.
  [[nodiscard]] std::optional<pid_t> parent_of(pid_t pid, uid_t user) const {
    const auto parent = parent_in_stat(text_of(pid, "stat"));
    if (!parent || *parent <= 1 || number_in_status(text_of(*parent, "status"), "Uid") != user) return std::nullopt;
    return parent;
  }

  [[nodiscard]] bool is_python(pid_t pid) const {
    const std::string program = program_of(pid);
    return program.compare(program.rfind('/') + 1, 6, "python") == 0;
  }

  [[nodiscard]] pid_t worker_of(pid_t process, uid_t user) const {
    pid_t worker = process;
    for (int i = 0; i < kMostAncestors && !is_python(worker); ++i) {
      const auto parent = parent_of(worker, user);
      if (!parent) return process;
      worker = *parent;
    }
    return worker;
  }

  /// The worker and its ancestors that run the same program for the same user, the first of them last.
  [[nodiscard]] std::vector<pid_t> line_of(pid_t worker, uid_t user) const {
    const std::string program = program_of(worker);
    std::vector<pid_t> line{worker};
    for (int i = 0; i < kMostAncestors && !program.empty(); ++i) {
      const auto parent = parent_of(line.back(), user);
      if (!parent || program_of(*parent) != program) break;
      line.push_back(*parent);
    }
    return line;
  }

 private:
  const std::string& proc_;
};

/// What an interpreter runs, from its command line.
std::string script_in(std::string_view command_line) {
  (void)take_part(command_line, '\0');
  while (!command_line.empty()) {
    const std::string_view word = take_part(command_line, '\0');
    if (!word.starts_with('-') || word == "-") return std::string(word);
    if (word.starts_with("--")) continue;
    // Flags may stand together; those with a value come last.
    const char last = word.back();
    if (last == 'c') return "-c";
    if (last == 'm') return "-m " + std::string(take_part(command_line, '\0'));
    if (last == 'X' || last == 'W') (void)take_part(command_line, '\0');
  }
  return {};
}

bool is_launcher(std::string_view script) {
  constexpr std::array<std::string_view, 3> kNames{"torchrun", "accelerate", "deepspeed"};
  const std::string_view name = script.substr(script.rfind('/') + 1);
  return script.starts_with("-m torch.distributed.") || std::ranges::find(kNames, name) != kNames.end();
}

/// Of a list as "0-3,8".
uint64_t cpus_in(std::string_view status) {
  std::string_view list = line_in_status(status, "Cpus_allowed_list");
  uint64_t sum = 0;
  while (!list.empty()) {
    std::string_view last = take_part(list, ',');
    const auto first = number_in<uint64_t>(take_part(last, '-'));
    const auto end = last.empty() ? first : number_in<uint64_t>(last);
    if (first && end && *end >= *first) sum += *end - *first + 1;
  }
  return sum;
}

std::string text_at(const Json& object, const char* name, size_t limit) {
  auto text = object.at(name).get<std::string>();
  if (text.size() > limit) text.resize(limit);
  return text;
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

std::optional<JobSigns> read_job_signs(const std::string& proc, pid_t thread) {
  const Proc reader(proc);
  const std::string status = reader.text_of(thread, "status");
  JobSigns signs;
  signs.process.pid = static_cast<pid_t>(number_in_status(status, "Tgid").value_or(0));
  signs.user = static_cast<uid_t>(number_in_status(status, "Uid").value_or(0));
  const auto start =
      signs.process.pid > 0 ? start_in_stat(reader.text_of(signs.process.pid, "stat")) : std::optional<uint64_t>();
  if (!start) return std::nullopt;
  signs.process.start = *start;
  signs.worker = reader.worker_of(signs.process.pid, signs.user);
  signs.first = reader.line_of(signs.worker, signs.user).back();
  signs.interpreted = reader.is_python(signs.worker);
  signs.cpus = cpus_in(status);
  signs.command = reader.text_of(signs.first, "comm").substr(0, kCommandLimit);
  if (signs.command.ends_with('\n')) signs.command.pop_back();
  signs.group = job_in_cgroup(reader.text_of(signs.process.pid, "cgroup"));
  return signs;
}

std::string read_job_script(const std::string& proc, pid_t worker) {
  const Proc reader(proc);
  const auto user = number_in_status(reader.text_of(worker, "status"), "Uid");
  if (!user || !reader.is_python(worker)) return {};
  std::string found;
  for (const pid_t pid : reader.line_of(worker, static_cast<uid_t>(*user))) {
    std::string script = script_in(reader.text_of(pid, "cmdline"));
    if (!script.empty() && (found.empty() || !is_launcher(script))) found = std::move(script);
  }
  return config::printable(found).substr(0, kScriptLimit);
}

JobProcesses processes_in(const std::string& proc) {
  const auto stat_of = [proc](pid_t pid) { return Proc(proc).text_of(pid, "stat"); };
  return {[proc, stat_of](pid_t thread) -> std::optional<ProcessId> {
            const auto process = number_in_status(Proc(proc).text_of(thread, "status"), "Tgid");
            const auto start = process ? start_in_stat(stat_of(static_cast<pid_t>(*process))) : std::nullopt;
            return start ? std::optional(ProcessId{static_cast<pid_t>(*process), *start}) : std::nullopt;
          },
          [proc](pid_t thread) { return read_job_signs(proc, thread); },
          [proc](const JobSigns& signs) { return std::optional(read_job_script(proc, signs.worker)); },
          [stat_of](const ProcessId& process) {
            const std::string stat = stat_of(process.pid);
            return !is_ended_in_stat(stat) && start_in_stat(stat) == process.start;
          }};
}

std::string to_text(const JobSigns& signs) {
  return config::to_line({{"pid", signs.process.pid},
                          {"start", signs.process.start},
                          {"user", signs.user},
                          {"worker", signs.worker},
                          {"first", signs.first},
                          {"command", signs.command},
                          {"kind", signs.group.kind},
                          {"id", signs.group.id},
                          {"container", signs.group.container},
                          {"interpreted", signs.interpreted},
                          {"cpus", signs.cpus}});
}

std::optional<JobSigns> job_signs_from(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    JobSigns signs;
    json.at("pid").get_to(signs.process.pid);
    json.at("start").get_to(signs.process.start);
    json.at("user").get_to(signs.user);
    json.at("worker").get_to(signs.worker);
    json.at("first").get_to(signs.first);
    signs.command = text_at(json, "command", kCommandLimit);
    signs.group = {text_at(json, "kind", kIdLimit), text_at(json, "id", kIdLimit),
                   text_at(json, "container", kShownContainerId)};
    signs.interpreted = json.value("interpreted", true);  // an examiner of another release does not say it
    signs.cpus = json.value("cpus", uint64_t{0});
    return signs;
  } catch (const std::exception&) {
    return std::nullopt;  // whoever answered may be in the hands of that process
  }
}

}  // namespace inductorfs::ledger
