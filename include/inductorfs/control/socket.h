// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"

/// The parts that both ends of the control socket use.
namespace inductorfs::control {

/// Connects a non-blocking, close-on-exec socket to `path`, or to guests_path() where that is for others. kNameTooLong
/// when the path is longer than sun_path, kUnavailable when the process behind the socket has died, kBusy when it has
/// too many connections to answer.
[[nodiscard]] Result<Fd> connect_to(const std::string& path);
/// Has sendmsg(2) refuse descriptors to those who connect to this listening socket, also who is not accepted yet.
/// False: the kernel does not know of that (before Linux 6.16).
bool refuse_descriptors(int listener);
/// Listens at `path`, and replaces what was there. The socket listens before it has its name, so a socket that refuses
/// connections belongs to nobody. `mode` says who may connect.
[[nodiscard]] Result<Fd> listen_at(const std::string& path, int backlog, mode_t mode = 0600);

/// The suffix of a socket's name until it listens.
inline constexpr const char* kTemporarySuffix = ".new";

/// Receives up to a newline, which is not part of the result. kTooLarge, kTimedOut; kUnavailable when the peer closes
/// before the newline.
[[nodiscard]] Result<std::string> receive_line(int fd, size_t limit, Deadline deadline);
[[nodiscard]] Result<void> send_line(int fd, std::string_view line, Deadline deadline);
/// Waits until the peer closes, and returns the beginning of what it sent until then. kTimedOut.
/// After each `silence` it calls `on_silence`, and gives up (kTimedOut) when that returns false.
[[nodiscard]] Result<std::string> await_end(int fd, Deadline deadline, Milliseconds silence,
                                            const std::function<bool()>& on_silence);
/// Returns the process that listens, or listened, at the other end of a connection that this process has made; 0 when
/// the kernel does not tell, and for a process of another PID namespace.
[[nodiscard]] pid_t peer_of(int fd);
/// Waits with poll(2) for `events`; returns false when the deadline has passed.
[[nodiscard]] bool wait_for(int fd, short events, Deadline deadline);

}  // namespace inductorfs::control
