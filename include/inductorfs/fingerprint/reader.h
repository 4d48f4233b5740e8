// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"

/// Reads files that another user chose, in a child process. A user's environment may lie on a file system that does not
/// answer; a thread that waits for it in the kernel could not be ended, and neither could that thread's process.
namespace inductorfs::fingerprint {

struct ReaderOptions {
  /// This program, or another one that knows the same verbs. If it is empty there is no child: the caller reads by
  /// itself, which suits a command that a person can end.
  std::string program;
  Milliseconds deadline{20'000};  ///< the child is killed after it
  /// Asked several times a second while the child runs; true kills the child.
  std::function<bool()> cancelled;
};

/// Runs `program verb` as a child, which gets `request` by reader_request(), and returns what the child printed. A
/// `descriptor` that is not -1 becomes kReaderDescriptor in the child. kTimedOut when the child was killed at the
/// deadline, kUnavailable when it was cancelled or failed. Blocks until then, plus two seconds for a child that does
/// not die.
[[nodiscard]] Result<std::string> ask_reader(const ReaderOptions& options, const std::string& verb,
                                             const std::string& request, int descriptor = -1);

/// Returns, in the child, the request that ask_reader() was given. Children of the child do not see the request.
[[nodiscard]] Result<std::string> reader_request();
/// Prints, in the child, the answer, or why there is none, and returns the exit code.
[[nodiscard]] int end_reader(const char* verb, const Result<std::string>& answer);

inline constexpr int kReaderDescriptor = 4;

}  // namespace inductorfs::fingerprint
