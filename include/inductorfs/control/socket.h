// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"

/// What both ends of the control socket need.
namespace inductorfs::control {

/// A non-blocking, close-on-exec socket, connected to `path`. kNameTooLong beyond sun_path, kUnavailable when it is a
/// dead one's, kBusy when its owner has too many to answer.
[[nodiscard]] Result<Fd> connect_to(const std::string& path);
/// Listening at `path` from the moment that it is there, replacing what was: a socket that refuses is nobody's.
[[nodiscard]] Result<Fd> listen_at(const std::string& path, int backlog);

/// How the name of a socket ends that does not listen yet.
inline constexpr const char* kUnfinishedSuffix = ".new";

/// Up to a newline, which is not part of the result. kTooLarge, kTimedOut, kUnavailable when the peer ends before.
[[nodiscard]] Result<std::string> receive_line(int fd, size_t limit, Deadline deadline);
[[nodiscard]] Result<void> send_line(int fd, std::string_view line, Deadline deadline);
/// Waits until the peer closes; what it said until then, of which only the begin is kept. kTimedOut.
[[nodiscard]] Result<std::string> await_end(int fd, Deadline deadline);
/// poll(2) for `events` until the deadline; false when it passed.
[[nodiscard]] bool wait_for(int fd, short events, Deadline deadline);

}  // namespace inductorfs::control
