// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/supervisor/protocol.h"

#include <sys/socket.h>

#include <cerrno>
#include <span>

#include "inductorfs/base/message.h"

namespace inductorfs::supervisor {
namespace {

struct Message {
  uint32_t magic = 0;
  uint32_t word = 0;
};
constexpr uint32_t kMagic = 0x69667376;  // "ifsv"

}  // namespace

bool send_word(int link, Word word, int descriptor) noexcept {
  const Message message{kMagic, static_cast<uint32_t>(word)};
  return send_message(link, {reinterpret_cast<const char*>(&message), sizeof message}, {&descriptor, 1});
}

Receipt receive_word(int link, Word& word, std::span<Fd> descriptors) noexcept {
  Message message;
  const ReceivedMessage received =
      receive_message(link, {reinterpret_cast<char*>(&message), sizeof message}, descriptors, MSG_DONTWAIT);
  if (received.is_end) return Receipt::kEnded;
  if (received.size < 0) return errno == EAGAIN || errno == EINTR ? Receipt::kNothing : Receipt::kEnded;
  if (received.size != static_cast<ssize_t>(sizeof message) || message.magic != kMagic) return Receipt::kNothing;
  word = static_cast<Word>(message.word);
  return Receipt::kWord;
}

bool send_guest(int channel, const Guest& guest, int connection) noexcept {
  return send_message(channel, {reinterpret_cast<const char*>(&guest), sizeof guest}, {&connection, 1}, MSG_DONTWAIT);
}

Receipt receive_guest(int channel, Guest& guest, Fd& connection) noexcept {
  const ReceivedMessage received =
      receive_message(channel, {reinterpret_cast<char*>(&guest), sizeof guest}, {&connection, 1}, MSG_DONTWAIT);
  if (received.is_end) return Receipt::kEnded;
  if (received.size < 0) return errno == EAGAIN || errno == EINTR ? Receipt::kNothing : Receipt::kEnded;
  const bool is_whole = received.size == static_cast<ssize_t>(sizeof guest) && guest.group_count <= Guest::kMostGroups;
  if (!is_whole) connection.reset();
  return Receipt::kWord;
}

}  // namespace inductorfs::supervisor
