// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/layout/start_list.h"
#include "vfs/read/fetcher.h"
#include "vfs/read/root_scopes.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// Foresees what a start of a job will ask for from what an earlier start of it has asked for, on whatever host: the
/// start lists of the cluster (layout/start_list.h). It looks for one at the first names, has what is in it fetched,
/// and publishes what starts have asked for here. What it foresaw and what of that was used is counted ("starts.*").
/// Safe for concurrent use.
class Starts : Context {
 public:
  /// All must outlive this object.
  explicit Starts(const Context& context) : Context(context) {}

  /// A program has asked for this name, a file or a directory of the cluster, whose bytes are not here. If there is a
  /// start list for it, what that names is fetched. Never waits for the cluster.
  void foresee(const layout::Name& asked);
  /// Notes that a program was shown this blob.
  void note_use(const codec::Digest& digest);
  /// FileSystem::note_start(). Blocks on the local disk.
  [[nodiscard]] bool note_start(const JobStart& start);

 private:
  /// A list whose artefacts were fetched here.
  struct Applied {
    SteadyTime at{};
    bool judged = false;  ///< a start has told since then which of them it asked for
  };
  using AppliedLists = std::map<codec::Digest, Applied>;
  struct Earlier {
    std::vector<layout::StartKey> keys;
    codec::Digest digest;
  };

  [[nodiscard]] bool claim(const codec::Digest& list);
  void apply(const std::string& root, const codec::Entry& list);
  [[nodiscard]] std::vector<codec::Entry> entries_of(const std::string& root, const std::string& key) const;
  [[nodiscard]] std::optional<std::vector<layout::StartKey>> read(const codec::Digest& list);
  [[nodiscard]] bool is_in_cluster(const std::string& root, const std::string& key) const;
  [[nodiscard]] std::optional<Earlier> earlier_of(const JobStart& start, const std::set<std::string_view>& asked);
  [[nodiscard]] bool judge(const codec::Digest& list);
  void publish(const JobStart& start, const std::vector<std::string>& names, const std::string& text);

  Counter& lists_{counters_.get("starts.lists")};        ///< that were applied
  Counter& foreseen_{counters_.get("starts.foreseen")};  ///< artefacts that were fetched because a list names them
  Counter& foreseen_bytes_{counters_.get("starts.foreseen_bytes")};
  Counter& used_{counters_.get("starts.used")};  ///< of these, what a program was shown
  Counter& used_bytes_{counters_.get("starts.used_bytes")};
  Counter& published_{counters_.get("starts.published")};
  Guarded<AppliedLists> applied_;
  Guarded<std::unordered_map<codec::Digest, uint64_t>> unused_;  ///< what was foreseen, with its size
};

}  // namespace inductorfs::vfs
