// SPDX-License-Identifier: Apache-2.0
// Which processes Jobs keeps, which it forgets, and what it says of them all.
#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "fingerprint/jobs/jobs.h"

namespace inductorfs::fingerprint {
namespace {

/// As many reasons as Writers::unknown_jobs() says.
constexpr size_t kReasonsShown = 20;

}  // namespace

std::vector<UnknownJobs> Jobs::unknown() const {
  std::map<std::pair<uid_t, std::string>, size_t> counts;
  state_.with([&](const State& state) {
    for (const auto& [pid, entry] : state.entries) {
      if (!entry.answer && !entry.why.empty()) ++counts[{entry.owner, entry.why}];
      if (entry.answer && entry.answer->kind == JobFacts::Kind::kUnknown) ++counts[{entry.owner, entry.answer->why}];
    }
  });
  std::map<uid_t, std::vector<UnknownJobs>> of_users;
  for (const auto& [key, count] : counts) of_users[key.first].push_back({key.first, key.second, count});
  for (auto& [user, list] : of_users) std::ranges::sort(list, std::ranges::greater{}, &UnknownJobs::processes);
  // One user with many reasons must not keep the others' out of the list.
  std::vector<UnknownJobs> shown;
  for (size_t turn = 0; shown.size() < std::min(counts.size(), kReasonsShown); ++turn) {
    for (const auto& [user, list] : of_users) {
      if (turn < list.size() && shown.size() < kReasonsShown) shown.push_back(list[turn]);
    }
  }
  return shown;
}

JobEnvironments::InUse Jobs::in_use() const {
  std::vector<std::pair<Asked, std::string>> all;
  state_.with([&](const State& state) {
    for (const auto& [pid, entry] : state.entries) {
      if (!entry.environment.empty()) all.push_back({{pid, entry.identity, entry.owner}, entry.environment});
    }
  });
  JobEnvironments::InUse users;
  for (const auto& [process, name] : all) {
    if (users.contains(name) && users[name].contains(process.owner)) continue;
    const auto stat = sight_->reader().stat_of(process.pid);
    if (stat && stat->identity.start == process.identity.start) users[name].insert(process.owner);
  }
  return users;
}

/// The oldest of the user who has the most: one who has many has no other's asked again.
void Jobs::forget_one(std::map<pid_t, Entry>& entries) {
  std::map<uid_t, size_t> counts;
  for (const auto& [pid, entry] : entries) ++counts[entry.owner];
  entries.erase(std::min_element(entries.begin(), entries.end(), [&](const auto& one, const auto& other) {
    const Entry& a = one.second;
    const Entry& b = other.second;
    return std::tuple(counts[b.owner], a.used) < std::tuple(counts[a.owner], b.used);
  }));
}

/// Leaves room for one more.
void Jobs::make_room() {
  std::vector<std::pair<pid_t, ProcessIdentity>> all;
  state_.with([&](const State& state) {
    if (state.entries.size() < limit_) return;
    for (const auto& [pid, entry] : state.entries) all.emplace_back(pid, entry.identity);
  });
  if (all.empty()) return;
  std::erase_if(all, [this](const auto& one) {
    const auto stat = sight_->reader().stat_of(one.first);
    return stat && stat->identity.start == one.second.start;
  });
  state_.notify_with([&](State& state) {
    for (const auto& [pid, identity] : all) {
      const auto found = state.entries.find(pid);
      if (found != state.entries.end() && found->second.identity == identity) state.entries.erase(found);
    }
    while (state.entries.size() >= limit_ && !state.entries.empty()) forget_one(state.entries);
  });
}

}  // namespace inductorfs::fingerprint
