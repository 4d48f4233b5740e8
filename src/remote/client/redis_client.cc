// SPDX-License-Identifier: Apache-2.0
#include "remote/client/redis_client.h"

#include <algorithm>
#include <utility>

#include "remote/client/cluster_conversation.h"

namespace inductorfs::remote {
namespace {

/// How often a conversation that must stay at one server begins anew, because its slot has moved.
constexpr int kMovesMost = 5;

/// Ends a conversation with one master when its slot moves. Confined to the calling thread.
class SlotConversation final : public Conversation {
 public:
  SlotConversation(ServerConversation& server, Shards& shards, const redis::Endpoint& endpoint, bool& moved)
      : server_(server), shards_(shards), endpoint_(endpoint), moved_(moved) {}

  Result<void> pipeline(const std::vector<redis::Command>& commands, const OnReply& on_reply) override {
    return server_.pipeline(commands, [&](size_t index, redis::Reply&& reply) -> Result<void> {
      if (!reply.is_error()) return on_reply(index, std::move(reply));
      const auto redirect = parse_redirect(reply.text, {endpoint_.host, endpoint_.port});
      if (!redirect && !reply.text.starts_with("TRYAGAIN ")) return on_reply(index, std::move(reply));
      if (redirect && redirect->kind == Redirect::Kind::kMoved) {
        shards_.moved(redirect->slot, redirect->to);
        moved_ = true;
      }
      return fail(ErrorCode::kUnavailable, "its slot of the Redis Cluster is moving to another shard");
    });
  }
  Result<void> pipeline_in_any_order(const std::vector<redis::Command>& commands, const OnReply& on_reply) override {
    return pipeline(commands, on_reply);
  }
  bool spans_servers() const override { return false; }
  Deadline deadline() const override { return server_.deadline(); }

