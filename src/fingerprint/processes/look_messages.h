// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fingerprint/processes/looker.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/fingerprint/examiner.h"

/// What worker and examiner say to each other. A question is one message: a JSON object, and the end of a connection on
/// which the answer comes before that is closed: a line of the examiner's own as soon as it has taken the question, and
/// one of its child, which may be in the hands of the process that it looks at. Both take what the other says for a
/// lie: whatever is missing, of another type or too large gives no value. Strings are of any bytes but NUL.
namespace inductorfs::fingerprint {

enum class Ask {
  kLook,       ///< Looker::look_at(): Process::memory comes with the child's line
  kVariables,  ///< Looker::variables_of()
  kHold,       ///< Looker::hold(): until the connection is closed; the answer is its number
  kPackage,    ///< Looker::read_package()
  kSigns,      ///< ExaminerLink::signs_of(): the first line is the whole answer
  kTask,       ///< ExaminerLink::ask()
};

struct Question {
  Ask ask = Ask::kLook;
  Process process;  ///< pid and identity; of kPackage what was told of its files. Where they are the examiner says
  Facet facet = Facet::kTorch;
  uint64_t held = 0;   ///< kPackage: the number of what is held; 0: nothing
  std::string task{};  ///< kTask; its process is the one of the thread `pid`, and none for 0
  std::string request{};
};

[[nodiscard]] std::string to_text(const Question& question);
[[nodiscard]] std::optional<Question> question_from(std::string_view text);

/// What the kernel tells the examiner of a process at once, so that no child has to be believed.
struct Taken {
  uid_t owner = 0;
  FileUser user;
  std::string space;
  std::string root;  ///< the directory that leads into its root, whether it needs one or not
};

/// Lines, without their ends.
[[nodiscard]] std::string to_text(const Taken& taken);
[[nodiscard]] std::optional<Taken> taken_from(std::string_view line);
[[nodiscard]] std::string to_text(const Process& process);
[[nodiscard]] std::optional<Process> process_from(std::string_view line);
[[nodiscard]] std::string to_text(const Variables& variables);
[[nodiscard]] std::optional<Variables> variables_from(std::string_view line);
/// What to_text() has of a process's files and compiler, as Process::named tells it.
[[nodiscard]] std::string named_text(const std::vector<NamedFile>& files, const CompilerCall& compiler);
/// Takes that into the process; false when it is none.
[[nodiscard]] bool take_named(std::string_view text, Process& process);
/// Puts a seal behind the line of a process, or of variables, whose last part is what it seals.
[[nodiscard]] std::string sealed(std::string line, const std::string& key, std::string_view what);
[[nodiscard]] std::string to_text(Facet facet, const Fact& fact);
[[nodiscard]] std::optional<Fact> fact_from(Facet facet, std::string_view line);
[[nodiscard]] std::string to_text(const ProcessSigns& signs);
[[nodiscard]] std::optional<ProcessSigns> process_signs_from(std::string_view line);
[[nodiscard]] std::string task_answer_text(const std::string& answer);
[[nodiscard]] std::optional<std::string> task_answer_from(std::string_view line);
[[nodiscard]] std::string held_text(uint64_t number);
[[nodiscard]] std::optional<uint64_t> held_from(std::string_view line);
/// It was looked at, and cannot be examined.
inline constexpr std::string_view kNothing = "null";
/// The child was killed because it had not answered in time.
inline constexpr std::string_view kLate = "\"late\"";
/// The child crashed, or ended without an answer.
inline constexpr std::string_view kFailed = "\"failed\"";

/// The longest question, and the longest answer.
inline constexpr size_t kQuestionLimit = size_t{128} << 10;
inline constexpr size_t kAnswerLimit = size_t{1} << 20;

/// False when the other end is gone or has no room. `further` goes along unless it is -1.
[[nodiscard]] bool send_question(int socket, std::string_view text, int connection, int further = -1);
enum class Received { kQuestion, kNoQuestion, kEnded };
/// Never blocks. Anything that is no question with a connection is kNoQuestion, and is forgotten.
[[nodiscard]] Received receive_question(int socket, Question& question, Fd& connection, Fd& further);

}  // namespace inductorfs::fingerprint
