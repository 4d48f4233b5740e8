// SPDX-License-Identifier: Apache-2.0
#include "catalog/gatherer.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/log.h"
#include "inductorfs/layout/start_list.h"

namespace inductorfs::catalog {
namespace {

/// 20,000 small blobs take some ten seconds, most of it to compress them.
constexpr Milliseconds kGatherPatience{120'000};
/// Some blocks, which a remote keeps for a while when it has fetched them.
constexpr uint64_t kSortedBytes = uint64_t{4} << 20;
/// So many entries of one list are gathered; a job's start has fewer.
constexpr size_t kMostEntries = 50'000;

std::string_view extension_of(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const size_t dot = name.find('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(dot);
}

}  // namespace

/// An operator's freeze ends it, too: what it has written by then stays.
bool Gatherer::is_over() const { return parts_.stopping || !parts_.may_publish(std::chrono::steady_clock::now()); }

void Gatherer::gather(const Start& start) {
  if (is_over()) return;
  const Activity activity("gathers the artefacts of a start");
  const auto blobs = blobs_of(start);
  if (blobs.empty()) return;
  const auto report = blobs_->gather(blobs, Deadline::after(kGatherPatience));
  if (!report) {
    // They stay as they are, and the next list that is published has them gathered.
    log::write_limited(log::Level::kInfo, "catalog.not_gathered", {{"why", report.error().to_string()}});
    return;
  }
  if (report->blobs == 0) return;
  log::write(log::Level::kInfo, "catalog.gathered",
             {{"blobs", std::to_string(report->blobs)},
              {"blocks", std::to_string(report->blocks)},
              {"bytes_before", std::to_string(report->bytes_before)},
              {"bytes_after", std::to_string(report->bytes_after)}});
}

/// In the order of the list, in which a start asks for them, so that a fetch of some touches few blocks; but within a
/// few blocks like beside like: those of one kind, and of a similar size.
std::vector<codec::Digest> Gatherer::blobs_of(const Start& start) const {
  const auto blob = parts_.store.open_blob(start.list);
  const auto bytes = blob ? blob->read_all(layout::kStartListBytes) : Result<std::string>(fail(blob.error()));
  const auto keys = bytes ? layout::start_list_keys(*bytes) : fail(bytes.error());
  if (!keys) return {};
  std::vector<codec::Entry> entries;
  const auto add = [&entries](codec::Entry&& entry) {
    const bool fits = entry.size <= remote::kGatheredBlobLimit && entries.size() < kMostEntries;
    if (fits) entries.push_back(std::move(entry));
  };
  for (const layout::StartKey& one : *keys) {
    parts_.tree.read([&](const EntryTree& tree) {
      if (auto known = tree.find({one.key, start.root})) return add(std::move(known->entry));
      for (auto& known : tree.entries_in({one.key, start.root})) add(std::move(known.entry));
    });
  }
  for (auto from = entries.begin(); from != entries.end();) {
    uint64_t size = 0;
    auto to = from;
    while (to != entries.end() && size < kSortedBytes) size += (to++)->size;
    std::ranges::sort(from, to, {}, [](const codec::Entry& entry) {
      return std::tuple(extension_of(entry.path), entry.size, std::string_view(entry.path));
    });
    from = to;
  }
  std::vector<codec::Digest> digests;
  for (const codec::Entry& entry : entries) digests.push_back(entry.digest);
  return digests;
}

}  // namespace inductorfs::catalog
