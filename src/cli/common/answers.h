// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/common/locate.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/json_forward.h"

/// Functions that commands use to ask a daemon and to print its answer.
namespace inductorfs::cli {

inline constexpr Milliseconds kQueryPatience{10000};

/// Prints the one line of an error to standard error; returns kExitFailed.
[[nodiscard]] int fail_with(const Error& error);
/// The one form of an error in JSON: {"error": what, "code": "not_found"}.
[[nodiscard]] config::Json error_json(const Error& error);
/// Does the same, and prints error_json() to standard output if the answer was to be `json`. Returns kExitUsage when an
/// option is wrong or names what is not there (kInvalid), and kExitFailed otherwise.
[[nodiscard]] int fail_query(const Error& error, bool json);
/// Does the same for options that cannot work, whatever the code of the error was: it becomes kInvalid.
[[nodiscard]] int fail_options(const Error& error, bool json = false);
/// Prints an answer to standard output; returns kExitDone, or kExitFailed after an error when it cannot be written.
[[nodiscard]] int print(const std::string& text);
[[nodiscard]] std::string pretty(const std::string& json);

[[nodiscard]] std::string absolute(const std::string& path);

/// Sends a request without an effect and returns its result. Blocks for `patience` at most. The error is in the user's
/// terms.
[[nodiscard]] Result<std::string> ask_daemon(const Located& mount, const std::string& request, Milliseconds patience,
                                             const config::Environment& environment);
/// Does the same for the mount at this path.
[[nodiscard]] Result<std::string> ask_daemon_at(const std::string& mountpoint, const std::string& request,
                                                Milliseconds patience, const config::Environment& environment);
/// Asks each of these mounts for its status, for itself: one that does not answer hides no other. Returns the answers,
/// each with its mountpoint, and with `error` where there is none. Blocks for `patience` at most for each, and for
/// some of these together: another user may have many mounts.
[[nodiscard]] config::Json statuses(const std::vector<Located>& mounts, Milliseconds patience,
                                    const config::Environment& environment);
/// Puts an error on the way to a daemon into the user's terms.
[[nodiscard]] Error on_the_way(const std::string& mountpoint, const Error& error);

}  // namespace inductorfs::cli
