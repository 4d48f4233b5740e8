// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/prefetch.h"

#include <algorithm>

namespace inductorfs::vfs {
namespace {

constexpr size_t kPrefetchEntries = 1024;  ///< of one directory
constexpr size_t kPrefetchNewest = 20'000;
/// What is larger is fetched only for a job that is known to use it, or has begun to: a precompiled header has 150 MB,
/// and a job without C++ code never opens it.
constexpr uint64_t kLargestGuess = 16ULL << 20;
/// Many users' roots may be taken up at once.
constexpr std::chrono::seconds kNewestAgain{2};

}  // namespace

void Prefetch::directory(const layout::Name& directory) {
  if (options_.prefetch_bytes == 0) return;
  std::vector<codec::Entry> wanted;
  uint64_t bytes = 0;
  for (auto& known : catalog_.entries_in(directory)) {
    bytes += known.entry.size;
    if (bytes > options_.prefetch_bytes || wanted.size() >= kPrefetchEntries) break;
    wanted.push_back(std::move(known.entry));
  }
  // Before the files are asked for: they may be here by then, and nothing would tell that a job has started.
  if (std::ranges::all_of(wanted, [&](const auto& entry) { return fetcher_.has(entry); })) return;
  fetcher_.prefetch(wanted);
  beside(directory);
}

void Prefetch::beside(const layout::Name& asked) {
  if (options_.prefetch_bytes > 0) starts_.foresee(asked);
}

void Prefetch::newest_wanted() {
  const SteadyTime now = std::chrono::steady_clock::now();
  if (options_.prefetch_bytes == 0 || !wants_newest_ || now < next_newest_ || !catalog_.status().synced) return;
  wants_newest_ = false;
  next_newest_ = now + kNewestAgain;
  newest();
}

void Prefetch::newest() {
  std::vector<codec::Entry> wanted;
  uint64_t bytes = 0;
  for (auto& known : catalog_.newest(kPrefetchNewest)) {
    if (known.entry.size > kLargestGuess) continue;
    bytes += known.entry.size;
    if (bytes > options_.prefetch_bytes) break;
    wanted.push_back(std::move(known.entry));
  }
  fetcher_.prefetch(wanted);
}

}  // namespace inductorfs::vfs
