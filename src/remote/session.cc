// SPDX-License-Identifier: Apache-2.0
#include "session.h"

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

}  // namespace

void Channel::hear() {
  if (heard_) return;
  heard_ = true;
  on_first_reply_();
}

Result<void> Channel::pipeline(const std::vector<redis::Command>& commands, const OnReply& on_reply) {
  if (deadline_.passed()) return fail(ErrorCode::kTimedOut, "no time left");
  return connection_.pipeline(commands, {deadline_.left(), without_progress_}, [&](size_t index, redis::Reply&& reply) {
    hear();
    return on_reply(index, std::move(reply));
  });
}

Result<std::vector<redis::Reply>> Channel::call_all(const std::vector<redis::Command>& commands) {
  std::vector<redis::Reply> replies;
  replies.reserve(commands.size());
  INDUCTORFS_TRY(pipeline(commands, [&](size_t, redis::Reply&& reply) -> Result<void> {
    replies.push_back(std::move(reply));
    return {};
  }));
  return replies;
}

Result<redis::Reply> Channel::call(const redis::Command& command) {
  auto replies = call_all({command});
  if (!replies) return fail(std::move(replies).error());
  return std::move(replies->front());
}

Result<redis::Reply> Channel::call_blocking(const redis::Command& command, Milliseconds block,
                                            const std::function<bool()>& cancelled) {
  return connection_.call_blocking(command, block, cancelled);
}

Session::Session(RemoteOptions options, redis::Endpoint endpoint, Counters& counters)
    : options_(std::move(options)),
      endpoint_(std::move(endpoint)),
      counters_(counters),
      opened_(counters.get("remote.connections_opened")),
      refused_(counters.get("remote.breaker_refused")),
      breaker_opened_(counters.get("remote.breaker_opened")),
      pool_(
          [this](Deadline deadline) {
            opened_.add();
            return redis::Connection::open(endpoint_, deadline.earlier(options_.connect_patience));
          },
          {options_.connections, kPublishConnections, kControlConnections, kFollowConnections}),
      breaker_({}) {}

Result<void> Session::run(Use use, Deadline deadline, const Talk& talk) {
  if (deadline.passed()) return fail(ErrorCode::kTimedOut, "no time left");
  Breaker::Ticket ticket = breaker_.admit(now());
  if (ticket == Breaker::Ticket::kRefused) {
    refused_.add();
    const std::string last = condition_.with([](const Condition& condition) { return condition.last_error; });
    return fail(ErrorCode::kUnavailable, "resting after: " + last);
  }
  return attempt(use, deadline, talk, ticket);
}

Result<void> Session::attempt(Use use, Deadline deadline, const Talk& talk, Breaker::Ticket& ticket) {
  for (auto freshness : {ConnectionPool::Freshness::kAny, ConnectionPool::Freshness::kNew}) {
    auto lease = pool_.take(use, deadline, freshness);
    if (!lease) {
      settle(lease.error(), lease.error().code() != ErrorCode::kBusy, ticket);
      const ErrorCode code = lease.error().code() == ErrorCode::kBusy ? ErrorCode::kTimedOut : lease.error().code();
      return fail(code, lease.error().what());
    }
    const Milliseconds quiet = use == Use::kFetch     ? options_.without_progress
                               : use == Use::kPublish ? kPublishWithoutProgress
                                                      : kBackgroundWithoutProgress;
    Channel channel(lease->connection(), deadline, std::max(quiet, options_.without_progress), [&] {
      // At the first reply, not at the end: a probe that then rests in XREAD must not hold up everybody else.
      breaker_.succeeded(ticket);
      ticket = Breaker::Ticket::kNormal;
      note_success();
    });
    auto outcome = talk(channel);
    if (outcome) {
      if (!channel.heard()) breaker_.abandoned(ticket);
      return outcome;
    }
    const ErrorCode code = outcome.error().code();
    const bool dead_before = lease->reused() && !channel.heard() && code == ErrorCode::kUnavailable;
    if (dead_before && freshness == ConnectionPool::Freshness::kAny) continue;
    const bool silent = code == ErrorCode::kTimedOut && !deadline.passed();
    const bool ours = code == ErrorCode::kBusy || !lease->connection().broken();
    settle(outcome.error(), !ours && (silent || !channel.heard()), ticket);
    return outcome;
  }
  breaker_.abandoned(ticket);
  return fail(ErrorCode::kUnavailable);
}

void Session::settle(const Error& error, bool server_fault, Breaker::Ticket ticket) {
  condition_.with([&](Condition& condition) {
    if (server_fault) condition.reachable = false;
    if (error.code() != ErrorCode::kBusy) condition.last_error = error.to_string();
  });
  if (!server_fault) {
    breaker_.abandoned(ticket);
  } else if (breaker_.failed(ticket, now())) {
    breaker_opened_.add();
  }
}

void Session::note_success() {
  condition_.with([](Condition& condition) {
    condition.reachable = true;
    condition.last_error.clear();
  });
}

Remote::Health Session::health() const {
  return condition_.with([&](const Condition& condition) {
    return Remote::Health{condition.reachable, endpoint_.to_string(), condition.last_error};
  });
}

}  // namespace inductorfs::remote
