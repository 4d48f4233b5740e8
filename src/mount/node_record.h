// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/config/json.h"
#include "inductorfs/remote/remote.h"

namespace inductorfs::mount {

/// Parses what a mount, or anybody, has written as a node's record (remote/nodes.h); null unless it is JSON of the size
/// and depth of a record: a deep or long one would cost much memory for each of thousands.
[[nodiscard]] config::Json parse_node_record(const std::string& text);

/// Knows whether all mounts of the cluster can read what a new codec wrote: each says in its record up to which codec
/// it reads, and releases before that say nothing. A mount with --read-only has no record and is not asked. Safe for
/// concurrent use.
class NodeCodecs {
 public:
  explicit NodeCodecs(unsigned codec) : codec_(codec) {}

  /// Says whether every record that the cluster lists names this codec or a higher one; false when there is none, or
  /// when they cannot be listed now. An answer holds for kHolds. Blocks on the cluster.
  [[nodiscard]] bool all_read(remote::Remote& cluster);

  static constexpr Milliseconds kHolds{60'000};

 private:
  struct Answer {
    bool all = false;
    SteadyTime until{};
  };
  const unsigned codec_;
  Guarded<Answer> answer_;
};

}  // namespace inductorfs::mount
