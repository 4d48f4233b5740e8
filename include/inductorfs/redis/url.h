// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/result.h"
#include "inductorfs/base/trusted_file.h"

namespace inductorfs::redis {

/// Where a server listens: a name or an address without brackets, and its port. Immutable value.
struct HostPort {
  std::string host;
  uint16_t port = 0;
  auto operator<=>(const HostPort&) const = default;
  /// Returns "host:port", with brackets around an address of IPv6.
  [[nodiscard]] std::string to_string() const;
};

/// The Sentinels, which know which server is the master. Safe for concurrent use.
struct Sentinels {
  std::vector<HostPort> addresses;
  std::string master;
  /// The index of the Sentinel that answered last, so that a dead one is asked once and not for each connection.
  std::atomic<size_t> first{0};
  Guarded<HostPort> named;  ///< the master that was named last; without a host: none was
  /// How often another one was named than before. What was acknowledged before that may be lost.
  std::atomic<uint64_t> changes{0};
};

/// Returns a connected socket, non-blocking and close-on-exec. kBusy when `cancelled` says true.
using SocketSource = std::function<Result<Fd>(Deadline deadline, const std::function<bool()>& cancelled)>;

/// The address of a server, and what is needed to greet it. Immutable value.
///   redis://[user[:password]@]host[:port][/db]      rediss:// the same over TLS
///   unix://[user[:password]@]/path/to/socket[?db=N]
///   redis+sentinel://[user[:password]@]host[:port],host[:port].../master[/db]      rediss+sentinel:// the same over
///   TLS
///   redis+cluster://[user[:password]@]host[:port],host[:port]...      rediss+cluster:// the same over TLS
/// A password may stand in a file instead (`password_file`), so that it is on no command line.
struct Endpoint {
  bool tls = false;
  std::string host;  ///< empty for a Unix socket
  uint16_t port = 6379;
  std::string socket_path;  ///< empty for TCP
  /// Connects to it in place of this process, whose files may not have it; empty: this process does.
  SocketSource socket_source{};
  /// If set, the Sentinels tell `host` and `port`, anew for each connection.
  std::shared_ptr<Sentinels> sentinels{};
  /// If not empty, these are some nodes of a Redis Cluster, each of which knows all others; `host` is empty then.
  std::vector<HostPort> cluster{};
  int database = 0;
  std::string user;
  std::string password;
  std::string client_name;  ///< CLIENT SETNAME; empty: none. A server may refuse the name; that is no error
  std::string ca_file;      ///< TLS; empty: the system's certificates
  std::string certificate_file;
  std::string key_file;
  FileSource files{};  ///< of these three; empty: they are read from the disk
  /// Gives the password anew for each connection, in place of `password`; empty: there is none but that.
  std::function<Result<std::string>()> secret{};
  bool url_has_credentials = false;  ///< the URL itself names a user or a password

  /// Returns the URL without secrets, for logs and status.
  [[nodiscard]] std::string to_string() const;
};

/// Returns the password for a new connection; empty: none. Errors are those of `secret`.
[[nodiscard]] inline Result<std::string> password_of(const Endpoint& endpoint) {
  return endpoint.secret ? endpoint.secret() : endpoint.password;
}

/// Is the error with which a connection fails because of a file that somebody else reads (`files`, `secret`). Never
/// kInvalid, which says that a command is wrong: the next connection may have another file.
[[nodiscard]] inline Error of_given_file(const Error& error) {
  return {error.code() == ErrorCode::kInvalid ? ErrorCode::kNotPermitted : error.code(), error.what()};
}

/// Connects to a Unix socket: non-blocking, close-on-exec. kUnavailable when nobody listens there, or too many wait.
[[nodiscard]] Result<Fd> connect_unix(const std::string& path, Deadline deadline);

/// Parses a URL. kInvalid, with the reason and an example, when the text is no such URL.
[[nodiscard]] Result<Endpoint> parse_url(std::string_view url);

}  // namespace inductorfs::redis
