// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "inductorfs/codec/digest.h"

namespace inductorfs::catalog {

/// What the tail brings meanwhile of what this host is publishing, and what it has published and not read back from the
/// log yet. Needs external synchronisation.
class Echoes {
 public:
  using Digests = std::map<std::string, std::vector<codec::Digest>>;  ///< by path, the oldest first

  /// Remembers from now on which of these paths are set (and to what) or removed, because a publish that returns late
  /// must not put its entries over newer ones that the tail has brought meanwhile.
  void watch(const std::vector<std::string>& paths) {
    touched_.clear();
    watched_.clear();
    watched_.insert(paths.begin(), paths.end());
  }
  [[nodiscard]] Digests end_watch() {
    watched_.clear();
    return std::exchange(touched_, {});
  }

  /// Remembers an entry that this host published and that has not been read back from the log yet. Over a limit the
  /// oldest ones are forgotten: one for each echo that has come, or never will because a later change of the path hid
  /// it.
  void await(const std::string& path, const codec::Digest& digest) {
    awaited_[path].push_back(digest);
    order_.push_back(path);
    if (order_.size() <= kAwaitedLimit) return;
    const auto oldest = awaited_.find(order_.front());
    order_.pop_front();
    if (oldest == awaited_.end()) return;
    oldest->second.erase(oldest->second.begin());
    if (oldest->second.empty()) awaited_.erase(oldest);
  }
  [[nodiscard]] const Digests& awaited() const { return awaited_; }
  void stop_awaiting(const std::set<std::string>& paths) {
    for (const auto& path : paths) awaited_.erase(path);
  }

  /// Notes what is set at a path; nullptr for a removal.
  void note(std::string_view path, const codec::Digest* digest) {
    if (watched_.contains(path)) {
      auto& digests = touched_[std::string(path)];
      if (digest != nullptr) digests.push_back(*digest);
    }
    if (digest == nullptr || awaited_.empty()) return;
    const auto awaited = awaited_.find(std::string(path));
    if (awaited == awaited_.end()) return;
    auto& digests = awaited->second;
    const auto came = std::ranges::find(digests, *digest);
    if (came == digests.end()) return;
    digests.erase(digests.begin(), std::next(came));  // with those that came before it, in this order, in the cluster
    if (digests.empty()) awaited_.erase(awaited);
  }

 private:
  static constexpr size_t kAwaitedLimit = 4'096;

  std::set<std::string, std::less<>> watched_;
  Digests touched_;
  Digests awaited_;
  std::deque<std::string> order_;  ///< of `awaited_`
};

}  // namespace inductorfs::catalog
