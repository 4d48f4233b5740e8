// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The program `inductorfs`: its commands, each from its words to its exit code.
namespace inductorfs::cli {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;  ///< one line on standard error says what, where and the remedy
inline constexpr int kExitUsage = 2;   ///< a command line, a variable or a configuration file is wrong
/// `sync`: all that was written stays on this host. `warm`, `export`, `import`: something was left out. The output says
/// why.
inline constexpr int kExitKept = 3;

/// Runs one `inductorfs` command to its end and returns the exit code. `mount` returns in the calling process when the
/// mount answers; the daemon itself leaves through _exit. It may overwrite a password in `argv`, so that ps does not
/// show it. Must be called once, while the process has one thread.
[[nodiscard]] int run(int argc, char** argv);

}  // namespace inductorfs::cli
