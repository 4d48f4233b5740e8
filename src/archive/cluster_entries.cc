// SPDX-License-Identifier: Apache-2.0
#include "cluster_entries.h"

#include <map>
#include <string>
#include <utility>

namespace inductorfs::archive {
namespace {

/// Steps of one scope; each has all entries of an index, or tens of records. A scope that changes for ever has no end.
constexpr int kMostSteps = 10'000;
constexpr size_t kMostKnown = 2'000'000;  ///< as a mount holds of one scope

}  // namespace

Result<std::vector<codec::Entry>> entries_of(remote::Index& index, const remote::ScopeId& scope) {
  std::map<std::string, codec::Entry> known;
  remote::Position position;
  for (int step = 0; step < kMostSteps; ++step) {
    INDUCTORFS_TRY_ASSIGN(auto delta, index.read_changes(scope, position, Deadline::after(kAskPatience)));
    if (delta.reset) known.clear();
    for (const std::string& path : delta.removed) known.erase(path);
    for (codec::Entry& entry : delta.set) {
      std::string path = entry.path;
      known.insert_or_assign(std::move(path), std::move(entry));
    }
    if (known.size() > kMostKnown) {
      return fail(ErrorCode::kTooLarge, "the scope " + scope + " has more than " + std::to_string(kMostKnown) +
                                            " entries: name another one by --scope");
    }
    const bool ends = delta.at_head || delta.position == position;
    position = delta.position;
    if (!ends) continue;
    std::vector<codec::Entry> entries;
    for (auto& [path, entry] : known) entries.push_back(std::move(entry));
    return entries;
  }
  return fail(ErrorCode::kTimedOut, "the scope " + scope + " changes faster than it can be read: try again later");
}

}  // namespace inductorfs::archive
