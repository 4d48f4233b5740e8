// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/supervisor/protocol.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace inductorfs::supervisor {
namespace {

struct Message {
  uint32_t magic = 0;
  uint32_t word = 0;
};
constexpr uint32_t kMagic = 0x69667376;  // "ifsv"

union Control {
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
  cmsghdr align;
};

}  // namespace

bool send_word(int link, Word word, int descriptor) noexcept {
  Message message{kMagic, static_cast<uint32_t>(word)};
  iovec part{&message, sizeof message};
  Control control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = control.bytes.size();
    cmsghdr* const first = CMSG_FIRSTHDR(&header);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(first), &descriptor, sizeof descriptor);
  }
  while (true) {
    const ssize_t sent = ::sendmsg(link, &header, MSG_NOSIGNAL);
    if (sent >= 0) return sent == static_cast<ssize_t>(sizeof message);
    if (errno != EINTR) return false;
  }
}

Receipt receive_word(int link, Word& word, Fd& descriptor) noexcept {
  Message message;
  iovec part{&message, sizeof message};
  Control control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
  const ssize_t got = ::recvmsg(link, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got == 0) return Receipt::kEnded;
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Receipt::kNothing : Receipt::kEnded;
  descriptor.reset();
  const cmsghdr* const first = CMSG_FIRSTHDR(&header);
  if (first != nullptr && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_RIGHTS) {
    int received = -1;
    std::memcpy(&received, CMSG_DATA(first), sizeof received);
    descriptor.reset(received);
  }
  if (got != static_cast<ssize_t>(sizeof message) || message.magic != kMagic) return Receipt::kNothing;
  word = static_cast<Word>(message.word);
  return Receipt::kWord;
}

}  // namespace inductorfs::supervisor
