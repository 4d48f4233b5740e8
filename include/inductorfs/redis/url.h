// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "inductorfs/base/result.h"

namespace inductorfs::redis {

/// Where a server is and how to greet it. Immutable value.
///   redis://[user[:password]@]host[:port][/db]      rediss:// the same over TLS
///   unix://[user[:password]@]/path/to/socket[?db=N]
/// A password may stand in a file instead (`password_file`), so that it is on no command line.
struct Endpoint {
  bool tls = false;
  std::string host;  ///< empty for a Unix socket
  uint16_t port = 6379;
  std::string socket_path;  ///< empty for TCP
  int database = 0;
  std::string user;
  std::string password;
  std::string client_name;  ///< CLIENT SETNAME; empty = none. A server that refuses the name is no error
  std::string ca_file;      ///< TLS: empty = the system's certificates
  std::string certificate_file;
  std::string key_file;

  /// Without secrets, for logs and status.
  [[nodiscard]] std::string to_string() const;
};

/// kInvalid, with the reason and an example, when the text is no such URL.
[[nodiscard]] Result<Endpoint> parse_url(std::string_view url);

}  // namespace inductorfs::redis
