// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/fd.h"

namespace inductorfs::testing {

/// A request as it lies in a slot: header and body.
inline std::string message_of(uint32_t opcode, uint64_t unique, uint64_t node, std::string_view body) {
  fuse_in_header header{};
  header.opcode = opcode;
  header.unique = unique;
  header.nodeid = node;
  header.len = static_cast<uint32_t>(sizeof header + body.size());
  return std::string(reinterpret_cast<const char*>(&header), sizeof header).append(body);
}

/// Plays the kernel's end of /dev/fuse on a socket pair, so that a session is tested message by message, without a
/// mount and without privilege. Needs external synchronisation.
class FakeKernel {
 public:
  struct Answer {
    uint64_t unique = 0;  ///< 0: a notification
    int error = 0;        ///< of a notification: its code
    std::string body;
    template <typename T>
    [[nodiscard]] T as() const {
      T out{};
      std::memcpy(&out, body.data(), std::min(sizeof(out), body.size()));
      return out;
    }
  };

  FakeKernel() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) throw std::runtime_error("socketpair");
    ours_ = Fd(ends[0]);
    theirs_ = Fd(ends[1]);
  }
  /// The descriptor that the session takes for /dev/fuse.
  [[nodiscard]] Fd take_device() { return std::move(theirs_); }
  void hang_up() { ours_.reset(); }
  /// Whose the next requests are.
  void set_user(uint32_t user) { user_ = user; }

  uint64_t send(uint32_t opcode, uint64_t node, std::string_view body) {
    fuse_in_header header{};
    header.opcode = opcode;
    header.unique = next_unique_ += 2;
    header.nodeid = node;
    header.uid = user_;
    header.gid = 34;
    header.pid = 56;
    header.len = static_cast<uint32_t>(sizeof(header) + body.size());
    std::string message(reinterpret_cast<const char*>(&header), sizeof(header));
    message.append(body);
    send_raw(message);
    return header.unique;
  }
  template <typename Body>
  uint64_t send(uint32_t opcode, uint64_t node, const Body& body, std::string_view more) {
    return send(opcode, node, std::string(reinterpret_cast<const char*>(&body), sizeof(body)).append(more));
  }
  void send_raw(std::string_view message) {
    if (::send(ours_.get(), message.data(), message.size(), MSG_NOSIGNAL) < 0) throw std::runtime_error("send");
  }
  /// Empty: nothing came within the time.
  std::optional<Answer> receive(int milliseconds = 10'000) {
    pollfd waited{ours_.get(), POLLIN, 0};
    if (poll(&waited, 1, milliseconds) != 1) return std::nullopt;
    std::vector<char> bytes(2U << 20);
    const ssize_t got = ::recv(ours_.get(), bytes.data(), bytes.size(), 0);
    fuse_out_header header{};
    if (got < static_cast<ssize_t>(sizeof(header))) return std::nullopt;
    std::memcpy(&header, bytes.data(), sizeof(header));
    return Answer{header.unique, header.error,
                  std::string(bytes.data() + sizeof(header), static_cast<size_t>(got) - sizeof(header))};
  }
  Answer ask(uint32_t opcode, uint64_t node, std::string_view body) {
    send(opcode, node, body);
    return receive().value_or(Answer{0, -ETIMEDOUT, ""});
  }
  fuse_init_out init(uint32_t flags) {
    fuse_init_in body{};
    body.major = FUSE_KERNEL_VERSION;
    body.minor = FUSE_KERNEL_MINOR_VERSION;
    body.max_readahead = 128U << 10;
    body.flags = flags;
    send(FUSE_INIT, 0, body, "");
    return receive().value_or(Answer{}).as<fuse_init_out>();
  }

 private:
  Fd ours_;
  Fd theirs_;
  uint64_t next_unique_ = 0;
  uint32_t user_ = 12;
};

}  // namespace inductorfs::testing
