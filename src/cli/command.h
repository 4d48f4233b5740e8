// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/config/paths.h"

namespace inductorfs::cli {

/// One subcommand of `inductorfs`. A file of its own holds its flags, its help and what it does; all_commands() lists
/// it. Used once: add_to(), then check(), then run(). Needs external synchronisation.
class Subcommand {
 public:
  virtual ~Subcommand() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Returns one line. It is empty for a command that only another process of ours starts; --help does not show that
  /// command.
  [[nodiscard]] virtual std::string_view help() const { return {}; }
  /// Adds the flags. CLI11 keeps the addresses of the members that it fills in.
  virtual void add_to(CLI::App& app) { (void)app; }
  /// Finds what is wrong on the command line and CLI11 cannot know: kInvalid, which becomes a usage error.
  [[nodiscard]] virtual Result<void> check() const { return {}; }
  /// Returns the exit code. Prints the answer to standard output, or one line of error to standard error.
  [[nodiscard]] virtual int run(const config::Environment& environment) = 0;
};

/// All commands, in the order of --help. Each is defined in the file of its name, the last five in
/// internal_commands.cc, export and import in archive_commands.cc. A new command is one file, and its name here.
#define INDUCTORFS_COMMANDS(DO) \
  DO(mount_command)             \
  DO(unmount_command)           \
  DO(status_command)            \
  DO(sync_command)              \
  DO(stats_command)             \
  DO(jobs_command)              \
  DO(why_miss_command)          \
  DO(warm_command)              \
  DO(export_command)            \
  DO(import_command)            \
  DO(upgrade_command)           \
  DO(explain_command)           \
  DO(fingerprint_command)       \
  DO(check_command)             \
  DO(doctor_command)            \
  DO(config_command)            \
  DO(env_command)               \
  DO(metrics_command)           \
  DO(completion_command)        \
  DO(nodes_command)             \
  DO(freeze_command)            \
  DO(purge_command)             \
  DO(gpu_probe_command)         \
  DO(package_facts_command)     \
  DO(host_facts_command)        \
  DO(host_places_command)       \
  DO(worker_command)

#define INDUCTORFS_DECLARE_COMMAND(command) [[nodiscard]] std::unique_ptr<Subcommand> command();
INDUCTORFS_COMMANDS(INDUCTORFS_DECLARE_COMMAND)
#undef INDUCTORFS_DECLARE_COMMAND

[[nodiscard]] std::vector<std::unique_ptr<Subcommand>> all_commands();

}  // namespace inductorfs::cli
