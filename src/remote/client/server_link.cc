// SPDX-License-Identifier: Apache-2.0
#include "remote/client/server_link.h"

#include <algorithm>
#include <utility>

namespace inductorfs::remote {
namespace {

constexpr size_t kPublishConnections = 2;
constexpr size_t kControlConnections = 4;  ///< of which a scan holds one while it uses another
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

ServerLink::ServerLink(redis::Endpoint endpoint, const RemoteOptions& options, Counters& counters)
    : endpoint_(std::move(endpoint)),
      options_(options),
      opened_(counters.get("remote.connections_opened")),
      refused_(counters.get("remote.breaker_refused")),
      breaker_opened_(counters.get("remote.breaker_opened")),
      pool_({options.connections, kPublishConnections, kControlConnections, kFollowConnections},
            [this] { return endpoint_.sentinels == nullptr ? 0 : endpoint_.sentinels->changes.load(); }),
      breaker_({}),
      fetches_({}) {}

bool ServerLink::resting() const { return breaker_.refuses(now()) || fetches_.refuses(now()); }

void ServerLink::refused(const Error& error) {
  condition_.with([&](Condition& condition) { condition.last_error = error.text(); });
  if (fetches_.failed(Breaker::Ticket::kNormal, now())) breaker_opened_.add();
}

ServerTurn::ServerTurn(ServerTurn&& other) noexcept
    : link_(other.link_),
      terms_(other.terms_),
      ticket_(other.ticket_),
      fetch_ticket_(other.fetch_ticket_),
      lease_(std::move(other.lease_)),
      admitted_(std::exchange(other.admitted_, false)),
      heard_(other.heard_),
      patient_(other.patient_) {}

ServerTurn::~ServerTurn() {
  if (admitted_) abandon();
}

Result<void> ServerTurn::admit() {
  patient_ = terms_.use != Use::kFetch && terms_.deadline.left() >= kBackgroundWithoutProgress;
  ticket_ = link_->breaker_.admit(now(), patient_);
  if (ticket_ != Breaker::Ticket::kRefused && terms_.use == Use::kFetch) {
    fetch_ticket_ = link_->fetches_.admit(now());
    if (fetch_ticket_ == Breaker::Ticket::kRefused) link_->breaker_.abandoned(ticket_);
  }
  admitted_ = ticket_ != Breaker::Ticket::kRefused && fetch_ticket_ != Breaker::Ticket::kRefused;
  if (admitted_) return {};
  link_->refused_.add();
  return fail(ErrorCode::kUnavailable, link_->condition().last_error + "; it is asked again in a moment");
}

bool ServerTurn::take_idle() {
  auto lease = link_->pool_.take_idle(terms_.use);
  if (lease) lease_.emplace(std::move(*lease));
  return lease_.has_value();
}

Result<void> ServerTurn::connect(ConnectionPool::Freshness freshness) {
  lease_.reset();
  auto lease = link_->pool_.take(
      terms_.use, terms_.deadline,
      [&](Deadline until) {
        link_->opened_.add();
        return redis::Connection::open(link_->endpoint_, until.earlier(link_->options_.connect_patience),
                                       terms_.cancelled, terms_.budget);
      },
      freshness, terms_.budget);
  if (lease) {
    lease_.emplace(std::move(*lease));
    return {};
  }
  const bool busy = lease.error().code() == ErrorCode::kBusy;
  const Error error = busy && !terms_.is_cancelled() ? Error(ErrorCode::kTimedOut, lease.error().what())
                                                     : verdict(lease.error(), terms_.use);
  settle(error, !busy);
  return fail(error);
}

redis::Patience ServerTurn::patience() const {
  const RemoteOptions& options = link_->options_;
  const Milliseconds quiet = terms_.use == Use::kFetch     ? options.without_progress
                             : terms_.use == Use::kPublish ? kPublishWithoutProgress
                                                           : kBackgroundWithoutProgress;
  return {terms_.deadline.left(), std::max(quiet, options.without_progress), terms_.cancelled, terms_.budget};
}

void ServerTurn::hear() {
  if (heard_) return;
  heard_ = true;
  link_->breaker_.succeeded(ticket_);
  ticket_ = Breaker::Ticket::kNormal;
  link_->condition_.with([](ServerLink::Condition& condition) { condition.reachable = true; });
}

bool ServerTurn::died_before(const Error& error) const {
  return lease_ && lease_->reused() && !heard_ && error.code() == ErrorCode::kUnavailable;
}

void ServerTurn::succeed() {
  if (!heard_) return abandon();
  admitted_ = false;
  link_->condition_.with([](ServerLink::Condition& condition) { condition.last_error.clear(); });
  if (terms_.use == Use::kFetch) link_->fetches_.succeeded(fetch_ticket_);
}

Error ServerTurn::end(const Error& error) {
  const ErrorCode code = error.code();
  const bool silent = code == ErrorCode::kTimedOut && !terms_.deadline.passed();
  const bool ours = code == ErrorCode::kBusy || !lease_ || !connection().broken();
  Error told = ours ? error : verdict(error, terms_.use);
  settle(told, !ours && (silent || !heard_));
  return told;
}

void ServerTurn::abandon() {
  admitted_ = false;
  link_->breaker_.abandoned(ticket_);
  link_->fetches_.abandoned(fetch_ticket_);
}

void ServerTurn::settle(const Error& error, bool server_fault) {
  link_->condition_.with([&](ServerLink::Condition& condition) {
    if (server_fault) condition.reachable = false;
    if (error.code() != ErrorCode::kBusy) condition.last_error = error.text();
  });
  if (!server_fault) return abandon();
  admitted_ = false;
  // Without a connection it is nothing about fetches: whoever gets one first may tell all others that it is over.
  const bool fetch = terms_.use == Use::kFetch;
  const auto how = error.code() != ErrorCode::kTimedOut ? Breaker::Failure::kRefused
                   : patient_                           ? Breaker::Failure::kSilent
                                                        : Breaker::Failure::kHasty;
  bool opened = false;
  if (fetch && lease_) {
    opened = link_->fetches_.failed(fetch_ticket_, now(), how);
  } else {
    link_->fetches_.abandoned(fetch_ticket_);
  }
  if (!fetch || !heard_) opened |= link_->breaker_.failed(ticket_, now(), how);
  if (opened) link_->breaker_opened_.add();
}

}  // namespace inductorfs::remote
