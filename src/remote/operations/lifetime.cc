// SPDX-License-Identifier: Apache-2.0
#include "remote/operations/lifetime.h"

#include <algorithm>
#include <array>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "remote/formats/keys.h"
#include "remote/operations/blob_shelf.h"
#include "remote/operations/redis_operations.h"

namespace inductorfs::remote {
namespace {

using redis::Reply;

/// Blobs that are asked for in one pipeline.
constexpr size_t kBlobsAtOnce = 256;
constexpr size_t kScopeKeys = 6;
/// Scopes that are kept in one pipeline.
constexpr size_t kScopesAtOnce = 64;

std::array<std::string_view, kScopeKeys> names_of(const ScopeKeys& keys) {
  return {keys.meta, keys.index, keys.counts, keys.owners, keys.log, keys.covered};
}

Result<void> keep_some(Conversation& channel, const std::string& prefix, std::span<const ScopeKeeper::Due> due,
                       const Lifetime& lifetime) {
  std::deque<ScopeKeys> all;  // the commands have views of them
  std::vector<redis::Command> commands;
  for (const ScopeKeeper::Due& one : due) {
    const ScopeKeys& keys = all.emplace_back(prefix, one.scope);
    redis::Command touch = {"TOUCH"};
    for (const auto name : names_of(keys)) touch.push_back(name);
    commands.push_back(std::move(touch));
    if (!one.look) continue;
    for (const auto name : names_of(keys)) commands.push_back({"PTTL", name});
  }
  INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all(commands));
  std::vector<redis::Command> renewals;
  Result<void> away;  // a shard, and the others answer
  for (size_t i = 0; i < commands.size(); ++i) {
    const Reply& left = replies[i];
    constexpr int64_t kAbsent = -2;
    if (left.is_error() && redis::to_error(left).code() == ErrorCode::kUnavailable) away = fail(redis::to_error(left));
    if (commands[i].front() != "PTTL" || left.is_error() || left.integer == kAbsent) continue;
    if (left.integer < lifetime.renew_below) renewals.push_back({"PEXPIRE", commands[i].back(), lifetime.text});
  }
  if (renewals.empty()) return away;
  // A user who may only read leaves it to others.
  INDUCTORFS_TRY(channel.pipeline(renewals, [](size_t, Reply&&) { return Result<void>(); }));
  return away;
}

}  // namespace

std::vector<ScopeKeeper::Due> ScopeKeeper::due(const std::vector<ScopeId>& scopes, SteadyTime now) {
  return times_.with([&](std::map<ScopeId, Times>& times) {
    std::vector<Due> found;
    for (const ScopeId& scope : scopes) {
      const auto [place, added] = times.try_emplace(scope);
      Times& last = place->second;
      if (!added && now - last.touched < kTouchInterval) continue;
      const bool look = added || now - last.looked >= look_interval_;
      last.touched = now;
      if (look) last.looked = now;
      found.push_back({scope, look});
    }
    if (times.size() > kLimit) {
      std::erase_if(times, [&](const auto& known) { return now - known.second.touched >= kTouchInterval; });
    }
    return found;
  });
}

/// What fails is done by another mount, or when it is due again.
void RedisRemote::keep(const std::vector<ScopeId>& scopes, Deadline deadline) {
  if (session_.options().read_only) return;
  const auto all_due = shared_->keeper.due(scopes, std::chrono::steady_clock::now());
  if (all_due.empty()) return;
  const std::span<const ScopeKeeper::Due> due(all_due);
  const Lifetime lifetime = Lifetime::of_scopes(session_.options());
  const auto kept = session_.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    Result<void> all;
    for (size_t at = 0; at < due.size(); at += kScopesAtOnce) {
      const auto some = due.subspan(at, std::min(kScopesAtOnce, due.size() - at));
      auto some_kept = keep_some(channel, session_.options().prefix, some, lifetime);
      if (some_kept) continue;
      all = std::move(some_kept);
      if (!channel.spans_servers()) break;  // a shard that is away says nothing of the others
    }
    return all;
  });
  if (!kept) session_.counters().get("remote.keep_failed").add();
}

Result<void> RedisRemote::renew(std::span<const codec::Digest> digests, Deadline deadline) {
  if (session_.options().read_only) return read_only();
  return session_.run(Use::kPublish, deadline, [&](Conversation& channel) -> Result<void> {
    for (size_t at = 0; at < digests.size(); at += kBlobsAtOnce) {
      const auto some = digests.subspan(at, std::min(kBlobsAtOnce, digests.size() - at));
      INDUCTORFS_TRY(BlobShelf(session_, channel, {some.begin(), some.end()}).look());
    }
    return {};
  });
}

}  // namespace inductorfs::remote
