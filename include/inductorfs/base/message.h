// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <span>
#include <string_view>

#include "inductorfs/base/fd.h"

/// Messages with descriptors on Unix sockets (unix(7), SCM_RIGHTS). Nothing here allocates or logs.
namespace inductorfs {

/// The most descriptors that one message takes along (SCM_MAX_FD, include/net/scm.h).
inline constexpr size_t kMostDescriptors = 253;

/// Sends one message; those of `descriptors` that are -1 do not go along. `flags` are those of sendmsg(2) beside
/// MSG_NOSIGNAL. Returns false, with errno, when it was not sent whole.
[[nodiscard]] bool send_message(int socket, std::string_view bytes, std::span<const int> descriptors,
                                int flags = 0) noexcept;

struct ReceivedMessage {
  ssize_t size = -1;    ///< -1: nothing has come, and errno says why
  bool is_end = false;  ///< the other end has gone, which an empty message does not say
  bool whole = false;   ///< false: there was no room for all of it, or for all its descriptors
};
/// Receives one message into `room`, and its descriptors, close-on-exec. What was in `descriptors` is closed.
[[nodiscard]] ReceivedMessage receive_message(int socket, std::span<char> room, std::span<Fd> descriptors,
                                              int flags = 0) noexcept;

}  // namespace inductorfs
