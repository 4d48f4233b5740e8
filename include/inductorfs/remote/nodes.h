// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inductorfs/base/clock.h"

/// What the mounts of a cluster tell an operator, and what an operator tells the mounts. The cluster keeps both as
/// bytes that it does not understand; whoever reads them must take them for anybody's.
namespace inductorfs::remote {

/// How long a mount's record outlives its last heartbeat.
inline constexpr Milliseconds kNodeLifetime{90'000};
inline constexpr size_t kNodeIdLimit = 64;              ///< lower-case hex digits
inline constexpr size_t kNodeRecordLimit = 8ULL << 10;  ///< bytes
inline constexpr size_t kNodesLimit = 4096;             ///< records of one cluster; the oldest registrations go first
inline constexpr size_t kOrdersLimit = 64ULL << 10;     ///< bytes

/// What a mount has written about itself.
struct NodeRecord {
  std::string id;
  std::string text;    ///< up to kNodeRecordLimit bytes of anything
  Milliseconds age{};  ///< since the heartbeat, by the server's clock
};

/// The answer to a heartbeat.
struct BeatAnswer {
  std::string orders;      ///< Remote::replace_orders(); empty if there are none, or none that can be read
  std::string not_listed;  ///< why the record was not written; empty if it was
};

struct OrdersNow {
  std::string text;         ///< as BeatAnswer::orders
  int64_t server_time = 0;  ///< milliseconds since 1970
};

/// What a purge found in one scope, and did.
struct PurgeReport {
  uint64_t looked_at = 0;  ///< entries
  uint64_t unknown = 0;    ///< entries left alone because another release wrote them, or nobody can read them
  uint64_t selected = 0;
  uint64_t bytes = 0;              ///< of the artefacts of the selected entries
  uint64_t removed = 0;            ///< 0 in a dry run; fewer than selected if entries changed meanwhile
  std::vector<std::string> paths;  ///< the first kPurgePaths of the selected entries
};
inline constexpr size_t kPurgePaths = 20;

}  // namespace inductorfs::remote
