// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/temporary_directory.h"

namespace inductorfs::testing {

/// A certificate authority and what it signed, made by the openssl command line in `directory`.
struct Certificates {
  std::string ca_file;
  std::string certificate_file;
  std::string key_file;
};
/// `subject_alternative_name` as openssl takes it: "DNS:redis.example.com", "IP:127.0.0.1". A second call in the same
/// directory is signed by the same authority.
[[nodiscard]] Certificates make_certificates(const std::string& directory, const std::string& label,
                                             const std::string& subject_alternative_name);

/// A TCP port of 127.0.0.1 that nobody listens on now.
[[nodiscard]] uint16_t free_port();

/// A real redis-server in a directory of its own, on a Unix socket (and TLS on a free port when asked for). Stopped, by
/// its process id, when this object goes; it also dies with the test process. Needs external synchronisation.
class RedisServer {
 public:
  struct Options {
    std::string password{};
    bool tls = false;
    /// "DNS:..." or "IP:..." in the server's certificate.
    std::string tls_name = "IP:127.0.0.1";
    bool tls_client_certificates = false;
    /// A directory whose authority signs, if servers have to trust each other; else the server's own.
    std::string tls_authority{};
    /// Further words of the command line: {"--maxmemory", "10mb"}.
    std::vector<std::string> arguments{};
  };
  /// Can this machine run one? Tests that need it skip otherwise.
  [[nodiscard]] static bool available();

  RedisServer() : RedisServer(Options{}) {}
  explicit RedisServer(Options options);
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  [[nodiscard]] std::string socket_path() const { return directory_ / "redis.sock"; }
  [[nodiscard]] std::string url() const;
  [[nodiscard]] std::string tls_url() const { return "rediss://127.0.0.1:" + std::to_string(tls_port_); }
  [[nodiscard]] uint16_t tls_port() const { return tls_port_; }
  [[nodiscard]] bool running() const { return pid_ > 0; }
  [[nodiscard]] const Certificates& certificates() const { return certificates_; }
  [[nodiscard]] const std::string& directory() const { return directory_.path(); }

  /// kill -9; what it held is lost.
  void kill();
  /// Starts it again, empty, on the same socket.
  void start();
  /// SIGSTOP and SIGCONT: the sockets stay open, nobody answers.
  void freeze();
  void thaw();

 private:
  void wait_until_ready();

  Options options_;
  TemporaryDirectory directory_;
  Certificates certificates_;
  uint16_t tls_port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace inductorfs::testing
