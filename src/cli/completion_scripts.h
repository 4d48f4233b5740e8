// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace inductorfs::cli {

/// The scripts of `completions/`, which the package installs, too.
extern const char* const kBashCompletions;
extern const char* const kZshCompletions;

}  // namespace inductorfs::cli
