// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/cli/run.h"

#include <cstdio>

#include "cli/commands/mount_helper.h"
#include "cli/common/answers.h"
#include "cli/common/command_line.h"

namespace inductorfs::cli {

int run(int argc, char** argv) {
  if (argc > 0 && is_mount_helper(argv[0])) return run_mount_helper(argc, argv);
  const CommandLine line = parse_command_line(argc, argv);
  hide_secrets(argc, argv);
  if (line.command) return line.command->run(config::process_environment());
  std::FILE* const out = line.exit_code == kExitDone ? stdout : stderr;
  if (!line.answer.empty()) (void)print(line.answer);  // the exit code is an error's already
  const bool written = std::fputs(line.text.c_str(), out) >= 0 && std::fflush(out) == 0;
  return written ? line.exit_code : kExitFailed;
}

}  // namespace inductorfs::cli
