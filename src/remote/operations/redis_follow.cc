// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <algorithm>
#include <utility>

#include "remote/formats/group.h"
#include "remote/formats/head.h"
#include "remote/formats/keys.h"
#include "remote/operations/redis_operations.h"
#include "remote/operations/scope_looks.h"

// One wait for all scopes, at a cost that does not grow with what others publish elsewhere: XREAD names the streams
// that have something, and only a follower that hears nothing looks, now and then, at what XREAD cannot tell.
namespace inductorfs::remote {
namespace {

using redis::Reply;

constexpr Milliseconds kIdleSlice{100};
constexpr Milliseconds kKeepPatience{2'000};

/// Waits on several scopes of one server. Confined to the calling thread.
class ScopeWaiter {
 public:
  ScopeWaiter(RedisClient& session, HeadWatch& heads, const std::vector<std::pair<ScopeId, Position>>& scopes,
              const std::function<bool()>& cancelled)
      : session_(session),
        heads_(heads),
        scopes_(scopes),
        cancelled_(cancelled),
        looks_(session.options().prefix, heads, scopes),
        keys_(looks_.keys()) {
    for (const auto& [scope, position] : scopes) ids_.push_back(std::to_string(position.generation) + "-0");
  }

  Result<std::vector<ScopeId>> run(ServerConversation& channel) {
    if (channel.fresh()) heads_.forget();
    auto moved = looks_.look_at(channel, looks_.unconfirmed());
    while (moved && moved->empty() && !cancelled_() && !channel.deadline().passed()) {
      if (std::chrono::steady_clock::now() >= heads_.due()) {
        moved = looks_.look_at(channel, looks_.all());
        if (!moved || !moved->empty()) break;
      }
      moved = rest(channel);
      session_.close_idle();
    }
    return moved;
  }

 private:
  Result<std::vector<ScopeId>> rest(ServerConversation& channel) {
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
    return looks_.look_at(channel, looks_.all());
  }

  RedisClient& session_;
  HeadWatch& heads_;
  const std::vector<std::pair<ScopeId, Position>>& scopes_;
  const std::function<bool()>& cancelled_;
  ScopeLooks looks_;
  const std::vector<ScopeKeys>& keys_;
  std::vector<std::string> ids_;
};

Result<std::vector<ScopeId>> wait_on_server(RedisClient& session, HeadWatch& heads,
                                            const std::vector<std::pair<ScopeId, Position>>& scopes, Deadline deadline,
                                            const std::function<bool()>& cancelled) {
  std::vector<ScopeId> moved;
  INDUCTORFS_TRY(session.run_blocking(Use::kFollow, deadline, [&](ServerConversation& channel) -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(auto named, ScopeWaiter(session, heads, scopes, cancelled).run(channel));
    moved = std::move(named);
    return {};
  }));
  return moved;
}

}  // namespace

Result<std::vector<ScopeId>> RedisRemote::wait_for_changes(const std::vector<std::pair<ScopeId, Position>>& scopes,
                                                           Milliseconds most, const std::function<bool()>& cancelled) {
  // A scope in which nothing happens is not read, and in use all the same.
  std::vector<ScopeId> followed;
  for (const auto& [scope, position] : scopes) followed.push_back(scope);
  keep(followed, Deadline::after(kKeepPatience));
  shared_->blocks.drop_unused(std::chrono::steady_clock::now());
  for (const ScopeId& scope : followed) announce_again(scope, Deadline::after(most));
  HeadWatch& heads = shared_->heads;
  const Deadline deadline = Deadline::after(most);
  for (const auto& [scope, position] : scopes) INDUCTORFS_TRY(check_scope(scope));
  session_.close_idle();
  heads.keep_only(scopes);
  std::vector<ScopeId> moved;
  while (scopes.empty() && !deadline.passed() && !cancelled()) {
    (void)::poll(nullptr, 0, static_cast<int>(std::min(deadline.left(), kIdleSlice).count()));  // nothing to follow
  }
  if (scopes.empty() || deadline.passed() || cancelled()) return moved;
  const auto outcome = session_.shards() != nullptr ? wait_on_cluster(session_, heads, scopes, deadline, cancelled)
                                                    : wait_on_server(session_, heads, scopes, deadline, cancelled);
  if (!outcome && (cancelled() || (deadline.passed() && outcome.error().code() == ErrorCode::kTimedOut))) return moved;
  return outcome;
}

}  // namespace inductorfs::remote
