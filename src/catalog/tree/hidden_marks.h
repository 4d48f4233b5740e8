// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "inductorfs/codec/digest.h"
#include "inductorfs/layout/layout.h"

namespace inductorfs::catalog {

/// Bytes that were deleted under a path, which is that of the file in the mount, without a device's index.
struct HiddenMark {
  std::string path;
  codec::Digest digest;

  bool operator==(const HiddenMark&) const = default;
};

/// What was deleted on this host. A mark outlives the entry: what was deleted stays away when the cluster sends it
/// again. Needs external synchronisation.
class HiddenMarks {
 public:
  /// Deleted here again and again before any of it reached the cluster: the oldest marks of the path go.
  static constexpr size_t kPerPath = 8;

  struct Added {
    bool is_new = false;
    std::optional<HiddenMark> dropped;  ///< over kPerPath
  };
  Added add(const HiddenMark& mark) {
    const auto [known, first] = digests_.try_emplace(mark.path);
    const std::string root = layout::name_of(mark.path).root;
    if (first && !root.empty()) ++roots_[root];
    auto& digests = known->second;
    Added added{std::erase(digests, mark.digest) == 0, std::nullopt};
    digests.push_back(mark.digest);  // the one that was deleted last is given up last
    if (digests.size() > kPerPath) {
      added.dropped = HiddenMark{mark.path, digests.front()};
      digests.erase(digests.begin());
    }
    return added;
  }
  /// Returns false when its path has no marks.
  bool remove(const HiddenMark& mark) {
    const auto found = digests_.find(mark.path);
    if (found == digests_.end()) return false;
    std::erase(found->second, mark.digest);
    if (!found->second.empty()) return true;
    digests_.erase(found);
    const auto root = roots_.find(layout::name_of(mark.path).root);
    if (root != roots_.end() && --root->second == 0) roots_.erase(root);
    return true;
  }
  [[nodiscard]] bool contains(const std::string& path, const codec::Digest& digest) const {
    const auto found = digests_.find(path);
    return found != digests_.end() && std::ranges::find(found->second, digest) != found->second.end();
  }
  /// Says whether this root has marks of its own. Those of the mountpoint are in the leaves.
  [[nodiscard]] bool has_own(const std::string& root) const { return roots_.contains(root); }
  /// Returns the marks of this root and of the roots below it.
  [[nodiscard]] std::vector<HiddenMark> of_root(std::string_view root) const {
    const auto is_below = [root](std::string_view path) {
      return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
    };
    std::vector<HiddenMark> marks;
    const auto first = roots_.lower_bound(root);
    if (std::none_of(first, roots_.end(), [&](const auto& one) { return is_below(one.first); })) return marks;
    for (const auto& [path, digests] : digests_) {
      if (!is_below(path) || !is_below(layout::name_of(path).root)) continue;
      for (const auto& digest : digests) marks.push_back({path, digest});
    }
    return marks;
  }
  /// Returns of how many paths there are marks.
  [[nodiscard]] uint64_t paths() const { return digests_.size(); }

  /// Returns under which path the marks of a name are.
  [[nodiscard]] static std::string path_of(const layout::Name& name) {
    return name.root.empty() ? name.path : name.root + "/" + name.path;
  }

 private:
  std::unordered_map<std::string, std::vector<codec::Digest>> digests_;
  std::map<std::string, uint64_t, std::less<>> roots_;  ///< the paths in `digests_` of each root but the empty one
};

}  // namespace inductorfs::catalog
