// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"

namespace inductorfs::redis {

/// The Sentinels, which know which server is the master. Safe for concurrent use.
struct Sentinels {
  struct Address {
    std::string host;
    uint16_t port = 26379;
  };
  std::vector<Address> addresses;
  std::string master;
  /// The index of the Sentinel that answered last, so that a dead one is asked once and not for each connection.
  std::atomic<size_t> first{0};
};

/// The address of a server, and what is needed to greet it. Immutable value.
///   redis://[user[:password]@]host[:port][/db]      rediss:// the same over TLS
///   unix://[user[:password]@]/path/to/socket[?db=N]
///   redis+sentinel://[user[:password]@]host[:port],host[:port].../master[/db]      rediss+sentinel:// the same over
///   TLS
/// A password may stand in a file instead (`password_file`), so that it is on no command line.
struct Endpoint {
  bool tls = false;
  std::string host;  ///< empty for a Unix socket
  uint16_t port = 6379;
  std::string socket_path;  ///< empty for TCP
  /// If set, the Sentinels tell `host` and `port`, anew for each connection.
  std::shared_ptr<Sentinels> sentinels{};
  int database = 0;
  std::string user;
  std::string password;
  std::string client_name;  ///< CLIENT SETNAME; empty: none. A server may refuse the name; that is no error
  std::string ca_file;      ///< TLS; empty: the system's certificates
  std::string certificate_file;
  std::string key_file;
  bool url_has_credentials = false;  ///< the URL itself names a user or a password

  /// Returns the URL without secrets, for logs and status.
  [[nodiscard]] std::string to_string() const;
};

/// Parses a URL. kInvalid, with the reason and an example, when the text is no such URL.
[[nodiscard]] Result<Endpoint> parse_url(std::string_view url);

}  // namespace inductorfs::redis
