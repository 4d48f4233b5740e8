// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/starts.h"

#include <algorithm>
#include <utility>

#include "inductorfs/base/log.h"
#include "inductorfs/layout/layout.h"

namespace inductorfs::vfs {
namespace {

/// A list that was applied is not applied again within this time; then it is, because blobs may have been evicted.
constexpr std::chrono::minutes kAppliedFor{10};
constexpr size_t kMostApplied = 256;
constexpr size_t kMostUnused = 65'536;
/// A start that asked for less has few round trips to save.
constexpr size_t kLeastKeys = 8;
/// A list has one entry for so many keys at least, so that lists stay few beside what they name.
constexpr size_t kKeysOfEntry = 4;
constexpr size_t kMostEntries = 32;

std::string asked_key(const std::string& path) {
  auto classified = layout::classify(path);
  return classified.key_directory.empty() ? path : std::move(classified.key_directory);
}

}  // namespace

void Starts::foresee(const layout::Name& asked) {
  const auto list = catalog_.start_list(asked.root, asked_key(asked.path));
  if (!list || list->entry.size > layout::kStartListBytes || !claim(list->entry.digest)) return;
  fetcher_.fetch({list->entry}, [this, root = asked.root, entry = list->entry](const auto& got) {
    if (got.front() == FetchOutcome::kHere) apply(root, entry);
  });
}

/// Returns true when the list was not applied lately; the caller applies it, and from now on it counts as applied.
bool Starts::claim(const codec::Digest& list) {
  const SteadyTime now = std::chrono::steady_clock::now();
  return applied_.with([&](AppliedLists& lists) {
    const auto known = lists.find(list);
    if (known != lists.end() && now - known->second.at < kAppliedFor) return false;
    if (known == lists.end() && lists.size() >= kMostApplied) {
      lists.erase(std::ranges::min_element(lists, {}, [](const auto& one) { return one.second.at; }));
    }
    lists[list] = {now, false};
    return true;
  });
}

void Starts::apply(const std::string& root, const codec::Entry& list) {
  const auto keys = read(list.digest);
  if (!keys) return;
  lists_.add();
  catalog_.note_use(list.digest);
  std::vector<codec::Entry> wanted;
  uint64_t bytes = 0;
  for (const layout::StartKey& one : *keys) {
    if (bytes > options_.prefetch_bytes) break;
    for (codec::Entry& entry : entries_of(root, one.key)) {
      if (fetcher_.has(entry)) continue;
      bytes += entry.size;
      if (bytes <= options_.prefetch_bytes) wanted.push_back(std::move(entry));
    }
  }
  unused_.with([&](auto& unused) {
    for (const codec::Entry& entry : wanted) {
      if (unused.size() >= kMostUnused || !unused.emplace(entry.digest, entry.size).second) continue;
      foreseen_.add();
      foreseen_bytes_.add(entry.size);
    }
  });
  fetcher_.prefetch(wanted);
}

std::vector<codec::Entry> Starts::entries_of(const std::string& root, const std::string& key) const {
  std::vector<codec::Entry> entries;
  if (auto known = catalog_.find({key, root})) return {std::move(known->entry)};
  for (auto& known : catalog_.entries_in({key, root})) entries.push_back(std::move(known.entry));
  return entries;
}

std::optional<std::vector<layout::StartKey>> Starts::read(const codec::Digest& list) {
  const auto blob = store_.open_blob(list);
  const auto bytes = blob ? blob->read_all(layout::kStartListBytes) : Result<std::string>(fail(blob.error()));
  auto keys = bytes ? layout::start_list_keys(*bytes) : fail(bytes.error());
  return keys ? std::optional(std::move(*keys)) : std::nullopt;
}

void Starts::note_use(const codec::Digest& digest) {
  const auto size = unused_.with([&](auto& unused) {
    const auto known = unused.find(digest);
    return known == unused.end() ? std::nullopt : std::optional(unused.extract(known).mapped());
  });
  if (!size) return;
  used_.add();
  used_bytes_.add(*size);
}

bool Starts::is_in_cluster(const std::string& root, const std::string& key) const {
  const layout::Name name(key, root);
  return catalog_.find(name) || catalog_.has_directory(name);
}

/// The list under the first of its names that is one of an earlier start of the same job: half of it was asked for.
std::optional<Starts::Earlier> Starts::earlier_of(const JobStart& start, const std::set<std::string_view>& asked) {
  for (const std::string& name : start.first) {
    const auto list = catalog_.start_list(start.root, name);
    if (!list) continue;
    auto keys = read(list->entry.digest);
    if (!keys) continue;
    const auto in_both = std::ranges::count_if(*keys, [&](const auto& one) { return asked.contains(one.key); });
    if (static_cast<size_t>(in_both) * 2 < std::min(keys->size(), asked.size())) continue;
    return Earlier{std::move(*keys), list->entry.digest};
  }
  return std::nullopt;
}

/// Whether a start can tell what of this list is not asked for any more: once after it was applied.
bool Starts::judge(const codec::Digest& list) {
  return applied_.with([&](AppliedLists& lists) {
    const auto known = lists.find(list);
    return known != lists.end() && !std::exchange(known->second.judged, true);
  });
}

bool Starts::note_start(const JobStart& start) {
  JobStart known{start.root, {}, {}};
  std::ranges::copy_if(start.keys, std::back_inserter(known.keys),
                       [&](const std::string& key) { return is_in_cluster(start.root, key); });
  // What this host still has to publish is not in the cluster yet.
  if (known.keys.size() < start.keys.size() && catalog_.status().queued > 0) return false;
  if (known.keys.size() < kLeastKeys) return true;
  const std::set<std::string_view> asked(known.keys.begin(), known.keys.end());
  std::ranges::copy_if(start.first, std::back_inserter(known.first),
                       [&](const std::string& key) { return asked.contains(key); });
  known.first.resize(std::min({known.first.size(), known.keys.size() / kKeysOfEntry, kMostEntries}));
  const auto earlier = earlier_of(known, asked);
  const auto before = earlier ? earlier->keys : std::vector<layout::StartKey>();
  const auto next = layout::next_start_list(before, known.keys, earlier && judge(earlier->digest));
  // The order in which threads ask differs from start to start: that alone is no other list.
  const auto contents = [](const std::vector<layout::StartKey>& keys) {
    std::set<std::pair<std::string_view, unsigned>> set;
    for (const layout::StartKey& one : keys) set.emplace(one.key, one.passed_over);
    return set;
  };
  const bool is_known = earlier && contents(before) == contents(next);
  std::vector<std::string> names;
  std::ranges::copy_if(known.first, std::back_inserter(names), [&](const std::string& key) {
    const auto list = catalog_.start_list(start.root, key);
    return !is_known || !list || list->entry.digest != earlier->digest;
  });
  if (!names.empty()) publish(known, names, is_known ? layout::start_list_text(before) : layout::start_list_text(next));
  return true;
}

void Starts::publish(const JobStart& start, const std::vector<std::string>& names, const std::string& text) {
  const std::string inside = start.root.empty() ? start.keys.front() : start.root + "/" + start.keys.front();
  const auto scope = scopes_.scope_of(inside, layout::Family::kStartList, {});
  if (scope.id.empty()) return;
  const auto digest = store_.put(text);
  if (!digest) {
    log::write_limited(log::Level::kWarning, "fetch.start_not_noted", {{"why", digest.error().to_string()}});
    return;
  }
  catalog::Publish publish;
  publish.scope = scope.id;
  publish.root = start.root;
  for (const std::string& name : names) {
    codec::Entry entry;
    entry.path = layout::start_list_path(name);
    entry.digest = *digest;
    entry.size = text.size();
    entry.mode = 0444;
    entry.mtime_ns = system_clock().wall_now();
    entry.origin = options_.origin;
    publish.entries.push_back(std::move(entry));
  }
  if (auto queued = catalog_.enqueue(publish); !queued) {
    log::write_limited(log::Level::kWarning, "fetch.start_not_noted", {{"why", queued.error().to_string()}});
    return;
  }
  published_.add();
}

}  // namespace inductorfs::vfs
