// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/config/paths.h"

namespace inductorfs::cli {

/// One command of `inductorfs`. A file of its own holds its flags, its help and what it does; all_commands() lists it.
/// Used once: add_to(), then check(), then run(). Needs external synchronisation.
class Command {
 public:
  virtual ~Command() = default;
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

// Each of these is defined in the file of its name, the last five in internal_commands.cc.
[[nodiscard]] std::unique_ptr<Command> mount_command();
[[nodiscard]] std::unique_ptr<Command> unmount_command();
[[nodiscard]] std::unique_ptr<Command> status_command();
[[nodiscard]] std::unique_ptr<Command> sync_command();
[[nodiscard]] std::unique_ptr<Command> upgrade_command();
[[nodiscard]] std::unique_ptr<Command> explain_command();
[[nodiscard]] std::unique_ptr<Command> fingerprint_command();
[[nodiscard]] std::unique_ptr<Command> check_command();
[[nodiscard]] std::unique_ptr<Command> gpu_probe_command();
[[nodiscard]] std::unique_ptr<Command> package_facts_command();
[[nodiscard]] std::unique_ptr<Command> host_facts_command();
[[nodiscard]] std::unique_ptr<Command> host_places_command();
[[nodiscard]] std::unique_ptr<Command> worker_command();

/// Returns all commands, in the order of --help. A new command is one file, one line above, and its name in
/// commands.cc.
[[nodiscard]] std::vector<std::unique_ptr<Command>> all_commands();

}  // namespace inductorfs::cli
