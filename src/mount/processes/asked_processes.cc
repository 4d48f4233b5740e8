// SPDX-License-Identifier: Apache-2.0
#include "mount/processes/asked_processes.h"

#include <fcntl.h>
#include <linux/capability.h>

#include <string>
#include <string_view>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/process_start.h"
#include "inductorfs/config/paths.h"

namespace inductorfs::mount {
namespace {

/// A look takes a millisecond, 20 on a busy machine.
constexpr Milliseconds kPatience{2000};
/// A lookup waits for it.
constexpr Milliseconds kViewPatience{250};
/// Of whoever is told which script a job runs: it is good to know, and no more.
constexpr Milliseconds kScriptPatience{250};
constexpr const char* kScript = "script";
constexpr Milliseconds kDeadline{5000};
constexpr const char* kProc = "/proc";
constexpr uint64_t kStatLimit = 4096;
constexpr std::string_view kChildName = "inductorfs-look\n";

std::string path_of(pid_t pid, const char* name) { return std::string(kProc) + "/" + std::to_string(pid) + "/" + name; }

}  // namespace

/// Anybody may have that name; the examiner knows its own.
bool is_own(const SharedExaminer& examiner, pid_t process) {
  if (read_file(AT_FDCWD, path_of(process, "comm"), kStatLimit).value_or("") != kChildName) return false;
  const auto signs = examiner->signs_of(process);
  return signs && signs->is_own;
}

ledger::JobProcesses job_processes_of(const SharedExaminer& examiner) {
  ledger::JobProcesses processes = ledger::processes_in(kProc);
  processes.signs_of = [examiner](pid_t thread) -> std::optional<ledger::JobSigns> {
    const auto text = examiner->ask(kJobTask, {}, Deadline::after(kPatience), -1, thread);
    return text ? ledger::job_signs_from(*text) : std::nullopt;
  };
  // A process can make its command line unreadable for as long as it likes.
  processes.script_of = [examiner](const ledger::JobSigns& signs) -> std::optional<std::string> {
    auto text = examiner->ask(kJobTask, kScript, Deadline::after(kScriptPatience), -1, signs.worker);
    if (text) return config::printable(text->substr(0, ledger::kScriptLimit));
    return text.error().code() == ErrorCode::kTimedOut ? std::nullopt : std::optional(std::string());
  };
  return processes;
}

ViewSources view_sources_of(const SharedExaminer& examiner) {
  ViewSources sources;
  sources.process_of = [examiner](pid_t thread) -> std::optional<ViewedProcess> {
    const std::string stat = read_file(AT_FDCWD, path_of(thread, "stat"), kStatLimit).value_or("");
    const auto start = start_in_stat(stat);
    if (!start) return std::nullopt;
    return ViewedProcess{thread, *start, is_own(examiner, thread)};
  };
  sources.mounts_of = [examiner](pid_t process) -> std::optional<std::string> {
    auto text = examiner->ask(kMountsTask, {}, Deadline::after(kViewPatience), -1, process);
    return text && !text->empty() ? std::optional(std::move(*text)) : std::nullopt;
  };
  sources.own_mounts = read_mount_table;
  return sources;
}

fingerprint::ExaminerTask job_task() {
  fingerprint::ExaminerTask task;
  task.capabilities = {CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH};
  task.deadline = kDeadline;
  task.only_reads = true;
  task.answer = [](const fingerprint::ExaminerCall& call) {
    if (call.request == kScript) return ledger::read_job_script(kProc, call.pid);
    const auto signs = ledger::read_job_signs(kProc, call.pid);
    return signs ? ledger::to_text(*signs) : std::string();
  };
  return task;
}

fingerprint::ExaminerTask mounts_task() {
  fingerprint::ExaminerTask task;
  task.capabilities = {CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH};
  task.deadline = kDeadline;
  task.only_reads = true;
  task.answer = [](const fingerprint::ExaminerCall& call) {
    return read_file(AT_FDCWD, path_of(call.pid, "mountinfo"), ProcessViews::kMostBytes).value_or("");
  };
  return task;
}

const std::string& filter_warning() {
  static const std::string warning = [] {
    const auto filter = fingerprint::filter_of_reading();
    return filter ? std::string()
                  : "who looks at processes may make all system calls: " + filter.error().what() +
                        ": allow seccomp filters in the container, or boot a kernel with CONFIG_SECCOMP_FILTER";
  }();
  return warning;
}

}  // namespace inductorfs::mount
