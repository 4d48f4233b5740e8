// SPDX-License-Identifier: Apache-2.0
#include "command.h"

namespace inductorfs::cli {

std::vector<std::unique_ptr<Subcommand>> all_commands() {
  std::vector<std::unique_ptr<Subcommand>> commands;
#define INDUCTORFS_MAKE_COMMAND(command) commands.push_back(command());
  INDUCTORFS_COMMANDS(INDUCTORFS_MAKE_COMMAND)
#undef INDUCTORFS_MAKE_COMMAND
  return commands;
}

}  // namespace inductorfs::cli
