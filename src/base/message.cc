// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/message.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace inductorfs {
namespace {

union Control {
  std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> bytes;
  cmsghdr align;
};

}  // namespace

bool send_message(int socket, std::string_view bytes, std::span<const int> descriptors, int flags) noexcept {
  std::array<int, kMostDescriptors> sent{};
  size_t count = 0;
  for (const int one : descriptors.first(std::min(descriptors.size(), kMostDescriptors))) {
    if (one >= 0) sent[count++] = one;
  }
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  Control control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (count > 0) {
    const size_t size = count * sizeof(int);
    header.msg_control = control.bytes.data();
    header.msg_controllen = CMSG_SPACE(size);
    cmsghdr* const first = CMSG_FIRSTHDR(&header);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(first), sent.data(), size);
  }
  while (true) {
    const ssize_t done = ::sendmsg(socket, &header, flags | MSG_NOSIGNAL);
    if (done >= 0) return static_cast<size_t>(done) == bytes.size();
    if (errno != EINTR) return false;
  }
}

ReceivedMessage receive_message(int socket, std::span<char> room, std::span<Fd> descriptors, int flags) noexcept {
  for (Fd& one : descriptors) one.reset();
  iovec part{room.data(), room.size()};
  Control control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
  const ssize_t got = ::recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
  if (got < 0) return {};
  pollfd item{socket, 0, 0};
  const bool has_gone = got == 0 && ::poll(&item, 1, 0) > 0;  // POLLHUP, which is always asked for
  bool has_room = true;
  for (cmsghdr* one = CMSG_FIRSTHDR(&header); one != nullptr; one = CMSG_NXTHDR(&header, one)) {
    if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) continue;
    std::array<int, kMostDescriptors> received{};
    const size_t count = std::min<size_t>((one->cmsg_len - CMSG_LEN(0)) / sizeof(int), received.size());
    std::memcpy(received.data(), CMSG_DATA(one), count * sizeof(int));
    for (size_t i = 0; i < count; ++i) {
      Fd fresh(received[i]);
      if (i < descriptors.size()) descriptors[i] = std::move(fresh);
      has_room = has_room && i < descriptors.size();
    }
  }
  return {got, has_gone, has_room && (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0};
}

}  // namespace inductorfs
