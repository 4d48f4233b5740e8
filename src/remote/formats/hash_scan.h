// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "remote/client/redis_client.h"

namespace inductorfs::remote {

/// Ends a scan that does not end by itself: a server that never gives the last cursor. Confined to the calling thread.
class ScanLimit {
 public:
  /// Of a hash with so many fields, read in pages of `page`.
  ScanLimit(uint64_t fields, uint64_t page);
  /// To be asked before each page. kCorrupt when there were more pages than any server needs.
  [[nodiscard]] Result<void> next();

 private:
  uint64_t left_;
};

/// What a scan tells. `begin` comes before the first page, and again when the scan begins anew: what earlier pages told
/// counts no more. A page is field, value, field, value.
struct ScanSteps {
  std::function<void()> begin;
  std::function<Result<void>(const std::vector<redis::Reply>& page)> page;
};

/// Reads a whole hash, page by page, over one connection to one server: the cursor of a scan means nothing to another
/// one, which would skip fields. When the hash has moved to another server, or the connection has ended, the scan
/// begins anew, a few times. Between two pages it rests, so that the server's other clients do not notice. Each field
/// that is there during all of the scan comes at least once. Blocks up to the deadline.
[[nodiscard]] Result<void> scan_hash(RedisClient& session, const std::string& key, Deadline deadline,
                                     const ScanSteps& steps);

}  // namespace inductorfs::remote
