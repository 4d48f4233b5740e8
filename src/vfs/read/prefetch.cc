// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/prefetch.h"

#include <algorithm>
#include <cstdlib>

namespace inductorfs::vfs {
namespace {

constexpr size_t kPrefetchEntries = 1024;  ///< of one directory
constexpr size_t kPrefetchNewest = 20'000;
/// What is larger is fetched only for a job that is known to use it, or has begun to: a precompiled header has 150 MB,
/// and a job without C++ code never opens it.
constexpr uint64_t kLargestGuess = 16ULL << 20;
/// Artefacts of one start-up are made by one writer within minutes (a cold start of the largest graphs takes that
/// long).
constexpr int64_t kCompanionNanoseconds = 10LL * 60 * 1'000'000'000;
constexpr uint64_t kCompanionBytes = 256ULL << 20;
constexpr size_t kCompanionsRemembered = 64;
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
  const auto missing = std::ranges::find_if(wanted, [&](const auto& entry) { return !fetcher_.has(entry); });
  if (missing == wanted.end()) return;
  const codec::Entry first = *missing;
  fetcher_.prefetch(wanted);
  beside(directory, first);
}

void Prefetch::beside(const layout::Name& asked, const codec::Entry& entry) {
  if (options_.prefetch_bytes == 0) return;
  if (!starts_.foresee(asked, [this, entry] { companions(entry); })) companions(entry);
}

void Prefetch::companions(const codec::Entry& entry) {
  const bool fresh = windows_.with([&](std::vector<std::pair<std::string, int64_t>>& windows) {
    const auto covers = [&](const auto& window) {
      return window.first == entry.origin && std::abs(window.second - entry.mtime_ns) < kCompanionNanoseconds / 2;
    };
    if (std::any_of(windows.begin(), windows.end(), covers)) return false;
    if (windows.size() >= kCompanionsRemembered) windows.erase(windows.begin());
    windows.emplace_back(entry.origin, entry.mtime_ns);
    return true;
  });
  if (!fresh) return;
  std::vector<codec::Entry> companions;
  for (auto& known : catalog_.newest(kPrefetchNewest)) {
    if (known.entry.origin != entry.origin || known.entry.size > kLargestGuess) continue;
    if (std::abs(known.entry.mtime_ns - entry.mtime_ns) > kCompanionNanoseconds) continue;
    companions.push_back(std::move(known.entry));
  }
  // A start asks for what it makes in the order in which it makes it: from this entry on, then what came before it.
  std::ranges::sort(companions, {}, &codec::Entry::mtime_ns);
  const auto next = std::ranges::lower_bound(companions, entry.mtime_ns, {}, &codec::Entry::mtime_ns);
  std::rotate(companions.begin(), next, companions.end());
  uint64_t bytes = 0;
  const auto beyond = std::ranges::find_if(companions, [&](const codec::Entry& companion) {
    bytes += companion.size;
    return bytes > std::min(kCompanionBytes, options_.prefetch_bytes);
  });
  companions.erase(beyond, companions.end());
  if (!companions.empty()) fetcher_.prefetch(companions);
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
