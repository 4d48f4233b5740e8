// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "fingerprint/children/examiner_line.h"
#include "fingerprint/facts/facts.h"
#include "fingerprint/processes/look_messages.h"
#include "fingerprint/processes/writers_packages.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/mount_table.h"

namespace inductorfs::fingerprint {
namespace {

/// Never blocks: it asks no file system but those that answer from what they know.
std::optional<struct statx> known_status(int directory, const char* path, int flags) {
  struct statx status {};
  constexpr int kKnown = AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT;
  if (::statx(directory, path, flags | kKnown, STATX_TYPE, &status) != 0) return std::nullopt;
  return status;
}

/// The child that has sent it may be in the hands of what it looked at, and to read another file may block for ever.
bool is_pagemap_of(const Fd& fd, pid_t pid) {
  const Result<Fd> table = open_mount_table();  // of the /proc that the examiner sees
  const auto proc = table ? known_status(table->get(), "", AT_EMPTY_PATH) : std::nullopt;
  const auto file = fd ? known_status(fd.get(), "", AT_EMPTY_PATH) : std::nullopt;
  if (!proc || !file || proc->stx_dev_major != file->stx_dev_major || proc->stx_dev_minor != file->stx_dev_minor) {
    return false;
  }
  std::array<char, 128> name{};
  const ssize_t size = ::readlink(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), name.data(), name.size());
  return size > 0 &&
         std::string_view(name.data(), static_cast<size_t>(size)).ends_with("/" + std::to_string(pid) + "/pagemap");
}

class FarLooker final : public Looker {
 public:
  FarLooker(std::shared_ptr<const ExaminerLink> examiner, Milliseconds patience)
      : examiner_(std::move(examiner)), patience_(patience) {}

  Looked<Process> look_at(pid_t pid, const ProcessIdentity& identity) override {
    Question question;
    question.process.pid = pid;
    question.process.identity = identity;
    auto answer = ask(question, patience_);
    if (!answer) return {true, std::nullopt};
    auto process = process_from(answer->line);
    const auto taken = taken_from(answer->taken);
    if (!process || !taken || process->pid != pid || !identity.may_be(process->identity)) return {};
    if (is_pagemap_of(answer->descriptor, pid)) {
      process->memory = std::make_shared<const Fd>(std::move(answer->descriptor));
    }
    // With whose rights its files are read, and for whom what is read of them counts, no child says.
    process->owner = taken->owner;
    process->user = taken->user;
    process->space = taken->space;
    if (!process->root.empty()) process->root = taken->root;
    return {false, std::move(process)};
  }

  std::optional<ProcessIdentity> identity_of(pid_t pid) override {
    const auto signs = examiner_->signs_of(pid);
    if (!signs || signs->pid != pid) return std::nullopt;
    return ProcessIdentity{signs->start, signs->stack, signs->code};
  }

  Looked<Variables> variables_of(const Process& process) override {
    Question question;
    question.ask = Ask::kVariables;
    question.process = process;
    const auto answer = ask(question, patience_);
    if (!answer) return {true, std::nullopt};
    return {false, variables_from(answer->line)};
  }

  Looked<std::shared_ptr<const Held>> hold(const Process& process) override {
    Question question;
    question.ask = Ask::kHold;
    question.process = process;
    auto answer = ask(question, kExaminerMoment);
    if (!answer) return {true, std::nullopt};
    const auto number = held_from(answer->line);
    if (!number) return {};
    auto held = std::make_shared<Held>();
    held->number = *number;
    held->line = std::move(answer->connection);
    return {false, std::move(held)};
  }

  std::optional<Fact> read_package(const PackageRequest& request) override {
    Question question;
    question.ask = Ask::kPackage;
    question.process = request.process;
    question.facet = request.facet;
    question.request = path_for(request.facet, request.process);  // for people
    question.held = request.held ? request.held->number : 0;
    const auto answer = ask(question, patience_);
    if (!answer) return package_not_in_time(path_for(request.facet, request.process), request.deadline);
    return fact_from(request.facet, answer->line);
  }

 private:
  /// Nothing when no answer came in time, or there will be none.
  [[nodiscard]] std::optional<ExaminerAnswer> ask(const Question& question, Milliseconds patience) const {
    auto answer = examiner_->line().ask(question, Deadline::after(patience));
    if (!answer || answer->line != kFailed) return answer;
    log::write_limited(log::Level::kWarning, "fingerprint.look_failed", {});
    return std::nullopt;
  }

  const std::shared_ptr<const ExaminerLink> examiner_;
  const Milliseconds patience_;
};

}  // namespace

std::unique_ptr<Looker> make_far_looker(std::shared_ptr<const ExaminerLink> examiner, Milliseconds patience) {
  return std::make_unique<FarLooker>(std::move(examiner), patience);
}

}  // namespace inductorfs::fingerprint
