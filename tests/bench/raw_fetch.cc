// SPDX-License-Identifier: Apache-2.0
// What no cache over this link goes below: all values in one pipeline on one connection, written to one file.
//
//   raw_fetch PORT FILE [--one-by-one] [--tls]     of a server on loopback; the keys are lines of hexadecimal digits of
//                                                  the standard input
//
// Prints {"seconds", "bytes"}. The connection is made before the clock starts; the file is not synced.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

namespace {

constexpr size_t kPiece = size_t{256} << 10;

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

/// A connection that sends and receives bytes, by TLS if asked.
class Server {
 public:
  Server(const char* port, bool tls) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) die("raw_fetch: connect");
    const int one = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (!tls) return;
    tls_ = SSL_new(SSL_CTX_new(TLS_client_method()));
    SSL_set_fd(tls_, socket_);
    if (SSL_connect(tls_) != 1) die("raw_fetch: TLS");
  }
  void send(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = std::min(bytes.size() - at, kPiece);
      const auto sent = tls_ != nullptr ? SSL_write(tls_, bytes.data() + at, static_cast<int>(size))
                                        : ::send(socket_, bytes.data() + at, size, 0);
      if (sent <= 0) die("raw_fetch: send");
      at += static_cast<size_t>(sent);
    }
  }
  /// Adds what has come to the buffer.
  void receive(std::string& buffer) {
    const size_t had = buffer.size();
    buffer.resize(had + kPiece);
    const auto got = tls_ != nullptr ? SSL_read(tls_, buffer.data() + had, static_cast<int>(kPiece))
                                     : ::recv(socket_, buffer.data() + had, kPiece, 0);
    if (got <= 0) die("raw_fetch: receive");
    buffer.resize(had + static_cast<size_t>(got));
  }

 private:
  int socket_;
  SSL* tls_ = nullptr;
};

/// Takes replies ("$<size>\r\n<bytes>\r\n") apart.
class Values {
 public:
  explicit Values(Server& server) : server_(server) {}

  /// Writes the next value to the file; returns its size.
  size_t take(int file) {
    size_t line = 0;
    while ((line = buffer_.find("\r\n", at_)) == std::string::npos) more();
    if (buffer_[at_] != '$' || buffer_[at_ + 1] == '-') {
      std::fprintf(stderr, "raw_fetch: no value: %s\n", buffer_.substr(at_, line - at_).c_str());
      std::exit(1);
    }
    const size_t size = std::stoul(buffer_.substr(at_ + 1, line - at_ - 1));
    const size_t begin = line + 2 - at_;
    while (buffer_.size() - at_ < begin + size + 2) more();
    if (::write(file, buffer_.data() + at_ + begin, size) != static_cast<ssize_t>(size)) die("raw_fetch: write");
    at_ += begin + size + 2;
    return size;
  }

 private:
  void more() {
    buffer_.erase(0, at_);
    at_ = 0;
    server_.receive(buffer_);
  }

  Server& server_;
  std::string buffer_;
  size_t at_ = 0;
};

std::vector<std::string> read_requests() {
  std::vector<std::string> requests;
  for (std::string line; std::getline(std::cin, line);) {
    std::string key;
    for (size_t i = 0; i + 1 < line.size(); i += 2) key += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    requests.push_back("*2\r\n$3\r\nGET\r\n$" + std::to_string(key.size()) + "\r\n" + key + "\r\n");
  }
  return requests;
}

}  // namespace

int main(int count, char** words) {
  bool one_by_one = false;
  bool tls = false;
  for (int i = 3; i < count; ++i) {
    one_by_one |= std::strcmp(words[i], "--one-by-one") == 0;
    tls |= std::strcmp(words[i], "--tls") == 0;
  }
  if (count < 3) {
    std::fprintf(stderr, "usage: raw_fetch PORT FILE [--one-by-one] [--tls]\n");
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> requests = read_requests();
  const int file = ::open(words[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) die(words[2]);
  Server server(words[1], tls);
  Values values(server);
  const auto begin = std::chrono::steady_clock::now();
  size_t bytes = 0;
  if (one_by_one) {
    for (const std::string& request : requests) {
      server.send(request);
      bytes += values.take(file);
    }
  } else {
    // The server keeps what is not yet received, so all requests may go first.
    std::string all;
    for (const std::string& request : requests) all += request;
    server.send(all);
    for (size_t i = 0; i < requests.size(); ++i) bytes += values.take(file);
  }
  ::close(file);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("{\"seconds\": %.6f, \"bytes\": %zu}\n", seconds.count(), bytes);
  return 0;
}
