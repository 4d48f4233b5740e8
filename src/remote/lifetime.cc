// SPDX-License-Identifier: Apache-2.0
#include "lifetime.h"

#include <algorithm>
#include <array>
#include <span>

#include "blob_shelf.h"
#include "keys.h"
#include "redis_operations.h"

namespace inductorfs::remote {
namespace {

using redis::Reply;

/// Blobs that are asked for in one pipeline.
constexpr size_t kBlobsAtOnce = 256;
constexpr size_t kScopeKeys = 5;

std::array<std::string_view, kScopeKeys> names_of(const ScopeKeys& keys) {
  return {keys.meta, keys.index, keys.counts, keys.owners, keys.log};
}

Result<void> look_at_lifetimes(Conversation& channel, const ScopeKeys& keys, const Lifetime& lifetime) {
  const auto names = names_of(keys);
  std::vector<redis::Command> commands;
  for (const auto name : names) commands.push_back({"PTTL", name});
  INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all(commands));
  commands.clear();
  for (size_t i = 0; i < names.size(); ++i) {
    const Reply& left = replies[i];
    constexpr int64_t kAbsent = -2;
    if (left.is_error() || left.integer == kAbsent || left.integer >= lifetime.renew_below) continue;
    commands.push_back({"PEXPIRE", names[i], lifetime.text});
  }
  if (commands.empty()) return {};
  // A user who may only read leaves it to others.
  return channel.pipeline(commands, [](size_t, Reply&&) { return Result<void>(); });
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

Result<void> keep_scopes(RedisClient& session, std::span<const ScopeKeeper::Due> due, Deadline deadline) {
  const Lifetime lifetime = Lifetime::of_scopes(session.options());
  return session.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    Result<void> all;
    for (const ScopeKeeper::Due& one : due) {
      const ScopeKeys keys(session.options().prefix, one.scope);
      redis::Command touch = {"TOUCH"};
      for (const auto name : names_of(keys)) touch.push_back(name);
      const auto touched = channel.call(touch);
      auto kept = touched ? Result<void>() : fail(touched.error());
      if (kept && one.look) kept = look_at_lifetimes(channel, keys, lifetime);
      if (kept) continue;
      all = kept;
      if (!channel.spans_servers()) break;  // a shard that is away says nothing of the others
    }
    return all;
  });
}

Result<void> renew_blobs(RedisClient& session, std::span<const codec::Digest> digests, Deadline deadline) {
  return session.run(Use::kPublish, deadline, [&](Conversation& channel) -> Result<void> {
    for (size_t at = 0; at < digests.size(); at += kBlobsAtOnce) {
      const auto some = digests.subspan(at, std::min(kBlobsAtOnce, digests.size() - at));
      INDUCTORFS_TRY(BlobShelf(session, channel, {some.begin(), some.end()}).look());
    }
    return {};
  });
}

}  // namespace inductorfs::remote
