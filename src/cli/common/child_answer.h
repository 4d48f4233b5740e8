// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "inductorfs/base/clock.h"

namespace inductorfs::cli {

/// Gives this process, a child, the rights of this user, if it has those of root. Returns whether it has them now.
[[nodiscard]] bool become_user(uid_t user);

/// Says what keeps this user from writing there ("is on a read-only file system"); empty when nothing does. Looks at
/// the nearest directory that is there.
[[nodiscard]] std::string wrong_with_writing(std::string path);

/// Asks in a child process, because the file system that is asked may not answer, and as this user, because a directory
/// on the way may be a link of that user's. Only root becomes another user. Returns nothing when no whole answer came
/// in time, or it has more than a mebibyte. Blocks until the deadline and a moment more.
[[nodiscard]] std::optional<std::string> answer_of_child(uid_t user, Deadline deadline,
                                                         const std::function<std::optional<std::string>()>& ask);

}  // namespace inductorfs::cli
