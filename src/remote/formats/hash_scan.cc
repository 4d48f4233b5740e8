// SPDX-License-Identifier: Apache-2.0
#include "remote/formats/hash_scan.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace inductorfs::remote {
namespace {

using redis::Reply;

constexpr uint64_t kPage = 500;
/// A million entries take about a minute.
constexpr Milliseconds kPagePause{20};
constexpr int kAttempts = 3;
/// A hash that has lost its fields may keep the table of four millions, of which a page of 500 looks at 5,000 places
/// (redis db.c: scanGenericCommand).
constexpr uint64_t kEmptyPages = 1024;
/// Fields may be added meanwhile, and a table that grows or shrinks gives some twice.
constexpr uint64_t kTimes = 4;
/// More than any index has: a server may say anything.
constexpr uint64_t kMostFields = uint64_t{1} << 24;

Result<void> scan_once(Conversation& channel, const std::string& key, const ScanSteps& steps) {
  steps.begin();
  INDUCTORFS_TRY_ASSIGN(const auto fields, channel.call({"HLEN", key}));
  if (fields.kind != Reply::Kind::kInteger) return fail(redis::to_error(fields));
  ScanLimit limit(static_cast<uint64_t>(std::max<int64_t>(fields.integer, 0)), kPage);
  const std::string count = std::to_string(kPage);
  for (std::string cursor = "0"; true;) {
    INDUCTORFS_TRY(limit.next());
    INDUCTORFS_TRY_ASSIGN(auto page, channel.call({"HSCAN", key, cursor, "COUNT", count}));
    if (page.kind != Reply::Kind::kArray || page.items.size() != 2) return fail(redis::to_error(page));
    INDUCTORFS_TRY(steps.page(page.items[1].items));
    cursor = std::move(page.items[0].text);
    if (cursor == "0") return {};
    if (!page.items[1].items.empty()) std::this_thread::sleep_for(kPagePause);
  }
}

}  // namespace

ScanLimit::ScanLimit(uint64_t fields, uint64_t page)
    : left_(kEmptyPages + kTimes * (std::min(fields, kMostFields) / page)) {}

Result<void> ScanLimit::next() {
  if (left_ == 0) {
    return fail(ErrorCode::kCorrupt,
                "the server's scan of an index does not end, although it has told of fewer entries: look at the "
                "server, or at what stands between it and this host");
  }
  --left_;
  return {};
}

Result<void> scan_hash(RedisClient& session, const std::string& key, Deadline deadline, const ScanSteps& steps) {
  for (int attempt = 1; true; ++attempt) {
    auto scanned = session.run_at(key, Use::kControl, deadline,
                                  [&](Conversation& channel) { return scan_once(channel, key, steps); });
    const bool may_again = !scanned && scanned.error().code() == ErrorCode::kUnavailable && attempt < kAttempts;
    if (!may_again || deadline.passed()) return scanned;
  }
}

}  // namespace inductorfs::remote
