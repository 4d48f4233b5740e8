// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/remote/remote.h"

/// What a FakeRemote holds, and the steps that change it.
namespace inductorfs::catalog::fake {

struct Scope {
  std::map<std::string, codec::Entry> entries;
  std::vector<remote::Delta> log;          ///< record i leads to generation i + 1
  std::map<std::string, uint64_t> groups;  ///< by contest
  /// The group in which a path is, and its contest, while the group has a place in it.
  std::map<std::string, std::pair<std::string, uint64_t>> places;
  std::deque<remote::Delta> scripted;  ///< given out first
  /// Where the last scripted delta led, and the log's length then: quiet there until something real happens.
  std::optional<std::pair<remote::Position, size_t>> scripted_end;
  uint64_t trimmed = 0;  ///< generations whose record is gone
};
struct State {
  std::map<remote::ScopeId, Scope> scopes;
  std::map<codec::Digest, std::string> frames;
  std::vector<remote::PublishGroup> published;  ///< in order
  std::vector<std::pair<std::string, codec::Digest>> lost;
  std::vector<codec::Digest> renewed;
  uint64_t asked_to_sweep = 0;
  std::vector<std::vector<codec::Digest>> gathered;
  std::set<std::string> newer;       ///< paths with an entry that only a newer release can read
  bool full = false;                 ///< every scope, until one is swept
  uint64_t swept = 0;                ///< sweeps that were wanted
  std::optional<Error> failure;      ///< of every call
  std::optional<Error> lost_answer;  ///< publish does its work, then says this, once
  int claimed = 0;                   ///< so many publishes find that another host sends the same
  bool hanging = false;              ///< every call uses its whole time
  Milliseconds overtime{0};          ///< and so much more, until it is cancelled
  uint64_t begun = 0;                ///< calls that may be cancelled
  uint64_t reads = 0;
  std::map<remote::ScopeId, uint64_t> reads_of;
  remote::ScopeId named_in_vain;  ///< has a record that no read gives
  uint64_t publishes = 0;         ///< attempts
};

inline std::string nonce(uint64_t generation) {
  return generation == 0 ? std::string() : "nonce-" + std::to_string(generation);
}
inline Deadline end_of_hang(const State& now, Deadline deadline) { return Deadline(deadline.at() + now.overtime); }
/// Of a call that may be cancelled; when it ends if it is not.
inline Deadline begin(State& now, Deadline deadline) {
  ++now.begun;
  return end_of_hang(now, deadline);
}
inline void count_read(State& now, const remote::ScopeId& id) {
  ++now.reads;
  ++now.reads_of[id];
}
inline void set_in(State& now, const remote::ScopeId& id, const std::vector<codec::Entry>& entries) {
  Scope& scope = now.scopes[id];
  for (const auto& entry : entries) scope.entries[entry.path] = entry;
  const uint64_t next = scope.log.size() + 1;
  scope.log.push_back({false, {entries.begin(), entries.end()}, {}, {next, nonce(next)}});
}
/// Gives the entries, as one group, a place in the contest.
inline void enter(Scope& scope, const std::string& contest, const std::vector<codec::Entry>& entries) {
  const uint64_t group = scope.log.size() + 1;
  for (const auto& entry : entries) scope.places[entry.path] = {contest, group};
  ++scope.groups[contest];
}
inline void remove_in(State& now, const remote::ScopeId& id, const std::string& path) {
  Scope& scope = now.scopes[id];
  scope.entries.erase(path);
  if (auto place = scope.places.extract(path)) {
    // As in the real cluster, the first path that is lost gives the whole group's place back.
    --scope.groups[place.mapped().first];
    std::erase_if(scope.places, [&](const auto& other) { return other.second == place.mapped(); });
  }
  const uint64_t next = scope.log.size() + 1;
  scope.log.push_back({false, {}, {path}, {next, nonce(next)}});
}
inline remote::PublishOutcome commit(State& now, const remote::PublishGroup& group) {
  Scope& scope = now.scopes[group.scope];
  if (std::ranges::any_of(group.entries, [&](const codec::Entry& entry) { return now.newer.contains(entry.path); })) {
    return remote::PublishOutcome::kNewer;
  }
  if (group.contest && scope.groups[group.contest->key] > group.contest->most) {
    return remote::PublishOutcome::kSuperseded;
  }
  if (group.replaces) {
    auto found = scope.entries.find(group.entries.front().path);
    const auto digest = found == scope.entries.end() ? std::nullopt : std::optional(found->second.digest);
    if (digest != group.replaces->digest) return remote::PublishOutcome::kConflict;
  }
  if (group.first_of_path) {
    auto found = scope.entries.find(group.entries.front().path);
    const auto& ours = group.entries.front();
    if (found != scope.entries.end() && found->second.digest != ours.digest && found->second.origin != ours.origin) {
      return remote::PublishOutcome::kSuperseded;
    }
  }
  if (now.full) return remote::PublishOutcome::kFull;
  if (now.claimed > 0) {
    --now.claimed;
    return remote::PublishOutcome::kClaimed;
  }
  const bool held = std::ranges::all_of(group.entries, [&](const codec::Entry& entry) {
    auto found = scope.entries.find(entry.path);
    return found != scope.entries.end() && found->second.digest == entry.digest && found->second != entry;
  });
  if (held) return remote::PublishOutcome::kHeld;
  if (group.contest) enter(scope, group.contest->key, group.entries);
  now.published.push_back(group);
  set_in(now, group.scope, group.entries);
  return remote::PublishOutcome::kPublished;
}

}  // namespace inductorfs::catalog::fake
