// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "cli/common/words.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/paths.h"

namespace inductorfs::cli {

/// One subcommand of `inductorfs`. A file of its own holds its flags and what it does; all_commands() lists it. Used
/// once: add_to(), then check(), then run(). Needs external synchronisation.
class Subcommand {
 public:
  virtual ~Subcommand() = default;
  virtual void add_to(Words& words) { (void)words; }
  /// Finds what is wrong on the command line and no KnownWord says: kInvalid, which becomes a usage error.
  [[nodiscard]] virtual Result<void> check() const { return {}; }
  /// Returns the exit code. Prints the answer to standard output, or one line of error to standard error.
  [[nodiscard]] virtual int run(const config::Environment& environment) = 0;
};

struct CommandRow {
  std::string_view name;
  /// One line. It is empty for a command that only another process of ours starts; --help does not show that command.
  std::string_view help;
  std::unique_ptr<Subcommand> (*make)();
};

/// All commands, in the order of --help. A new command is a file, its function here, and its row in commands.cc.
[[nodiscard]] std::span<const CommandRow> all_commands();

[[nodiscard]] std::unique_ptr<Subcommand> mount_command();
[[nodiscard]] std::unique_ptr<Subcommand> unmount_command();
[[nodiscard]] std::unique_ptr<Subcommand> status_command();
[[nodiscard]] std::unique_ptr<Subcommand> sync_command();
[[nodiscard]] std::unique_ptr<Subcommand> stats_command();
[[nodiscard]] std::unique_ptr<Subcommand> jobs_command();
[[nodiscard]] std::unique_ptr<Subcommand> why_miss_command();
[[nodiscard]] std::unique_ptr<Subcommand> warm_command();
[[nodiscard]] std::unique_ptr<Subcommand> export_command();
[[nodiscard]] std::unique_ptr<Subcommand> import_command();
[[nodiscard]] std::unique_ptr<Subcommand> upgrade_command();
[[nodiscard]] std::unique_ptr<Subcommand> explain_command();
[[nodiscard]] std::unique_ptr<Subcommand> fingerprint_command();
[[nodiscard]] std::unique_ptr<Subcommand> check_command();
[[nodiscard]] std::unique_ptr<Subcommand> doctor_command();
[[nodiscard]] std::unique_ptr<Subcommand> config_command();
[[nodiscard]] std::unique_ptr<Subcommand> env_command();
[[nodiscard]] std::unique_ptr<Subcommand> metrics_command();
[[nodiscard]] std::unique_ptr<Subcommand> completion_command();
[[nodiscard]] std::unique_ptr<Subcommand> nodes_command();
[[nodiscard]] std::unique_ptr<Subcommand> freeze_command();
[[nodiscard]] std::unique_ptr<Subcommand> purge_command();
[[nodiscard]] std::unique_ptr<Subcommand> key_command();
[[nodiscard]] std::unique_ptr<Subcommand> acl_command();
[[nodiscard]] std::unique_ptr<Subcommand> gpu_probe_command();
[[nodiscard]] std::unique_ptr<Subcommand> package_facts_command();
[[nodiscard]] std::unique_ptr<Subcommand> host_facts_command();
[[nodiscard]] std::unique_ptr<Subcommand> host_places_command();
[[nodiscard]] std::unique_ptr<Subcommand> worker_command();
[[nodiscard]] std::unique_ptr<Subcommand> examiner_command();
[[nodiscard]] std::unique_ptr<Subcommand> mounter_command();

}  // namespace inductorfs::cli
