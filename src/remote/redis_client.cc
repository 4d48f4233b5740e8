// SPDX-License-Identifier: Apache-2.0
#include "redis_client.h"

#include <algorithm>
#include <utility>

namespace inductorfs::remote {
namespace {

constexpr size_t kPublishConnections = 2;
constexpr size_t kControlConnections = 2;
constexpr size_t kFollowConnections = 2;
/// Nobody waits for a publish, and a server that writes its snapshot to disk may pause for longer than a reader bears.
constexpr Milliseconds kPublishWithoutProgress{5000};
/// EVAL of a large group and the first HSCAN of a large index come late on a busy server; no job waits for them.
constexpr Milliseconds kBackgroundWithoutProgress{2000};

SteadyTime now() { return std::chrono::steady_clock::now(); }

// Of a connection's end. What is no protocol says nothing about the artefact that was on its way.
Error verdict(const Error& error, Use use) {
  if (error.code() != ErrorCode::kCorrupt) return error;
  const bool transfer = use == Use::kFetch || use == Use::kPublish;
  return Error(transfer ? ErrorCode::kUnavailable : ErrorCode::kCorrupt, "this is no Redis server: " + error.what());
}

}  // namespace

void Conversation::hear() {
  if (heard_) return;
  heard_ = true;
  on_first_reply_();
}

Result<void> Conversation::pipeline(const std::vector<redis::Command>& commands, const OnReply& on_reply) {
  if (deadline_.passed()) return fail(ErrorCode::kTimedOut, "no time left");
  const redis::Patience patience{deadline_.left(), bounds_.without_progress, bounds_.cancelled, bounds_.budget};
  return connection_.pipeline(commands, patience, [&](size_t index, redis::Reply&& reply) {
    hear();
    return on_reply(index, std::move(reply));
  });
}

Result<std::vector<redis::Reply>> Conversation::call_all(const std::vector<redis::Command>& commands) {
  std::vector<redis::Reply> replies;
  replies.reserve(commands.size());
  INDUCTORFS_TRY(pipeline(commands, [&](size_t, redis::Reply&& reply) -> Result<void> {
    replies.push_back(std::move(reply));
    return {};
  }));
  return replies;
}

Result<redis::Reply> Conversation::call(const redis::Command& command) {
  INDUCTORFS_TRY_ASSIGN(auto replies, call_all({command}));
  return std::move(replies.front());
}

Result<redis::Reply> Conversation::call_blocking(const redis::Command& command, Milliseconds block,
                                                 const std::function<bool()>& cancelled) {
  auto reply = connection_.call_blocking(command, block, cancelled);
  if (reply) hear();
  return reply;
}

RedisClient::Shared::Shared(RemoteOptions given, redis::Endpoint server, Counters& all)
    : options(std::move(given)),
      endpoint(std::move(server)),
      counters(all),
      opened(all.get("remote.connections_opened")),
      refused(all.get("remote.breaker_refused")),
      breaker_opened(all.get("remote.breaker_opened")),
      breaker_open(all.get("remote.breaker_open")),
      pool({options.connections, kPublishConnections, kControlConnections, kFollowConnections}),
      breaker({}),
      fetches({}) {}

RedisClient::RedisClient(RemoteOptions options, redis::Endpoint endpoint, Counters& counters)
    : shared_(std::make_shared<Shared>(std::move(options), std::move(endpoint), counters)) {}

RedisClient RedisClient::cancellable(std::function<bool()> cancelled) const {
  RedisClient other = *this;
  other.cancelled_ = std::move(cancelled);
  return other;
}

Result<void> RedisClient::admit(Call& call) {
  call.ticket = shared_->breaker.admit(now());
  if (call.ticket != Breaker::Ticket::kRefused && call.use == Use::kFetch) {
    call.fetch_ticket = shared_->fetches.admit(now());
    if (call.fetch_ticket == Breaker::Ticket::kRefused) shared_->breaker.abandoned(call.ticket);
  }
  if (call.ticket != Breaker::Ticket::kRefused && call.fetch_ticket != Breaker::Ticket::kRefused) return {};
  shared_->refused.add();
  const std::string last = shared_->condition.with([](const Condition& condition) { return condition.last_error; });
  return fail(ErrorCode::kUnavailable, "resting after: " + last);
}

bool RedisClient::resting() const { return shared_->breaker.refuses(now()) || shared_->fetches.refuses(now()); }

Result<void> RedisClient::run(Use use, Deadline deadline, const Talk& talk, Budget* budget) {
  if (deadline.passed()) return fail(ErrorCode::kTimedOut, "no time left");
  if (cancelled()) return fail(ErrorCode::kUnavailable, "cancelled");
  Call call{use, deadline, budget};
  INDUCTORFS_TRY(admit(call));
  auto outcome = attempt(talk, call);
  shared_->breaker_open.set(shared_->breaker.open() || shared_->fetches.open() ? 1 : 0);
  if (!outcome && outcome.error().code() == ErrorCode::kBusy && cancelled()) {
    return fail(ErrorCode::kUnavailable, "cancelled");
  }
  return outcome;
}

Result<ConnectionPool::Lease> RedisClient::connect(const Call& call, ConnectionPool::Freshness freshness) {
  return shared_->pool.take(
      call.use, call.deadline,
      [&](Deadline until) {
        shared_->opened.add();
        return redis::Connection::open(shared_->endpoint, until.earlier(shared_->options.connect_patience),
                                       cancelled_ ? &cancelled_ : nullptr, call.budget);
      },
      freshness, call.budget);
}

Conversation::Bounds RedisClient::bounds(const Call& call) const {
  const Milliseconds quiet = call.use == Use::kFetch     ? options().without_progress
                             : call.use == Use::kPublish ? kPublishWithoutProgress
                                                         : kBackgroundWithoutProgress;
  return {std::max(quiet, options().without_progress), cancelled_ ? &cancelled_ : nullptr, call.budget};
}

Result<void> RedisClient::attempt(const Talk& talk, Call& call) {
  for (auto freshness : {ConnectionPool::Freshness::kAny, ConnectionPool::Freshness::kNew}) {
    auto lease = connect(call, freshness);
    call.connected = lease.has_value();
    if (!lease) {
      const bool waited = lease.error().code() == ErrorCode::kBusy && !cancelled();
      const Error error = waited ? Error(ErrorCode::kTimedOut, lease.error().what()) : verdict(lease.error(), call.use);
      settle(error, lease.error().code() != ErrorCode::kBusy, call);
      return fail(error);
    }
    const bool fresh = !lease->reused() || call.ticket != Breaker::Ticket::kNormal;
    Conversation channel(lease->connection(), fresh, call.deadline, bounds(call), [&] {
      // At the first reply, not at the end: a probe that then rests in XREAD must not hold up everybody else.
      shared_->breaker.succeeded(call.ticket);
      call.ticket = Breaker::Ticket::kNormal;
      call.heard = true;
      shared_->condition.with([](Condition& condition) { condition.reachable = true; });
    });
    auto outcome = talk(channel);
    if (outcome) {
      if (channel.heard()) shared_->condition.with([](Condition& condition) { condition.last_error.clear(); });
      if (channel.heard() && call.use == Use::kFetch) {
        shared_->fetches.succeeded(call.fetch_ticket);
      } else if (!channel.heard()) {
        abandon(call);
      }
      return outcome;
    }
    const ErrorCode code = outcome.error().code();
    const bool dead_before = lease->reused() && !channel.heard() && code == ErrorCode::kUnavailable;
    if (dead_before && freshness == ConnectionPool::Freshness::kAny) continue;
    const bool silent = code == ErrorCode::kTimedOut && !call.deadline.passed();
    const bool ours = code == ErrorCode::kBusy || !lease->connection().broken();
    if (!ours) outcome = fail(verdict(outcome.error(), call.use));
    settle(outcome.error(), !ours && (silent || !channel.heard()), call);
    return outcome;
  }
  abandon(call);
  return fail(ErrorCode::kUnavailable);
}

void RedisClient::abandon(const Call& call) {
  shared_->breaker.abandoned(call.ticket);
  shared_->fetches.abandoned(call.fetch_ticket);
}

void RedisClient::settle(const Error& error, bool server_fault, const Call& call) {
  shared_->condition.with([&](Condition& condition) {
    if (server_fault) condition.reachable = false;
    if (error.code() != ErrorCode::kBusy) condition.last_error = error.to_string();
  });
  if (!server_fault) return abandon(call);
  // Without a connection it is nothing about fetches: whoever gets one first may tell all others that it is over.
  const bool fetch = call.use == Use::kFetch;
  const auto how = error.code() == ErrorCode::kTimedOut ? Breaker::Failure::kSilent : Breaker::Failure::kRefused;
  bool opened = false;
  if (fetch && call.connected) {
    opened = shared_->fetches.failed(call.fetch_ticket, now(), how);
  } else {
    shared_->fetches.abandoned(call.fetch_ticket);
  }
  if (!fetch || !call.heard) opened |= shared_->breaker.failed(call.ticket, now(), how);
  if (opened) shared_->breaker_opened.add();
}

void RedisClient::refused(const Error& error) {
  shared_->condition.with([&](Condition& condition) { condition.last_error = error.to_string(); });
  if (shared_->fetches.failed(Breaker::Ticket::kNormal, now())) shared_->breaker_opened.add();
}

Remote::Health RedisClient::health() const {
  return shared_->condition.with([&](const Condition& condition) {
    return Remote::Health{condition.reachable, shared_->endpoint.to_string(), condition.last_error};
  });
}

}  // namespace inductorfs::remote
