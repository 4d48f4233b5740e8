// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "fingerprint/processes/look_messages.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/fingerprint/examiner.h"

namespace inductorfs::fingerprint {

/// For what a request's thread may ask: the examiner does it at once, or is not there.
inline constexpr Milliseconds kExaminerMoment{250};

/// What comes on the connection of a question: the examiner's line and its child's.
struct ExaminerAnswer {
  std::string taken;
  std::string line;
  Fd connection;
  Fd descriptor{};  ///< the last one that came along: of any kind, and nothing may be asked of it that could block
};

/// Sends questions and receives their lines. Safe for concurrent use.
class ExaminerLine {
 public:
  /// Takes a descriptor of its own.
  ExaminerLine(int socket, std::function<void()> stands_still);
  /// Asks, and again when the question is cut off or the child has crashed once. Nothing when no answer came in time,
  /// or `cancelled` said true; the line is kFailed when the child crashed twice.
  [[nodiscard]] std::optional<ExaminerAnswer> ask(const Question& question, Deadline deadline, int descriptor = -1,
                                                  const std::function<bool()>& cancelled = {}) const;

  /// As ExaminerLink::begin().
  [[nodiscard]] Result<Fd> begin(const Question& question, int descriptor) const;
  void stands_still() const;

 private:
  struct Wait;
  [[nodiscard]] std::optional<bool> ask_once(const std::string& question, int descriptor, ExaminerAnswer& answer,
                                             const Wait& wait) const;
  [[nodiscard]] Result<Fd> send(const std::string& question, int descriptor) const;

  const Fd socket_;
  const std::function<void()> stands_still_;
};

}  // namespace inductorfs::fingerprint
