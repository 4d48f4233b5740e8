// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"

/// `mount.inductorfs`, which mount(8) runs: the same program under another name.
namespace inductorfs::cli {

inline constexpr int kHelperUsage = 1;    ///< exit code of mount(8): wrong invocation
inline constexpr int kHelperFailed = 32;  ///< exit code of mount(8): the mount failed

/// Tells by argv[0] whether mount(8) called the program as its helper.
[[nodiscard]] bool is_mount_helper(std::string_view program);

/// What mount(8) asks for, as a command line of `inductorfs`.
struct HelperLine {
  std::vector<std::string> words;  ///< "mount", the directory, the options
  std::string mountpoint;
  bool fake = false;  ///< mount -f: do everything but mount
};

/// Translates `SOURCE DIR [-sfnv] [-o OPTIONS] [-t TYPE]`, without argv[0]. kInvalid names the option that is refused.
[[nodiscard]] Result<HelperLine> translate_helper_line(const std::vector<std::string>& arguments);

/// Mounts; returns an exit code of mount(8). Blocks until the mount answers.
[[nodiscard]] int run_mount_helper(int argc, char** argv);

}  // namespace inductorfs::cli
