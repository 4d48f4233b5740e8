// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <string_view>

namespace inductorfs::supervisor {

/// Whom root's worker is to be, and to whom its store and its log belong; uid 0: whom the supervisor is.
struct WorkerIds {
  uid_t uid = 0;
  gid_t gid = 0;
  std::array<gid_t, 64> groups{};
  size_t group_count = 0;
};

/// Parses "uid:gid:group,group", of which the last part may be empty.
[[nodiscard]] bool parse_user(std::string_view text, WorkerIds& user);

/// In a child: becomes that user, without any right, for good, also for what it starts, and lets go of a terminal, to
/// which it may only write; does nothing for uid 0. False: the child is to end. Allocates nothing.
[[nodiscard]] bool become(const WorkerIds& user);
/// The same for a process that serves the mount: it also moves, for good, into the tree of files that the mount has for
/// such processes (kTreeFd, if there is one), and shares no System V memory with the host.
[[nodiscard]] bool become_server(const WorkerIds& user);

/// At the end of a mount, when nobody lives in its tree any more: takes the store away there, of which this is a file,
/// so that its disk is free soon, and not only when the kernel comes round to the tree. By a child, for which it waits
/// a second at most: a disk may not answer.
void close_tree(const char* file_of_store);

}  // namespace inductorfs::supervisor
