// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/fingerprint/examiner.h"
#include "inductorfs/trust/statement.h"

namespace inductorfs::mount {

/// Has a mount's statements signed: a child of its mounter reads the key for each of them, signs, and ends. So the key
/// is in no process that reads what others wrote, a new one counts at once, and a worker can have nothing signed but
/// statements. Safe for concurrent use; calls block until the deadline.
class StatementSigner {
 public:
  static constexpr const char* kTask = "sign";
  /// What a mounter does for the key in this file (trust::SigningKey::load).
  [[nodiscard]] static fingerprint::ExaminerTask task(const std::string& file);

  /// `mounter`: Supervision::mounter(). `stands_still` is called when the mounter takes no words.
  StatementSigner(int mounter, std::function<void()> stands_still);

  /// trust::sign_statement(). Errors are also those of reading the key.
  [[nodiscard]] Result<trust::SignedStatement> sign(const trust::TrustStatement& statement, Deadline deadline) const;
  /// Returns the public line of the key.
  [[nodiscard]] Result<std::string> public_line(Deadline deadline) const;

 private:
  [[nodiscard]] Result<std::string> ask(const std::string& request, Deadline deadline) const;
  const fingerprint::ExaminerLink link_;
};

}  // namespace inductorfs::mount
