// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/vfs/file_system.h"

namespace inductorfs::mount {

/// The name under which this program asks the kernel for others (be_open_files).
inline constexpr const char* kOpenFilesName = "inductorfs-open-files";

/// Whether somebody has files of a mount open, or mapped, for writing. The mount answers OPEN and RELEASE with ENOSYS,
/// so it does not know itself; the kernel does: it refuses a read lease (fcntl(2), F_SETLEASE) on a file that anybody
/// has open for writing. The file has to be opened through the mount for that, and a process that does so waits for the
/// answers of the mount. So a child does it, which may be killed, and which nobody waits for any longer than
/// `patience`: a worker that asked itself could not die while its own mount has to be answered by the next one.
///
/// Needs external synchronisation.
class OpenFiles {
 public:
  explicit OpenFiles(std::string mountpoint, Milliseconds patience = Milliseconds{3000})
      : mountpoint_(std::move(mountpoint)), patience_(patience) {}

  /// Answers in the order of the questions. Blocks until the child has ended, `patience` is over, or it is to stop.
  /// What was answered until then counts.
  [[nodiscard]] std::vector<vfs::OpenState> who_writes(const std::vector<vfs::OpenQuestion>& questions,
                                                       const std::stop_token& stop);

 private:
  [[nodiscard]] bool wait_for(pid_t child, const std::stop_token& stop);

  const std::string mountpoint_;
  const Milliseconds patience_;
  std::vector<pid_t> killed_;  ///< they may wait for an answer of the mount, and end when that comes
};

/// The child: questions on standard input, an answer of one character for each on standard output as soon as it is
/// known. Returns its exit code.
[[nodiscard]] int be_open_files(int argc, char** argv);

}  // namespace inductorfs::mount
