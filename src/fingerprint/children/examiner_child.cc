// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/children/examiner_child.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>

#include "fingerprint/common/child.h"
#include "fingerprint/processes/opened_process.h"
#include "inductorfs/base/own_user.h"
#include "inductorfs/base/sanitized.h"

namespace inductorfs::fingerprint {
namespace {

/// What a user chose is parsed in this much.
constexpr uint64_t kMemory = uint64_t{512} << 20;
/// To open what it looks at and become its user, and to have a package read as its user.
constexpr int kToLook[] = {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_SETUID, CAP_SETGID};
constexpr int kToRead[] = {
    CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_SETUID, CAP_SETGID, CAP_KILL,
};

void limit_memory([[maybe_unused]] uint64_t bytes) {
  // Best effort, both.
#ifndef INDUCTORFS_SANITIZED
  const rlimit memory{bytes, bytes};
  if (bytes > 0) (void)::setrlimit(RLIMIT_DATA, &memory);
#endif
  const rlimit no_core{0, 0};
  (void)::setrlimit(RLIMIT_CORE, &no_core);
}

/// Whether others of this mount's examiners have said it of the process, and nobody else. Who parses it is its user.
bool is_told(const Process& process, const std::string& key) {
  const auto is_sealed = [&key](const Told& told, std::string_view what) {
    return told.seal == seal_of(key, what, told.text);
  };
  return !process.told.text.empty() && is_sealed(process.told, kSealedProcess) &&
         (process.named.text.empty() || is_sealed(process.named, kSealedFiles));
}

}  // namespace

void ExaminerChild::limit_to(const Question& question) const {
  (void)::prctl(PR_SET_NAME, "inductorfs-look");
  if (!options_.only_tasks) go_first();
  const auto task = question.ask == Ask::kTask ? options_.tasks.find(question.task) : options_.tasks.end();
  // A change of its users takes PR_SET_PDEATHSIG back (setfsuid(2)), and then nobody would end it.
  if (options_.only_tasks) (void)::alarm(static_cast<unsigned>(task->second.deadline / std::chrono::seconds(1)) + 1);
  std::span<const int> rights = question.ask == Ask::kPackage ? std::span<const int>(kToRead) : kToLook;
  if (task != options_.tasks.end()) rights = task->second.capabilities;
  if (!keep_capabilities(rights)) ::_exit(EXIT_FAILURE);
  limit_memory(task == options_.tasks.end() ? kMemory : task->second.memory);
  (void)::signal(SIGPIPE, SIG_IGN);  // whoever asked may have gone
  const bool only_reads = task != options_.tasks.end() && task->second.only_reads;
  if (only_reads && options_.reading && !options_.reading->apply()) {
    (void)::fputs("inductorfs: no process is looked at: its filter of system calls was refused\n", stderr);
    ::_exit(EXIT_FAILURE);
  }
}

std::string ExaminerChild::answer(const Errand& errand, std::shared_ptr<const Fd>& memory) {
  const Process& process = errand.question.process;
  const std::string key = seal_key(*secret_, process.pid, process.identity.start, errand.owner);
  forget(secret_);
  if (errand.question.ask == Ask::kTask) return run(errand);
  return errand.question.ask == Ask::kPackage ? read(errand, key) : look(errand, key, memory);
}

std::string ExaminerChild::run(const Errand& errand) const {
  const ExaminerTask& task = options_.tasks.find(errand.question.task)->second;
  std::string text = task.answer({errand.question.request, errand.further, errand.question.process.pid});
  if (text.size() > kExaminerAnswer) return std::string(kFailed);
  return task_answer_text(text);
}

/// What a user chose is parsed by that user.
std::string ExaminerChild::look(const Errand& errand, const std::string& key, std::shared_ptr<const Fd>& memory) const {
  const Question& question = errand.question;
  const bool for_variables = question.ask == Ask::kVariables;
  const Opening what = for_variables ? Opening::kBoth : Opening::kMaps;
  auto opened = reader_.open(question.process.pid, question.process.identity, what);
  if (!opened) return std::string(kNothing);
  const auto confined =
      confine(opened->process.user, opened->root.descriptor(), options_.reading ? &*options_.reading : nullptr);
  if (!confined) {
    (void)std::fprintf(stderr, "inductorfs: no process is looked at: %s\n", confined.error().what().c_str());
    ::_exit(EXIT_FAILURE);
  }
  const bool is_seen = look_at(*opened);
  // It runs another program by now: whoever asks may ask again.
  if (!is_seen && opened->maps && opened->has_memory) ::_exit(EXIT_FAILURE);
  if (!is_seen) return std::string(kNothing);
  if (!for_variables) {
    memory = opened->process.memory;
    return sealed(to_text(opened->process), key, kSealedProcess);
  }
  auto environment = environment_of(*opened);
  if (!environment) return std::string(kNothing);
  auto files = files_of(*opened, *environment);
  return sealed(to_text(Variables{std::move(*environment), std::move(files)}), key, kSealedFiles);
}

/// Root and user are the examiner's own finding.
std::string ExaminerChild::read(const Errand& errand, const std::string& key) const {
  const Question& question = errand.question;
  if (!is_told(question.process, key)) return std::string(kNothing);
  PackageRequest request;
  request.facet = question.facet;
  request.process = question.process;
  request.path = question.request;
  // Where the store has moved meanwhile nothing is made at its old place.
  struct stat status {};
  const std::string folder = options_.cache_file.substr(0, options_.cache_file.rfind('/'));
  if (::stat(folder.c_str(), &status) == 0) request.cache_file = options_.cache_file;
  request.program = options_.package_reader;
  request.deadline = options_.deadline;
  request.held = errand.held;
  request.process.user = errand.reader;
  request.process.root = errand.root;
  return have_package_read(request);
}

}  // namespace inductorfs::fingerprint
