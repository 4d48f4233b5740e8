// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/defaults.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/trusted_file.h"

namespace inductorfs::remote {

/// How a server is reached, and what may be asked of it. Immutable value.
struct RemoteOptions {
  std::string url;
  std::string password_file;
  std::string ca_file;
  std::string certificate_file;
  std::string key_file;
  FileSource files{};  ///< of these four, for whoever may not read them; empty: they are read from the disk
  /// Connects to the URL's Unix socket, for whoever may not; empty: this process does.
  std::function<Result<Fd>(Deadline deadline, const std::function<bool()>& cancelled)> socket{};
  std::string prefix{defaults::kPrefix};
  std::string client_name = "inductorfs";
  size_t connections = 8;               ///< to fetch: FileSystemOptions::fetch_threads, two prefetches, a merge, a warm
  bool read_only = false;               ///< sends no command that writes; the user of the server may lack other rights
  Milliseconds connect_patience{1000};  ///< the longest that a new connection may take, greeting included
  Milliseconds without_progress = defaults::kLookupPatience;  ///< for a fetch that comes without a budget
  std::chrono::seconds blob_lifetime{30 * 24 * 3600};
  Milliseconds follow_rest{10'000};    ///< how long a follower waits at the server before it looks for a removed scope
  Milliseconds head_interval{15'000};  ///< time between two looks at all heads, jittered; longer with over ten scopes
  Milliseconds idle_lifetime{30'000};  ///< an unused connection is closed after it; one to fetch and one to ask stay
  uint64_t index_limit = defaults::kEntriesInMemory;  ///< entries of one scope that this host is ready to hold
  uint64_t log_length = 10'000;                       ///< records kept in a scope's log (MAXLEN ~)
};

}  // namespace inductorfs::remote
