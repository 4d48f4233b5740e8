// SPDX-License-Identifier: Apache-2.0
#include "support/scripted_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <stdexcept>

namespace inductorfs::testing {
namespace {

constexpr int kStopCheckMilliseconds = 20;
constexpr int kBacklog = 64;

}  // namespace

bool ScriptedClient::wait_readable() {
  while (!stopping_ && socket_) {
    pollfd entry{socket_.get(), POLLIN, 0};
    if (::poll(&entry, 1, kStopCheckMilliseconds) > 0) return true;
  }
  return false;
}

bool ScriptedClient::fill() {
  if (!wait_readable()) return false;
  std::array<char, 65536> bytes;
  const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
  if (got <= 0) return false;
  buffer_.append(bytes.data(), static_cast<size_t>(got));
  return true;
}

std::string ScriptedClient::line() {
  size_t end = 0;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (!fill()) return "";
  }
  std::string text = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return text;
}

std::vector<std::string> ScriptedClient::command() {
  const std::string head = line();
  if (head.empty() || head[0] != '*') return {};
  std::vector<std::string> arguments;
  for (int left = std::atoi(head.c_str() + 1); left > 0; --left) {
    const size_t size = static_cast<size_t>(std::atoi(line().c_str() + 1));
    while (buffer_.size() < size + 2) {
      if (!fill()) return {};
    }
    arguments.push_back(buffer_.substr(0, size));
    buffer_.erase(0, size + 2);
  }
  return arguments;
}

bool ScriptedClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!socket_ || stopping_) return false;
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void ScriptedClient::send_bytewise(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) send(bytes.substr(i, 1));
}

void ScriptedClient::drip(char byte, int pause_milliseconds) {
  while (send({&byte, 1})) (void)::poll(nullptr, 0, pause_milliseconds);
}

void ScriptedClient::pause(int milliseconds) { (void)::poll(nullptr, 0, milliseconds); }

void ScriptedClient::reset() {
  const linger now{1, 0};
  (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);  // else a plain FIN, which is a fault too
  socket_.reset();
}

void ScriptedClient::hang() {
  while (fill()) {
  }
}

bool ScriptedClient::wait_command(const std::function<bool()>& ends) {
  while (buffer_.empty() && !stopping_ && socket_) {
    if (ends()) return false;
    pollfd entry{socket_.get(), POLLIN, 0};
    if (::poll(&entry, 1, kStopCheckMilliseconds) > 0) return true;
  }
  return true;
}

void ScriptedClient::wait_end(const std::function<bool()>& ends) {
  while (!stopping_ && socket_ && !ends()) {
    pollfd entry{socket_.get(), POLLIN, 0};
    if (::poll(&entry, 1, kStopCheckMilliseconds) > 0 && !fill()) return;
  }
}

ScriptedServer::ScriptedServer(Script script) : script_(std::move(script)) {
  listener_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  // For refuse(): also the connections, which take it over, must not keep the port.
  (void)::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener_.get(), generic, size) != 0 || ::listen(listener_.get(), kBacklog) != 0 ||
      ::getsockname(listener_.get(), generic, &size) != 0) {
    throw std::runtime_error("ScriptedServer: no listening socket");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::jthread([this] { accept_all(); });
}

ScriptedServer::~ScriptedServer() {
  stopping_ = true;
  acceptor_.join();
  clients_.clear();
}

void ScriptedServer::refuse(bool refused) {
  if (refused) {
    if (::shutdown(listener_.get(), SHUT_RDWR) != 0) throw std::runtime_error("ScriptedServer: shutdown");
    return;
  }
  // With the end of its listening it has lost the port that the kernel chose.
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port_);
  if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener_.get(), kBacklog) != 0) {
    throw std::runtime_error("ScriptedServer: cannot listen again");
  }
}

void ScriptedServer::accept_all() {
  while (!stopping_) {
    pollfd entry{listener_.get(), POLLIN, 0};
    if (::poll(&entry, 1, kStopCheckMilliseconds) <= 0) continue;
    if ((entry.revents & POLLIN) == 0) {  // refuse()
      (void)::poll(nullptr, 0, kStopCheckMilliseconds);
      continue;
    }
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) continue;
    const int on = 1;
    (void)::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // only makes bytewise less bytewise
    ++accepted_;
    clients_.emplace_back([this, taken = socket.release()] {
      ScriptedClient client(Fd(taken), stopping_);
      script_(client);
    });
  }
}

ScriptedServer::Script always_answer(std::string bytes) {
  return [bytes = std::move(bytes)](ScriptedClient& client) {
    while (!client.command().empty()) client.send(bytes);
  };
}

}  // namespace inductorfs::testing
