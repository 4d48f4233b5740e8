// SPDX-License-Identifier: Apache-2.0
#include "command.h"

namespace inductorfs::cli {

std::vector<std::unique_ptr<Command>> all_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  for (auto* make : {mount_command, unmount_command, status_command, sync_command, upgrade_command, explain_command,
                     fingerprint_command, check_command, gpu_probe_command, package_facts_command, host_facts_command,
                     host_places_command, worker_command}) {
    commands.push_back(make());
  }
  return commands;
}

}  // namespace inductorfs::cli
