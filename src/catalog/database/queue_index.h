// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/catalog/catalog.h"

namespace inductorfs::catalog {

/// The content of the publish queue, by id and by path, and how the latest publishes ended. The groups themselves are
/// in the database. Needs external synchronisation.
class QueueIndex {
 public:
  /// The number of paths whose last outcome is remembered.
  static constexpr size_t kReportLimit = 10'000;

  struct Item {
    remote::ScopeId scope;
    std::vector<std::string> paths;
    std::vector<codec::Digest> digests;  ///< one for each path
    std::string error;
    uint64_t attempts = 0;    ///< failed attempts, without those that failed because the cluster was away
    SteadyTime not_before{};  ///< the item is parked until then
    SteadyTime queued{};      ///< 0: an earlier process queued it
    std::string root{};       ///< Publish::root; not kept over a restart
  };
  /// The item to publish next, if any; else when there may be one.
  struct Next {
    std::optional<int64_t> id;
    SteadyTime due = SteadyTime::max();
  };

  void add(int64_t id, Item item);
  void remove(int64_t id);
  [[nodiscard]] Item* find(int64_t id);
  /// Returns the latest item with one of these paths, if it has exactly these, in any order, and this scope: an item
  /// that waits for another scope is no older version of it.
  [[nodiscard]] std::optional<int64_t> same_paths(const remote::ScopeId& scope,
                                                  const std::vector<std::string>& paths) const;
  [[nodiscard]] std::optional<int64_t> oldest() const;
  [[nodiscard]] const std::map<int64_t, Item>& items() const { return items_; }
  /// Returns the oldest item that is not parked and does not share a path of its scope with an older item, which would
  /// overwrite it later.
  [[nodiscard]] Next next(SteadyTime now) const;
  /// Ends all parking at `latest` at the latest.
  void hurry(SteadyTime latest);
  /// Returns the number of items that have failed for a reason of their own.
  [[nodiscard]] size_t parked() const;
  /// Returns the bytes that wait latest under this path for this scope.
  [[nodiscard]] std::optional<codec::Digest> queued_digest(const remote::ScopeId& scope, const std::string& path) const;
  /// Returns the items that have this path, in any scope, the latest last. They must not outlive the next change.
  [[nodiscard]] std::vector<const Item*> items_with(const std::string& path) const;
  [[nodiscard]] size_t size() const { return items_.size(); }
  [[nodiscard]] std::vector<std::string> paths(size_t limit) const;

  void record(const PublishReport& report);
  /// Returns kQueued with the last error while the path is queued; otherwise how its publish ended, while that is
  /// remembered.
  [[nodiscard]] std::optional<PublishReport> state(const std::string& path) const;

 private:
  using Report = std::shared_ptr<const PublishReport>;

  std::map<int64_t, Item> items_;
  std::unordered_map<std::string, std::vector<int64_t>> by_path_;  ///< the items with this path, the latest last
  std::unordered_map<std::string, Report> reports_;
  std::deque<std::pair<std::string, Report>> recorded_;
};

}  // namespace inductorfs::catalog
