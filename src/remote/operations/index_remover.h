// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "inductorfs/remote/index.h"
#include "remote/client/redis_client.h"
#include "remote/formats/keys.h"
#include "remote/operations/lifetime.h"

namespace inductorfs::remote {

/// Entries of one removal: that many paths of the longest make a record below kRecordBytesLimit.
inline constexpr size_t kRemovedAtOnce = 500;

/// An entry that is to be removed.
struct IndexItem {
  std::string path;
  codec::Digest digest;
  int64_t left = 0;  ///< milliseconds of its blob's lifetime: what was used last has the most
};

/// Removes entries from one scope's index, with a record in the log, as long as it holds a fence: a key that has its
/// token. Its calls block. Confined to the calling thread.
class IndexRemover {
 public:
  /// How long whoever holds a fence may be silent.
  static constexpr Milliseconds kLease{60'000};

  IndexRemover(RedisClient& session, const ScopeKeys& keys, std::string fence);

  [[nodiscard]] const std::string& fence() const { return fence_; }
  [[nodiscard]] const std::string& token() const { return token_; }
  /// Removes up to kRemovedAtOnce in one record; when one of them has changed, one by one. Adds to `removed`.
  [[nodiscard]] Result<void> remove(Conversation& channel, std::span<const IndexItem> items, uint64_t& removed);
  /// Begins the lease anew. An error when the fence is another's, or nobody's.
  [[nodiscard]] Result<void> hold(Conversation& channel);

 private:
  [[nodiscard]] Result<void> remove_some(Conversation& channel, std::span<const IndexItem> items, uint64_t& removed);
  [[nodiscard]] Result<std::string> evaluate(Conversation& channel, std::span<const IndexItem> items);

  const std::string log_length_;
  const ScopeKeys& keys_;
  const Lifetime lifetime_;
  const std::string fence_;
  const std::string token_;
};

}  // namespace inductorfs::remote
