// SPDX-License-Identifier: Apache-2.0
#include "support/fault_proxy.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

namespace inductorfs::testing {
namespace {

constexpr int kStepMilliseconds = 10;
constexpr int kDripMilliseconds = 20;

/// The length of the reply at the start of `bytes`; 0 while it is not whole.
size_t reply_length(std::string_view bytes) {
  const size_t line = bytes.find("\r\n");
  if (line == std::string_view::npos) return 0;
  const size_t head = line + 2;
  const long number = std::strtol(std::string(bytes.substr(1, line - 1)).c_str(), nullptr, 10);
  if (bytes[0] == '$' && number >= 0) {
    const size_t whole = head + static_cast<size_t>(number) + 2;
    return bytes.size() < whole ? 0 : whole;
  }
  size_t length = head;
  for (long i = 0; bytes[0] == '*' && i < number; ++i) {
    const size_t item = length < bytes.size() ? reply_length(bytes.substr(length)) : 0;
    if (item == 0) return 0;
    length += item;
  }
  return length;
}

}  // namespace

/// A connection's own to the real server; opened when it is first needed. Confined to the connection's thread.
struct FaultProxy::Upstream {
  Fd socket;
  std::string buffer;

  bool connect(const std::string& path) {
    if (socket) return true;
    socket = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    return ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  bool send(const std::vector<std::string>& command) const {
    std::string text = "*" + std::to_string(command.size()) + "\r\n";
    for (const auto& word : command) text += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
    std::string_view left = text;
    while (!left.empty()) {
      const ssize_t sent = ::send(socket.get(), left.data(), left.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      left.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  /// One whole reply; "" while there is none yet; nothing when the server has gone.
  std::optional<std::string> receive() {
    if (const size_t length = buffer.empty() ? 0 : reply_length(buffer); length > 0) {
      std::string reply = buffer.substr(0, length);
      buffer.erase(0, length);
      return reply;
    }
    pollfd entry{socket.get(), POLLIN, 0};
    if (::poll(&entry, 1, kStepMilliseconds) <= 0) return "";
    std::array<char, 65536> bytes;
    const ssize_t got = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (got <= 0) return std::nullopt;
    buffer.append(bytes.data(), static_cast<size_t>(got));
    return "";
  }
};

FaultProxy::FaultProxy(std::string socket_path) : socket_path_(std::move(socket_path)), state_(State{}) {
  server_ = std::make_unique<ScriptedServer>([this](ScriptedClient& client) { serve(client); });
}

FaultProxy::~FaultProxy() {
  stopping_ = true;
  server_.reset();
}

void FaultProxy::set(Mode mode, std::string bytes) {
  const Mode before = state_.with([&](State& state) {
    state.bytes = std::move(bytes);
    ++state.version;
    return std::exchange(state.mode, mode);
  });
  commands_ = 0;
  if ((mode == Mode::kRefused) != (before == Mode::kRefused)) server_->refuse(mode == Mode::kRefused);
}

FaultProxy::State FaultProxy::state() const {
  return state_.with([](const State& state) { return state; });
}

bool FaultProxy::changed(uint64_t version) const { return stopping_ || state().version != version; }

void FaultProxy::serve(ScriptedClient& client) {
  Upstream upstream;
  const uint64_t born = state().version;
  while (true) {
    if (!client.wait_command([&] {
          const State now = state();
          return now.version != born && (now.mode == Mode::kRefused || now.mode == Mode::kTurnAway);
        })) {
      return client.reset();
    }
    const auto command = client.command();
    if (command.empty()) return;
    ++commands_;
    if (!answer(client, upstream, command)) return;
  }
}

bool FaultProxy::answer(ScriptedClient& client, Upstream& upstream, const std::vector<std::string>& command) {
  bool asked = false;
  while (!stopping_) {
    const State now = state();
    if (now.mode == Mode::kRefused) {
      client.reset();
      return false;
    }
    if (now.mode == Mode::kTurnAway || now.mode == Mode::kAnswer) {
      client.send(now.bytes);
      return now.mode == Mode::kAnswer && !asked;  // a reply that is still to come would confuse what follows
    }
    if (now.mode == Mode::kSilent) {
      idle_until_change(client, now.version);
      return false;
    }
    if (!asked && (!upstream.connect(socket_path_) || !upstream.send(command))) return false;
    asked = true;
    const auto reply = upstream.receive();
    if (!reply) return false;
    if (!reply->empty()) return relay(client, now, *reply);
  }
  return false;
}

bool FaultProxy::relay(ScriptedClient& client, const State& now, const std::string& reply) {
  const bool midway = now.mode == Mode::kHangMidway || now.mode == Mode::kResetMidway;
  if (midway && reply.size() > kLongReply) {
    client.send(std::string_view(reply).substr(0, reply.size() / 2));
    if (now.mode == Mode::kHangMidway) idle_until_change(client, now.version);
    client.reset();
    return false;
  }
  if (now.mode == Mode::kBytewise) {
    client.send_bytewise(reply);
  } else if (now.mode == Mode::kDrip) {
    for (size_t i = 0; i < reply.size(); ++i) {
      if (!client.send(std::string_view(reply).substr(i, 1)) || changed(now.version)) return false;
      (void)::poll(nullptr, 0, kDripMilliseconds);
    }
  } else {
    return client.send(reply);
  }
  return true;
}

void FaultProxy::idle_until_change(ScriptedClient& client, uint64_t version) {
  client.wait_end([&] { return changed(version); });
}

}  // namespace inductorfs::testing