 private:
  ServerConversation& server_;
  Shards& shards_;
  const redis::Endpoint& endpoint_;
  bool& moved_;
};

}  // namespace

RedisClient::Shared::Shared(RemoteOptions given, redis::Endpoint to, Counters& all)
    : options(std::move(given)),
      address(to.to_string()),
      counters(all),
      breaker_open(all.get("remote.breaker_open")),
      redirects(all.get("remote.redirects")) {
  if (to.cluster.empty()) {
    if (to.sentinels) masters = std::make_unique<redis::MasterWatch>(to);
    server = std::make_unique<ServerLink>(std::move(to), options, all);
  } else {
    shards = std::make_unique<Shards>(std::move(to), options, all);
  }
}

RedisClient::Shared::~Shared() = default;

RedisClient::RedisClient(RemoteOptions options, redis::Endpoint endpoint, Counters& counters)
    : shared_(std::make_shared<Shared>(std::move(options), std::move(endpoint), counters)) {}

RedisClient RedisClient::cancellable(std::function<bool()> cancelled) const {
  RedisClient other = *this;
  other.cancelled_ = std::move(cancelled);
  return other;
}

CallTerms RedisClient::terms(Use use, Deadline deadline, Budget* budget) const {
  return {use, deadline, budget, cancelled_ ? &cancelled_ : nullptr};
}

Result<void> RedisClient::check_time(Deadline deadline) const {
  if (deadline.passed()) return fail(ErrorCode::kTimedOut, "no time left");
  if (cancelled()) return fail(ErrorCode::kUnavailable, "cancelled");
  return {};
}

Result<void> RedisClient::finish(Result<void> outcome) const {
  const bool troubled = shared_->shards ? shared_->shards->troubled() : shared_->server->troubled();
  shared_->breaker_open.set(troubled ? 1 : 0);
  if (shared_->shards) shared_->shards->ended(outcome);
  if (!outcome && outcome.error().code() == ErrorCode::kBusy && cancelled()) {
    return fail(ErrorCode::kUnavailable, "cancelled");
  }
  return outcome;
}

Result<void> RedisClient::run_on(ServerLink& link, const CallTerms& terms, const ServerTalk& talk) {
  ServerTurn turn(link, terms);
  INDUCTORFS_TRY(turn.admit());
  for (const auto freshness : {ConnectionPool::Freshness::kAny, ConnectionPool::Freshness::kNew}) {
    INDUCTORFS_TRY(turn.connect(freshness));
    ServerConversation channel(turn, terms.deadline);
    auto outcome = talk(channel);
    if (outcome && !turn.is_current()) {
      turn.succeed();
      return fail(ErrorCode::kUnavailable, "the Sentinels have named another master meanwhile");
    }
    if (outcome) {
      turn.succeed();
      return outcome;
    }
    if (freshness == ConnectionPool::Freshness::kAny && turn.died_before(outcome.error())) continue;
    return fail(turn.end(outcome.error()));
  }
  return fail(ErrorCode::kUnavailable);
}

Result<void> RedisClient::run(Use use, Deadline deadline, const Talk& talk, Budget* budget) {
  INDUCTORFS_TRY(check_time(deadline));
  const CallTerms all = terms(use, deadline, budget);
  if (shared_->server) return finish(run_on(*shared_->server, all, talk));
  ClusterConversation channel(*shared_->shards, all, shared_->redirects);
  return finish(talk(channel));
}

Result<void> RedisClient::run_blocking(Use use, Deadline deadline, const ServerTalk& talk) {
  INDUCTORFS_TRY(check_time(deadline));
  INDUCTORFS_CHECK(shared_->server != nullptr);
  return finish(run_on(*shared_->server, terms(use, deadline), talk));
}

Result<void> RedisClient::run_at(std::string_view key, Use use, Deadline deadline, const Talk& talk) {
  if (shared_->server) return run(use, deadline, talk);
  INDUCTORFS_TRY(check_time(deadline));
  const CallTerms all = terms(use, deadline);
  const uint16_t slot = slot_of_key(key);
  for (int i = 0; true; ++i) {
    bool moved = false;
    auto outcome = run_at_once(slot, all, talk, moved);
    if (outcome || !moved || i == kMovesMost || deadline.passed()) return finish(std::move(outcome));
    shared_->redirects.add();
  }
}

Result<void> RedisClient::run_at_once(uint16_t slot, const CallTerms& terms, const Talk& talk, bool& moved) {
  Shards& shards = *shared_->shards;
  INDUCTORFS_TRY(shards.prepare(terms));
  const Shards::Link link = shards.of(slot);
  if (link == nullptr) {
    shards.doubt();
    return fail(ErrorCode::kUnavailable, "no server of the Redis Cluster serves slot " + std::to_string(slot));
  }
  auto outcome = run_on(*link, terms, [&](ServerConversation& server) {
    SlotConversation channel(server, shards, link->endpoint(), moved);
    return talk(channel);
  });
  if (outcome || moved) return outcome;
  shards.doubt();
  // Perhaps the slot has another master by now, for instance one that was a replica.
  if (link->troubled() && !terms.is_cancelled() && shards.prepare(terms)) moved = shards.of(slot) != link;
  return outcome;
}

Result<void> RedisClient::for_each_server(Use use, Deadline deadline, const EachTalk& talk) {
  INDUCTORFS_TRY(check_time(deadline));
  const CallTerms all = terms(use, deadline);
  const auto with = [&](ServerLink& link, const CallTerms& some) {
    talk(link.endpoint().to_string(), [&](const Talk& what) { return finish(run_on(link, some, what)); });
  };
  if (shared_->server) {
    with(*shared_->server, all);
    return {};
  }
  INDUCTORFS_TRY(shared_->shards->prepare(all));
  const auto masters = shared_->shards->masters();
  for (size_t i = 0; i < masters.size(); ++i) {
    CallTerms share = all;
    share.deadline = deadline.earlier(deadline.left() / static_cast<Milliseconds::rep>(masters.size() - i));
    with(*masters[i], share);
  }
  return {};
}

void RedisClient::refused(const Error& error) {
  if (shared_->server) shared_->server->refused(error);
}

bool RedisClient::resting() const { return shared_->server ? shared_->server->resting() : shared_->shards->resting(); }

void RedisClient::hang_up(Use use) {
  if (shared_->server) {
    shared_->server->pool().drop_idle(use);
  } else {
    shared_->shards->doubt();
  }
}

void RedisClient::close_idle() {
  if (shared_->server) {
    shared_->server->pool().drop_unused(options().idle_lifetime);
  } else {
    shared_->shards->close_idle(options().idle_lifetime);
  }
}

Operators::Health RedisClient::health() const {
  const auto condition = shared_->server ? shared_->server->condition() : shared_->shards->condition();
  return Operators::Health{condition.reachable, shared_->address, condition.last_error};
}

std::unique_ptr<ChannelListeners> RedisClient::take_listeners() {
  auto listeners = shared_->listeners.with([](auto& parked) { return std::move(parked); });
  if (listeners == nullptr) listeners = std::make_unique<ChannelListeners>(*shared_->shards, shared_->options);
  return listeners;
}

void RedisClient::put_back(std::unique_ptr<ChannelListeners> listeners) {
  shared_->listeners.with([&](auto& parked) { parked = std::move(listeners); });
}

}  // namespace inductorfs::remote
