// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/fingerprint/examiner.h"
#include "inductorfs/vfs/file_system.h"

namespace inductorfs::mount {

/// Finds out whether some process has files of a mount open, or mapped, for writing. The mount answers OPEN and RELEASE
/// with ENOSYS, so it does not know itself. The kernel does know: it refuses a read lease (fcntl(2), F_SETLEASE) on a
/// file that any process has open for writing. For that the file has to be opened through the mount, and a process that
/// does so waits for the answers of the mount. Therefore a child of the examiner does it, which may be killed, and for
/// which nobody waits longer than `patience`.
///
/// Safe for concurrent use.
class OpenFiles {
 public:
  static constexpr const char* kTask = "open-files";

  explicit OpenFiles(std::shared_ptr<const fingerprint::ExaminerLink> examiner,
                     Milliseconds patience = Milliseconds{3000})
      : examiner_(std::move(examiner)), patience_(patience) {}

  /// Answers in the order of the questions. Blocks until the child has ended, or `patience` is over. The answers that
  /// came until then count. Questions beyond what one message takes are not asked.
  [[nodiscard]] std::vector<vfs::OpenState> who_writes(const std::vector<vfs::OpenQuestion>& questions,
                                                       const std::stop_token& stop) const;

 private:
  const std::shared_ptr<const fingerprint::ExaminerLink> examiner_;
  const Milliseconds patience_;
};

/// The examiner's side: opens files of the mount at `mountpoint`, and no others.
[[nodiscard]] fingerprint::ExaminerTask open_files_task(std::string mountpoint);

}  // namespace inductorfs::mount
