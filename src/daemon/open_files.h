// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "inductorfs/vfs/file_system.h"

namespace inductorfs::daemon {

/// The name under which this program asks the kernel for others (be_open_files).
inline constexpr const char* kOpenFilesName = "inductorfs-open-files";

/// Whether somebody has files of a mount open, or mapped, for writing. The mount answers OPEN and RELEASE with ENOSYS,
/// so it does not know itself; the kernel does: it refuses a read lease (fcntl(2), F_SETLEASE) on a file that anybody
/// has open for writing. The file has to be opened through the mount for that, and a process that does so waits for the
/// answers of the mount. So a child does it, which may be killed, and which nobody waits for any longer than
/// kChildPatience: a worker that asked itself could not die while its own mount has to be answered by the next one.
///
/// Blocks for as long as the child takes. Answers in the order of the questions.
[[nodiscard]] std::vector<vfs::OpenState> ask_who_writes(const std::string& mountpoint,
                                                         const std::vector<vfs::OpenQuestion>& questions);

/// The child: questions on standard input, an answer of one character for each on standard output. Returns its exit
/// code.
[[nodiscard]] int be_open_files(int argc, char** argv);

}  // namespace inductorfs::daemon
