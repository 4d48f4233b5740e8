// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "cli/common/command.h"

namespace CLI {
class App;
}

namespace inductorfs::cli {

/// The meaning of a command line: a command, or a text to print.
struct CommandLine {
  std::string name;                     ///< of the command
  std::unique_ptr<Subcommand> command;  ///< checked, ready to run; nullptr: print `text`
  std::string text;                     ///< --help and --version to standard output, a usage error to standard error
  std::string answer;                   ///< a usage error as JSON, to standard output, if one of the words is --json
  int exit_code = 0;                    ///< the exit code after `text`
};

/// Makes CLI11 know these words, whose places it fills in.
void give(const Words& words, CLI::App& app);

/// Parses a command line. It never fails: a wrong command line is one line of text and exit code 2.
[[nodiscard]] CommandLine parse_command_line(int argc, const char* const* argv);

/// Overwrites user and password of every URL in place: ps shows the process's own memory.
void hide_secrets(int argc, char** argv);

}  // namespace inductorfs::cli
