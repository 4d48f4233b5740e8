// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/call_filter.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"

/// The examiner: the one process of a mount that looks at other processes, and at files of users outside of the mount
/// (docs/decisions/0037). A worker asks it over a socket. It has a child for each question, four at most for each
/// user and kind of question, so that a process which makes who looks at it crash, hang or eat memory costs its own
/// user's processes, and the examiner itself interprets no byte that users chose.
namespace inductorfs::fingerprint {

/// A question for an ExaminerTask, as its child has it.
struct ExaminerCall {
  std::string request;  ///< the worker's: not to be trusted
  int descriptor = -1;  ///< what the worker has sent along
  pid_t pid = 0;        ///< the process that it is about; 0: none
};

/// What an examiner can be asked beside the environments of processes.
struct ExaminerTask {
  /// Those that its child keeps, of those that the examiner has (linux/capability.h).
  std::vector<int> capabilities;
  Milliseconds deadline{30'000};          ///< a child that has not answered then is killed
  uint64_t memory = uint64_t{512} << 20;  ///< the most bytes of its own that a child may have; 0: as programs need
  /// It reads, and does nothing else: its child is under ExaminerOptions::reading.
  bool only_reads = false;
  /// Runs in a child of its own. Returns the answer: of any bytes, and no more than kExaminerAnswer.
  std::function<std::string(const ExaminerCall&)> answer;
};

inline constexpr size_t kExaminerRequest = size_t{96} << 10;
inline constexpr size_t kExaminerAnswer = size_t{512} << 10;

struct ExaminerOptions {
  std::string proc = "/proc";
  std::string cache_file;  ///< as ProbeOptions::cache_file
  /// The program that is run as `package_reader package-facts` and calls run_package_reader(); empty: this program.
  std::string package_reader;
  Milliseconds deadline{30'000};  ///< of a child that looks at a process
  std::map<std::string, ExaminerTask, std::less<>> tasks{};
  std::optional<CallFilter> reading{};  ///< of children that look at processes; nothing: they have none
  /// By which it knows what its children have said of processes (look_seal.h), also in an examiner that is started
  /// after it. Nobody else may have it; it is overwritten in each child. nullptr: one of its own.
  std::shared_ptr<std::string> seal_secret{};
  bool only_tasks = false;  ///< it looks at no process, and its children are no first choice of the OOM killer
};

/// Makes an ExaminerOptions::seal_secret, of so many characters.
[[nodiscard]] std::string new_seal_secret();
inline constexpr size_t kSealSecretSize = 64;

/// Returns what ExaminerOptions::reading is to be: nothing in a build with sanitizers, which make calls of their own.
/// Errors are those of CallFilter::for_reading().
[[nodiscard]] Result<std::optional<CallFilter>> filter_of_reading();

/// Answers what is asked at `socket` (ExaminerLink) until the worker has gone; then ends its children and returns. This
/// process must have one thread, and is to have nothing open that its children may not read.
void run_examiner(int socket, const ExaminerOptions& options);

/// What the kernel tells at once of the process that a thread belongs to. Immutable value.
struct ProcessSigns {
  pid_t pid = 0;
  uint64_t start = 0;  ///< clock ticks since boot
  pid_t parent = 0;
  uid_t user = 0;
  bool is_ended = false;  ///< only its parent has not looked yet
  bool is_own = false;    ///< it is a child of the examiner
  uint64_t stack = 0;     ///< with the next one, which program it runs: other ones after each execve(2)
  uint64_t code = 0;
};

class ExaminerLine;

/// A worker's end of the socket to its examiner, which may be another one with each question. Safe for concurrent use.
class ExaminerLink {
 public:
  /// `stands_still` is called when the examiner takes no questions.
  ExaminerLink(int socket, std::function<void()> stands_still);
  ~ExaminerLink();
  ExaminerLink(const ExaminerLink&) = delete;
  ExaminerLink& operator=(const ExaminerLink&) = delete;

  /// Has a task of that name answer `request`, about the process of the thread `about` unless that is 0; it counts for
  /// that process's user. A question that is cut off, because the examiner has ended, is asked again until the
  /// deadline. The child may be in the hands of that process. kTimedOut when no answer came in time, kNotFound when the
  /// process has ended or the examiner knows no such task, kUnavailable when the child crashed, kTooLarge for more than
  /// kExaminerRequest. `cancelled` is asked several times a second; true ends the wait with kUnavailable, and the
  /// child.
  [[nodiscard]] Result<std::string> ask(std::string_view task, const std::string& request, Deadline deadline,
                                        int descriptor = -1, pid_t about = 0,
                                        const std::function<bool()>& cancelled = {}) const;
  /// Sends such a question once and waits for nothing: what its child has to say it says at `descriptor`. Returns the
  /// connection: a line comes when the question was taken, and its end is the child's, which is killed when the
  /// connection is closed. kUnavailable when it cannot be sent.
  [[nodiscard]] Result<Fd> begin(std::string_view task, const std::string& request, int descriptor) const;
  /// Blocks for a quarter of a second at most. kTimedOut when nobody answers, kNotFound when there is none.
  [[nodiscard]] Result<ProcessSigns> signs_of(pid_t thread) const;

  /// Tells that the examiner takes no questions.
  void stands_still() const;

  [[nodiscard]] const ExaminerLine& line() const { return *line_; }

 private:
  std::unique_ptr<const ExaminerLine> line_;
};

}  // namespace inductorfs::fingerprint
