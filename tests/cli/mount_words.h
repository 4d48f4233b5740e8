// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/common/command_line.h"
#include "cli/common/mount_arguments.h"

namespace inductorfs::testing {

/// The options of a mount, given as words of a command line.
struct MountWords {
  explicit MountWords(std::vector<std::string> words) {
    cli::Words known;
    options.add_to(known, "the file");
    known.add("REST", &rest, "");
    CLI::App app;
    give(known, app);
    std::vector<const char*> argv{"mount"};
    for (const std::string& word : words) argv.push_back(word.c_str());
    EXPECT_NO_THROW(app.parse(static_cast<int>(argv.size()), argv.data()));
  }
  [[nodiscard]] Result<config::Settings> settings(const std::string& mountpoint) const {
    const auto no_environment = [](const std::string&) { return std::optional<std::string>(); };
    return options.settings(mountpoint, config::User{1000, "alice", "/home/alice"}, no_environment);
  }

  cli::MountArguments options;
  std::vector<std::string> rest;
};

}  // namespace inductorfs::testing
