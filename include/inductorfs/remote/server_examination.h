// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "inductorfs/remote/options.h"

/// A look at the server behind a remote, or at what is needed to reach it, for an operator who asks what is wrong.
namespace inductorfs::remote {

struct ServerExamination {
  std::string address;      ///< without secrets
  bool of_cluster = false;  ///< one of the masters of the Redis Cluster that the options name
  std::string unreachable;  ///< why this master of a cluster does not answer; empty when it does
  bool local = false;       ///< a Unix socket, or the loopback address by its number or as "localhost"
  bool tls = false;
  bool has_password = false;
  bool administers = false;  ///< the user may read the rights of users of the server, which no mount needs
  std::map<std::string, std::string, std::less<>> info;  ///< the fields of INFO; empty if the user may not ask for it
  std::chrono::microseconds round_trip{0};               ///< the median of a few PINGs
  std::optional<std::chrono::seconds> clock_ahead;       ///< of the server before this host; negative: behind
};

/// Connects as a mount with these options would, and asks the server about itself, or each master of a Redis Cluster,
/// in the order of their addresses. Changes nothing there. Blocks until the deadline at most. Errors are those of
/// connecting; kInvalid also when a secret file cannot be read.
[[nodiscard]] Result<std::vector<ServerExamination>> examine_servers(const RemoteOptions& options, Deadline deadline);

/// Reads the password and the certificates that the options name, also without a URL, and asks no server: kInvalid when
/// one is missing or wrong, or is of no use with this URL.
[[nodiscard]] Result<void> check_server_files(const RemoteOptions& options);

}  // namespace inductorfs::remote
