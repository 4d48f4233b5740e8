// SPDX-License-Identifier: Apache-2.0
#include "answer.h"

#include <linux/fuse.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "inductorfs/supervisor/protocol.h"

namespace inductorfs::supervisor {
namespace {

constexpr uint32_t kBlock = 4096;
constexpr uint32_t kNameLimit = 255;

/// Writes header and body; an error has no body.
template <typename Body>
std::span<const char> reply(uint64_t unique, const Body& body, std::array<char, kAnswerLimit>& room) {
  static_assert(sizeof(fuse_out_header) + sizeof(Body) <= kAnswerLimit);
  fuse_out_header header{};
  header.len = sizeof header + sizeof body;
  header.unique = unique;
  std::memcpy(room.data(), &header, sizeof header);
  std::memcpy(room.data() + sizeof header, &body, sizeof body);
  return {room.data(), header.len};
}

std::span<const char> reply(uint64_t unique, int error, std::array<char, kAnswerLimit>& room) {
  fuse_out_header header{};
  header.len = sizeof header;
  header.error = -error;
  header.unique = unique;
  std::memcpy(room.data(), &header, sizeof header);
  return {room.data(), header.len};
}

fuse_attr_out attributes(const Root& root) {
  fuse_attr_out out{};  // valid for no time: the next worker knows better
  out.attr.ino = FUSE_ROOT_ID;
  out.attr.mode = S_IFDIR | (root.mode & 07777U);
  out.attr.nlink = 2;
  out.attr.uid = root.uid;
  out.attr.gid = root.gid;
  out.attr.blksize = kBlock;
  return out;
}

fuse_statfs_out statistics() {
  fuse_statfs_out out{};
  out.st.bsize = kBlock;
  out.st.frsize = kBlock;
  out.st.namelen = kNameLimit;
  return out;
}

/// What snprintf(3) has written there; `size` is what it has returned.
std::span<const char> written(const std::array<char, kAnswerLimit>& room, int size) {
  return {room.data(), size < 0 ? 0 : std::min<size_t>(static_cast<size_t>(size), room.size() - 1)};
}

}  // namespace

std::span<const char> answer(std::span<const char> request, const Root& root,
                             std::array<char, kAnswerLimit>& room) noexcept {
  fuse_in_header header{};
  if (request.size() < sizeof header) return {};
  std::memcpy(&header, request.data(), sizeof header);
  switch (header.opcode) {
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
      return {};
    case FUSE_LOOKUP:
      return reply(header.unique, ENOENT, room);
    case FUSE_GETATTR:
      if (header.nodeid == FUSE_ROOT_ID) return reply(header.unique, attributes(root), room);
      return reply(header.unique, EIO, room);
    case FUSE_STATFS:
      return reply(header.unique, statistics(), room);
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_DESTROY:
      return reply(header.unique, 0, room);
    // The kernel remembers this answer for the whole mount; it is what a worker says, too.
    case FUSE_OPEN:
    case FUSE_OPENDIR:
    case FUSE_FLUSH:
      return reply(header.unique, ENOSYS, room);
    default:
      return reply(header.unique, EIO, room);
  }
}

std::span<const char> no_worker_line(int ended, Time seconds, std::array<char, kAnswerLimit>& room) noexcept {
  const char* const why = ended == kExitHost ? "this host's disk is out of order" : "it crashes";
  const int size = std::snprintf(
      room.data(), room.size(),
      "{\"ok\":false,\"no_worker\":true,\"code\":\"unavailable\",\"error\":\"no program can serve this mount now, "
      "names are absent in it and files give EIO: %s (the last one ended with %s %d): another one is tried in %d s; "
      "see mount.failed in its log\"}\n",
      why, ended < 0 ? "signal" : "code", ended < 0 ? -ended : ended, static_cast<int>(seconds));
  return written(room, size);
}

std::span<const char> held_line(pid_t worker, std::array<char, kAnswerLimit>& room) noexcept {
  const int size = std::snprintf(
      room.data(), room.size(),
      "{\"ok\":false,\"no_worker\":true,\"held\":%d,\"code\":\"unavailable\",\"error\":\"nobody serves this mount now, "
      "and jobs wait in it: its worker hung and was killed, and the kernel keeps it (pid %d) in a wait for the disk of "
      "--store: let that disk answer (dmesg may say why it does not), and another worker goes on; or take the mount "
      "away with inductorfs unmount\"}\n",
      worker, worker);
  return written(room, size);
}

}  // namespace inductorfs::supervisor
