// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <algorithm>
#include <utility>

#include "group.h"
#include "head.h"
#include "keys.h"
#include "redis_operations.h"

// One wait for all scopes, at a cost that does not grow with what others publish elsewhere: XREAD names the streams
// that have something, and only a follower that hears nothing looks, now and then, at what XREAD cannot tell.
namespace inductorfs::remote {
namespace {

using redis::Reply;

constexpr Milliseconds kIdleSlice{100};

/// Waits on several scopes. Confined to the calling thread.
class ScopeWaiter {
 public:
  ScopeWaiter(RedisClient& session, HeadWatch& heads, const std::vector<std::pair<ScopeId, Position>>& scopes,
              const std::function<bool()>& cancelled)
      : session_(session), heads_(heads), scopes_(scopes), cancelled_(cancelled) {
    for (const auto& [scope, position] : scopes) {
      keys_.emplace_back(session.options().prefix, scope);
      ids_.push_back(std::to_string(position.generation) + "-0");
    }
  }

  Result<std::vector<ScopeId>> run(Conversation& channel) {
    if (channel.fresh()) heads_.forget();
    auto moved = look_at(channel, unconfirmed());
    while (moved && moved->empty() && !cancelled_() && !channel.deadline().passed()) {
      if (std::chrono::steady_clock::now() >= heads_.due()) {
        moved = look_at(channel, all());
        if (!moved || !moved->empty()) break;
      }
      moved = rest(channel);
      session_.close_idle();
    }
    return moved;
  }

 private:
  [[nodiscard]] std::vector<size_t> all() const {
    std::vector<size_t> places(scopes_.size());
    for (size_t i = 0; i < places.size(); ++i) places[i] = i;
    return places;
  }
  [[nodiscard]] std::vector<size_t> unconfirmed() const {
    std::vector<size_t> places = all();
    std::erase_if(places, [&](size_t i) { return heads_.is_confirmed(scopes_[i].first, scopes_[i].second); });
    return places;
  }

  // Which of them are elsewhere.
  Result<std::vector<ScopeId>> look_at(Conversation& channel, const std::vector<size_t>& places) {
    std::vector<ScopeId> moved;
    if (places.empty()) return moved;
    std::vector<redis::Command> commands;
    commands.reserve(places.size());
    for (const size_t i : places) commands.push_back({"HMGET", keys_[i].meta, "gen", "nonce"});
    INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all(commands));
    for (size_t i = 0; i < replies.size(); ++i) {
      const auto& [scope, position] = scopes_[places[i]];
      auto head = head_of(replies[i]);
      const bool has_meta = head && (head->exists || position == Position{});
      if (head && !has_meta) head = look_at_index(channel, keys_[places[i]]);
      if (!head) return fail(std::move(head).error());
      if (head->position == position) {
        heads_.confirm(scope, position, has_meta);
      } else {
        moved.push_back(scope);
      }
    }
    if (places.size() == scopes_.size()) heads_.looked(scopes_.size());
    return moved;
  }

  static Result<Head> look_at_index(Conversation& channel, const ScopeKeys& keys) {
    INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all(look_without_meta(keys)));
    return head_without_meta(replies[0], replies[1]);
  }

  Result<std::vector<ScopeId>> rest(Conversation& channel) {
    Milliseconds block = std::min(channel.deadline().left(), session_.options().follow_rest);
    block = std::max(std::min(block, Deadline(heads_.due()).left()), Milliseconds(1));
    const std::string milliseconds = std::to_string(block.count());
    redis::Command command = {"XREAD", "COUNT", "1", "BLOCK", milliseconds, "STREAMS"};
    for (const ScopeKeys& keys : keys_) command.push_back(keys.log);
    for (const std::string& id : ids_) command.push_back(id);
    INDUCTORFS_TRY_ASSIGN(auto reply, channel.call_blocking(command, block, cancelled_));
    if (reply.is_error()) return fail(redis::to_error(reply));
    if (reply.kind != Reply::Kind::kArray) {
      // What follows is a look at all heads, which says more.
      return std::chrono::steady_clock::now() < heads_.due() ? gone(channel) : std::vector<ScopeId>();
    }
    std::vector<ScopeId> named;
    for (const Reply& stream : reply.items) {
      if (stream.items.empty()) return fail(redis::to_error(stream));
      const auto keys = std::ranges::find(keys_, stream.items[0].text, &ScopeKeys::log);
      if (keys != keys_.end()) named.push_back(scopes_[static_cast<size_t>(keys - keys_.begin())].first);
    }
    return named;
  }

  // Nothing came. Of a server that was emptied, or has evicted a head, one command tells.
  Result<std::vector<ScopeId>> gone(Conversation& channel) {
    redis::Command command = {"EXISTS"};
    for (size_t i = 0; i < scopes_.size(); ++i) {
      if (scopes_[i].second == Position{}) continue;
      command.push_back(heads_.has_meta(scopes_[i].first) ? keys_[i].meta : keys_[i].index);
    }
    if (command.size() == 1) return std::vector<ScopeId>();
    INDUCTORFS_TRY_ASSIGN(auto reply, channel.call(command));
    if (reply.kind != Reply::Kind::kInteger) return fail(redis::to_error(reply));
    if (reply.integer == static_cast<int64_t>(command.size()) - 1) return std::vector<ScopeId>();
    return look_at(channel, all());
  }

  RedisClient& session_;
  HeadWatch& heads_;
  const std::vector<std::pair<ScopeId, Position>>& scopes_;
  const std::function<bool()>& cancelled_;
  std::vector<ScopeKeys> keys_;
  std::vector<std::string> ids_;
};

}  // namespace

Result<std::vector<ScopeId>> wait_for_scopes(RedisClient& session, HeadWatch& heads,
                                             const std::vector<std::pair<ScopeId, Position>>& scopes, Milliseconds most,
                                             const std::function<bool()>& cancelled) {
  const Deadline deadline = Deadline::after(most);
  for (const auto& [scope, position] : scopes) INDUCTORFS_TRY(check_scope(scope));
  session.close_idle();
  heads.keep_only(scopes);
  std::vector<ScopeId> moved;
  while (scopes.empty() && !deadline.passed() && !cancelled()) {
    (void)::poll(nullptr, 0, static_cast<int>(std::min(deadline.left(), kIdleSlice).count()));  // nothing to follow
  }
  if (scopes.empty() || deadline.passed() || cancelled()) return moved;
  auto outcome = session.run(Use::kFollow, deadline, [&](Conversation& channel) -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(auto named, ScopeWaiter(session, heads, scopes, cancelled).run(channel));
    moved = std::move(named);
    return {};
  });
  if (!outcome && (cancelled() || (deadline.passed() && outcome.error().code() == ErrorCode::kTimedOut))) return moved;
  if (!outcome) return fail(std::move(outcome).error());
  return moved;
}

}  // namespace inductorfs::remote
