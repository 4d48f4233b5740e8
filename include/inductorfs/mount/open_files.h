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

/// The name under which this program is started as the child that asks the kernel (be_open_files).
inline constexpr const char* kOpenFilesName = "inductorfs-open-files";

/// Finds out whether some process has files of a mount open, or mapped, for writing. The mount answers OPEN and RELEASE
/// with ENOSYS, so it does not know itself. The kernel does know: it refuses a read lease (fcntl(2), F_SETLEASE) on a
/// file that any process has open for writing. For that the file has to be opened through the mount, and a process that
/// does so waits for the answers of the mount. Therefore a child does it, which may be killed, and for which nobody
/// waits longer than `patience`: a worker that asked by itself could not die as long as its own mount has to be
/// answered by the next worker.
///
/// Needs external synchronisation.
class OpenFiles {
 public:
  explicit OpenFiles(std::string mountpoint, Milliseconds patience = Milliseconds{3000})
      : mountpoint_(std::move(mountpoint)), patience_(patience) {}

  /// Answers in the order of the questions. Blocks until the child has ended, `patience` is over, or `stop` is
  /// requested. The answers that came until then count.
  [[nodiscard]] std::vector<vfs::OpenState> who_writes(const std::vector<vfs::OpenQuestion>& questions,
                                                       const std::stop_token& stop);

 private:
  [[nodiscard]] bool wait_for(pid_t child, const std::stop_token& stop);

  const std::string mountpoint_;
  const Milliseconds patience_;
  std::vector<pid_t> killed_;  ///< killed children; they may wait for an answer of the mount, and end when it comes
};

/// Runs the body of the child: it reads questions from standard input, and writes an answer of one character for each
/// to standard output as soon as it is known. Returns the exit code.
[[nodiscard]] int be_open_files(int argc, char** argv);

}  // namespace inductorfs::mount
