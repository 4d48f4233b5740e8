// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/children/examiner_line.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "fingerprint/common/child.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/message.h"

namespace inductorfs::fingerprint {
namespace {

/// Between two tries of a question that was cut off, because the examiner has ended or has too much to do.
constexpr Milliseconds kAgain{50};
/// An examiner that has not even taken a question then stands still.
constexpr Milliseconds kSilence{2000};
/// A child that crashes twice does so because of what it looks at.
constexpr int kMostFailures = 2;

}  // namespace

/// For what, and how long, a question's answer is waited for.
struct ExaminerLine::Wait {
  Deadline deadline;
  bool has_child = false;
  bool takes_descriptor = false;
  const std::function<bool()>& cancelled;

  [[nodiscard]] bool is_over() const { return deadline.passed() || (cancelled && cancelled()); }
  /// Receives the lines; false: they were cut off before their end. Nothing: they did not come in time. After each
  /// kSilence without a byte it calls `on_silence`.
  [[nodiscard]] std::optional<bool> receive(ExaminerAnswer& answer, const std::function<void()>& on_silence) const;
};

std::optional<bool> ExaminerLine::Wait::receive(ExaminerAnswer& answer, const std::function<void()>& on_silence) const {
  std::string text;
  std::array<char, 16384> piece{};
  size_t middle = std::string::npos;
  Deadline silence = Deadline::after(kSilence);
  while (text.size() <= kAnswerLimit) {
    pollfd item{answer.connection.get(), POLLIN, 0};
    Milliseconds step = text.empty() ? std::min(deadline.left(), silence.left()) : deadline.left();
    if (cancelled) step = std::min(step, kCancelStep);
    if (::poll(&item, 1, static_cast<int>(step.count())) == 0) {
      if (is_over()) return std::nullopt;
      if (text.empty() && silence.passed()) {
        on_silence();
        silence = Deadline::after(kSilence);
      }
    }
    // A descriptor that nobody waits for never comes to be one of this process's: to close it could block.
    std::array<Fd, kMostDescriptors> further;
    const ssize_t got = takes_descriptor ? receive_message(answer.connection.get(), piece, further, MSG_DONTWAIT).size
                                         : ::recv(answer.connection.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (further[0]) answer.descriptor = std::move(further[0]);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return false;
    text.append(piece.data(), static_cast<size_t>(got));
    if (middle == std::string::npos) middle = text.find('\n');
    if (middle == std::string::npos) continue;
    answer.taken = text.substr(0, middle);
    if (!has_child) return true;
    const size_t end = text.find('\n', middle + 1);
    if (end == std::string::npos) continue;
    answer.line = text.substr(middle + 1, end - middle - 1);
    // Of a child that ended in the middle of its own.
    for (const std::string_view end_of : {kLate, kFailed}) {
      if (answer.line.ends_with(end_of)) answer.line = end_of;
    }
    return true;
  }
  answer.line = kNothing;  // it would be no shorter the next time
  return true;
}

ExaminerLine::ExaminerLine(int socket, std::function<void()> stands_still)
    : socket_(::fcntl(socket, F_DUPFD_CLOEXEC, 0)), stands_still_(std::move(stands_still)) {}

/// As Wait::receive().
std::optional<bool> ExaminerLine::ask_once(const std::string& question, int descriptor, ExaminerAnswer& answer,
                                           const Wait& wait) const {
  auto connection = send(question, descriptor);
  if (!connection) return false;
  answer.connection = std::move(*connection);
  return wait.receive(answer, [this] { stands_still(); });
}

Result<Fd> ExaminerLine::send(const std::string& question, int descriptor) const {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return fail_errno("socketpair");
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  if (!send_question(socket_.get(), question, theirs.get(), descriptor)) {
    return fail(ErrorCode::kUnavailable, "nobody takes the question");
  }
  return ours;
}

Result<Fd> ExaminerLine::begin(const Question& question, int descriptor) const {
  return send(to_text(question), descriptor);
}

void ExaminerLine::stands_still() const {
  if (stands_still_) stands_still_();
}

std::optional<ExaminerAnswer> ExaminerLine::ask(const Question& question, Deadline deadline, int descriptor,
                                                const std::function<bool()>& cancelled) const {
  const std::string text = to_text(question);
  if (text.size() > kQuestionLimit) return ExaminerAnswer{{}, std::string(kNothing), {}};
  const Wait wait{deadline, question.ask != Ask::kSigns, question.ask == Ask::kLook, cancelled};
  const bool is_brief = deadline.left() <= kExaminerMoment;
  for (int failures = 0;;) {
    ExaminerAnswer answer;
    const auto received = ask_once(text, descriptor, answer, wait);
    if (received == true && answer.line == kLate) return std::nullopt;
    failures += received == true && answer.line == kFailed ? 1 : 0;
    if (received == true && (answer.line != kFailed || failures == kMostFailures)) return answer;
    if (wait.is_over()) break;
    (void)::poll(nullptr, 0, static_cast<int>(std::min(kAgain, deadline.left()).count()));
  }
  // Who has a task done is told, and says so.
  const bool is_told = is_brief || question.ask == Ask::kTask;
  if (!is_told && deadline.passed()) log::write_limited(log::Level::kError, "fingerprint.examiner_silent", {});
  return std::nullopt;
}

ExaminerLink::ExaminerLink(int socket, std::function<void()> stands_still)
    : line_(std::make_unique<const ExaminerLine>(socket, std::move(stands_still))) {}

ExaminerLink::~ExaminerLink() = default;

Result<std::string> ExaminerLink::ask(std::string_view task, const std::string& request, Deadline deadline,
                                      int descriptor, pid_t about, const std::function<bool()>& cancelled) const {
  if (request.size() > kExaminerRequest) return fail(ErrorCode::kTooLarge, "a question to the examiner");
  Question question;
  question.ask = Ask::kTask;
  question.task = task;
  question.request = request;
  question.process.pid = about;
  const auto answer = line_->ask(question, deadline, descriptor, cancelled);
  if (!answer && cancelled && cancelled()) return fail(ErrorCode::kUnavailable, "it was given up");
  if (!answer) return fail(ErrorCode::kTimedOut, "the process that looks at programs has not answered in time");
  if (answer->line == kNothing) return fail(ErrorCode::kNotFound, "the process has ended, or cannot be looked at");
  if (answer->line == kFailed) return fail(ErrorCode::kUnavailable, "who looked has crashed");
  auto text = task_answer_from(answer->line);
  return text ? Result<std::string>(std::move(*text))
              : fail(ErrorCode::kInternal, "the answer of the process that looks at programs is no answer");
}

Result<Fd> ExaminerLink::begin(std::string_view task, const std::string& request, int descriptor) const {
  Question question;
  question.ask = Ask::kTask;
  question.task = task;
  question.request = request;
  return line_->begin(question, descriptor);
}

void ExaminerLink::stands_still() const { line_->stands_still(); }

Result<ProcessSigns> ExaminerLink::signs_of(pid_t thread) const {
  Question question;
  question.ask = Ask::kSigns;
  question.process.pid = thread;
  const auto answer = line_->ask(question, Deadline::after(kExaminerMoment));
  if (!answer) return fail(ErrorCode::kTimedOut, "the process that looks at programs has not answered in time");
  const auto signs = process_signs_from(answer->taken);
  return signs ? Result<ProcessSigns>(*signs) : fail(ErrorCode::kNotFound, "there is no such process");
}

}  // namespace inductorfs::fingerprint
