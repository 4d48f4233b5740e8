// SPDX-License-Identifier: Apache-2.0
#include "catalog/publisher.h"

#include <algorithm>
#include <utility>

#include "catalog/database/publish_codec.h"
#include "catalog/load.h"
#include "inductorfs/base/activity.h"
#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/log.h"
#include "inductorfs/layout/start_list.h"

namespace inductorfs::catalog {
namespace {

/// Somebody waits in drain(): the next attempt comes soon, though not hot.
constexpr Milliseconds kDrainPause{500};
/// Attempts of one group for reasons that are not the cluster's absence; then it stays local, unless the reason is the
/// server's: another program's key in its way, or an answer that no server gives. An operator can mend that.
constexpr uint64_t kAttemptLimit = 20;
/// Until a group is tried again that another host is sending. Most are sent within it.
constexpr Milliseconds kClaimPause{1'000};
/// The longest pause of a parked group, which doubles from Backoff::kFirst.
constexpr Milliseconds kParkedMost{600'000};
constexpr size_t kLostBatch = 64;
constexpr Milliseconds kLostPatience{2'000};
/// For the cluster and for whoever signs.
constexpr Milliseconds kSignPatience{5'000};
/// Entries of one statement.
constexpr size_t kSignedTogether = 256;
constexpr Milliseconds kRenewPatience{10'000};

}  // namespace

std::vector<std::string> paths_of(const Publish& publish) {
  std::vector<std::string> paths;
  paths.reserve(publish.entries.size());
  for (const auto& entry : publish.entries) paths.push_back(entry.path);
  return paths;
}

bool is_temporary(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kUnavailable:
    case ErrorCode::kTimedOut:
    case ErrorCode::kBusy:
    case ErrorCode::kReadOnly:      // a replica that was the master a moment ago
    case ErrorCode::kNotPermitted:  // an operator can lift it
    case ErrorCode::kNoSpace:       // the server's memory, or this host's disk
    case ErrorCode::kOverQuota:     // files that are removed make room
      return true;
    case ErrorCode::kNotFound:
    case ErrorCode::kExists:
    case ErrorCode::kNotDirectory:
    case ErrorCode::kIsDirectory:
    case ErrorCode::kNotEmpty:
    case ErrorCode::kInvalid:
    case ErrorCode::kNameTooLong:
    case ErrorCode::kTooLarge:
    case ErrorCode::kNotSupported:
    case ErrorCode::kCrossDevice:
    case ErrorCode::kNoData:
    case ErrorCode::kNoSuchOffset:
    case ErrorCode::kCorrupt:
    case ErrorCode::kInternal:
      return false;
  }
  return false;
}

void Publisher::run() {
  while (!parts_.stopping) {
    const uint64_t seen = parts_.durable.with([](const Durable& durable) { return durable.wakes; });
    if (parts_.damaged && !std::exchange(told_damage_, true)) tell_damage();
    Work work = next_work(std::chrono::steady_clock::now());
    std::optional<Activity> activity(
        std::in_place, work.id ? "publishes " + work.path : "tells what has become of entries", AwaitedBy::kSync);
    const bool idle = work.returned.empty() && work.reports.empty() && work.lost.empty() && !work.id;
    parts_.tell(work.returned);
    if (!work.reports.empty()) deliver(work.reports);
    if (!work.lost.empty()) report_lost(work.lost);
    if (work.id) publish_one(std::move(work));
    renew_used(std::chrono::steady_clock::now());
    activity.reset();
    if (idle) wait_for_work(seen);
  }
}

void Publisher::stop() {
  parts_.durable.notify_with([](Durable& durable) { ++durable.wakes; });
}

void Publisher::tell_damage() {
  parts_.store.note_damage();
  log::error("catalog.damaged", {{"file", parts_.options.file}});
  if (parts_.on_damage) parts_.on_damage();
}

Publisher::Work Publisher::next_work(SteadyTime now) {
  return parts_.durable.with([&](Durable& durable) {
    Work work;
    if (std::exchange(durable.reachable_again, false)) {
      retry_at_ = lost_retry_at_ = now;
      durable.queue.hurry(now);
    }
    if (parts_.metrics.parked.get() > 0) parts_.metrics.parked.set(durable.queue.parked());
    if (durable.drainers > 0) {
      retry_at_ = std::min(retry_at_, now + kDrainPause);
      durable.queue.hurry(now + kDrainPause);
    }
    work.reports.assign(std::make_move_iterator(durable.undelivered.begin()),
                        std::make_move_iterator(durable.undelivered.end()));
    durable.undelivered.clear();
    work.returned = std::exchange(durable.returned, {});
    const bool may_publish = parts_.may_publish(now);
    while (may_publish && now >= lost_retry_at_ && !durable.lost.empty() && work.lost.size() < kLostBatch) {
      work.lost.push_back(std::move(durable.lost.front()));
      durable.lost.pop_front();
      durable.lost_paths.erase(work.lost.back().entry.path);
    }
    if (may_publish && now >= retry_at_) take_item(durable, work, now);
    // Reports and items hold drain() up until their listeners have run.
    if (!work.reports.empty() && !work.id) durable.in_flight = 0;
    return work;
  });
}

void Publisher::take_item(Durable& durable, Work& work, SteadyTime now) {
  const auto next = durable.queue.next(now).id;
  if (!next) return;
  work.id = durable.in_flight = next;
  durable.in_flight_item = *durable.queue.find(*next);
  work.attempts = durable.in_flight_item.attempts;
  if (!durable.in_flight_item.paths.empty()) work.path = durable.in_flight_item.paths.front();
  auto payload = durable.database.queued_payload(*next);
  if (!payload) {
    parts_.note_failure(payload.error());
    work.readable = fail(std::move(payload).error());
  } else if (!*payload) {
    work.readable = fail(ErrorCode::kCorrupt, "the queue's row is gone");
  } else {
    work.payload = std::move(**payload);
    if (parts_.options.sign && !signed_.contains(*next)) take_ahead(durable, work);
  }
}

void Publisher::take_ahead(Durable& durable, Work& work) {
  std::erase_if(signed_, [&](int64_t id) { return durable.queue.find(id) == nullptr; });
  size_t entries = durable.in_flight_item.paths.size();
  for (const auto& [id, item] : durable.queue.items()) {
    if (id == *work.id || item.scope != durable.in_flight_item.scope || signed_.contains(id)) continue;
    entries += item.paths.size();
    if (entries > kSignedTogether) break;
    auto payload = durable.database.queued_payload(id);
    if (!payload || !*payload) continue;  // its own turn tells
    work.ahead.emplace_back(id, std::move(**payload));
  }
}

void Publisher::wait_for_work(uint64_t seen_wakes) {
  const auto now = std::chrono::steady_clock::now();
  auto wake = now + parts_.options.renew_pause;
  const auto changed = [&](const Durable& durable) { return parts_.stopping || durable.wakes != seen_wakes; };
  parts_.durable.with([&](const Durable& durable) {
    if (!parts_.may_publish(now)) return;  // freeze() and permit_publishing() wake this thread
    if (durable.queue.size() > 0) wake = std::min(wake, std::max(retry_at_, durable.queue.next(now).due));
    if (!durable.lost.empty()) wake = std::min(wake, lost_retry_at_);
  });
  parts_.durable.wait_until(wake, changed, [](const Durable&) {});
}

void Publisher::deliver(const std::vector<PublishReport>& reports) {
  for (const auto& report : reports) {
    if (parts_.on_publish) parts_.on_publish(report);
  }
  parts_.durable.notify_with([](Durable& durable) {
    if (durable.in_flight == 0) durable.in_flight.reset();
  });
}

void Publisher::publish_one(Work work) {
  Item item{*work.id, {}, work.attempts};
  Result<Outcome> outcome = Outcome{};
  if (work.readable) {
    auto decoded = decode_publish(work.payload);
    if (decoded) {
      item.publish = std::move(*decoded);
      fail_point("publish.taken");
      const Result<void> is_signed = sign_with(item, work.ahead);
      outcome = is_signed ? attempt(item) : Result<Outcome>(fail(is_signed.error()));
      fail_point("publish.sent");
    } else {
      work.readable = fail(std::move(decoded).error());
    }
  }
  if (!work.readable) outcome = fail(work.readable.error());
  if (parts_.stopping && !outcome) {  // not the cluster's fault
    parts_.durable.notify_with([](Durable& durable) { durable.in_flight.reset(); });
    return;
  }
  const ErrorCode code = outcome ? ErrorCode::kInternal : outcome.error().code();
  const bool enough = item.attempts + 1 >= kAttemptLimit && code != ErrorCode::kInternal;
  if (!work.readable && code == ErrorCode::kCorrupt) {
    tell_damaged_rows(parts_, work.path, 1);
    outcome = Outcome{damaged("what the queue had of it was damaged on this host's disk"), {}};
  }
  if (!outcome && !is_temporary(outcome.error()) && (enough || code == ErrorCode::kCorrupt)) {
    Outcome given_up;
    given_up.report = {{}, PublishState::kRefused, outcome.error().text(), std::nullopt};
    outcome = std::move(given_up);
  }
  if (outcome && outcome->report.state == PublishState::kQueued) {
    put_off(item, outcome->report.why);
  } else if (outcome) {
    finish(item, *outcome);
  } else if (is_temporary(outcome.error())) {
    try_later(item, outcome.error());
  } else {
    park(item, outcome.error());
  }
}

/// What is merged is signed when it is known (publish_merged).
Result<void> Publisher::sign_with(const Item& item, const std::vector<std::pair<int64_t, std::string>>& ahead) {
  const auto is_merged = [](const Publish& publish) { return publish.kind == Publish::Kind::kMerge; };
  if (!parts_.options.sign || signed_.contains(item.id) || hopeless(item.publish)) return {};
  std::vector<codec::Entry> entries;
  if (!is_merged(item.publish)) entries = item.publish.entries;
  for (const auto& [_, payload] : ahead) {
    auto publish = decode_publish(payload);
    if (!publish || is_merged(*publish)) continue;
    entries.insert(entries.end(), std::make_move_iterator(publish->entries.begin()),
                   std::make_move_iterator(publish->entries.end()));
  }
  INDUCTORFS_TRY(sign(item.publish.scope, entries));
  signed_.insert(item.id);
  for (const auto& [id, _] : ahead) signed_.insert(id);
  return {};
}

/// A key that is missing comes back: nothing is given up for that, nor published without it.
Result<void> Publisher::sign(const remote::ScopeId& scope, const std::vector<codec::Entry>& entries) {
  if (!parts_.options.sign || entries.empty()) return {};
  Result<void> done = parts_.options.sign(scope, entries, Deadline::after(kSignPatience));
  if (done || done.error().code() == ErrorCode::kInvalid) return done;
  return fail(ErrorCode::kUnavailable, done.error().text());
}

/// Not the cluster's absence, so that the others of the queue may fare better.
void Publisher::park(const Item& item, const Error& error) {
  parts_.metrics.retries.add();
  log::write_limited(log::Level::kWarning, "catalog.publish_parked", {{"error", error.to_string()}});
  parts_.durable.notify_with([&](Durable& durable) {
    durable.in_flight.reset();
    durable.last_error = error;
    QueueIndex::Item* queued = durable.queue.find(item.id);
    if (queued == nullptr) return;  // replaced or dropped meanwhile
    const auto doublings = std::min<uint64_t>(queued->attempts++, kAttemptLimit);
    queued->error = error.text();
    queued->not_before = std::chrono::steady_clock::now() +
                         backoff_.jittered(std::min(Backoff::kFirst * (int64_t{1} << doublings), kParkedMost));
    parts_.metrics.parked.set(durable.queue.parked());
    parts_.count_failure(durable.database.note_failure(item.id, queued->error, queued->attempts));
  });
}

void Publisher::put_off(const Item& item, const std::string& why) {
  parts_.durable.notify_with([&](Durable& durable) {
    durable.in_flight.reset();
    QueueIndex::Item* queued = durable.queue.find(item.id);
    if (queued == nullptr) return;  // replaced or dropped meanwhile
    queued->error = why;
    queued->not_before = std::chrono::steady_clock::now() + backoff_.jittered(kClaimPause);
  });
}

void Publisher::try_later(const Item& item, const Error& error) {
  signed_.clear();  // the server may come back without the statements
  parts_.metrics.retries.add();
  log::write_limited(log::Level::kWarning, "catalog.publish_failed", {{"error", error.to_string()}});
  retry_at_ = std::chrono::steady_clock::now() + backoff_.next();
  parts_.durable.notify_with([&](Durable& durable) {
    durable.in_flight.reset();
    durable.last_error = error;
    QueueIndex::Item* queued = durable.queue.find(item.id);
    if (queued == nullptr) return;  // replaced or dropped meanwhile
    queued->error = error.text();
    // An outage is not the group's fault and does not use its attempts up.
    parts_.count_failure(durable.database.note_failure(item.id, queued->error, queued->attempts));
  });
}

/// Shows here what the cluster has taken, and adds to `changed` what became visible by that. Returns whether the tail
/// has yet to tell of some of it.
bool Publisher::show(const Item& item, const Outcome& outcome, std::vector<std::string>& changed) {
  bool awaits = false;
  parts_.tree.write([&](EntryTree& tree) {
    const auto touched = tree.echoes().end_watch();
    const auto scope = tree.scopes().index_of(item.publish.scope);
    for (const auto& entry : outcome.in_cluster) {
      const auto brought = touched.find(entry.path);
      if (outcome.held) {
        const auto known = tree.find_known(item.publish.scope, entry.path);
        if (!known || known->digest != entry.digest) tree.echoes().await(entry.path, entry.digest);
        continue;
      }
      const auto before = tree.find_known(item.publish.scope, entry.path);
      // What the tail has brought meanwhile is mostly this very entry or a newer one; it may be one from before.
      if (scope && brought == touched.end() && tree.set(*scope, entry) == EntryTree::Change::kVisible) {
        changed.push_back(entry.path);
      }
      const bool echoed =
          brought != touched.end() && std::ranges::find(brought->second, entry.digest) != brought->second.end();
      // Of what was there before, the server may have nothing to tell.
      if (echoed || (before && before->digest == entry.digest)) continue;
      tree.echoes().await(entry.path, entry.digest);
      awaits = true;
    }
  });
  return awaits;
}

void Publisher::finish(const Item& item, const Outcome& outcome) {
  backoff_.reset();
  std::vector<std::string> changed;
  if (show(item, outcome, changed)) {
    parts_.count_failure(parts_.durable.with([](Durable& durable) { return durable.note_awaited(); }));
  }
  fail_point("publish.shown");
  PublishReport report = outcome.report;
  std::optional<std::string> root;  // of what the cluster has taken and this process has queued
  const SteadyTime now = std::chrono::steady_clock::now();
  const bool current = parts_.durable.with([&](Durable& durable) {
    const QueueIndex::Item* queued = durable.queue.find(item.id);
    durable.last_error.reset();
    if (queued == nullptr) return false;  // a later group of the same paths has taken its place
    report.paths = queued->paths;
    const bool is_new = report.state == PublishState::kPublished && !outcome.held && queued->queued != SteadyTime{};
    if (is_new) root = queued->root;
    if (report.state == PublishState::kPublished && queued->queued != SteadyTime{}) {
      parts_.metrics.publish_times.observe(static_cast<uint64_t>((now - queued->queued) / std::chrono::nanoseconds(1)));
    }
    // Whoever is killed before its files are queued again leaves that to the next start.
    if (report.damaged) parts_.count_failure(durable.note_queue(false));
    // Should this fail, the group is published once more after a restart, which changes nothing.
    parts_.count_failure(durable.database.dequeue(item.id));
    durable.queue.remove(item.id);
    durable.queue.record(report);
    return true;
  });
  if (report.state == PublishState::kPublished) parts_.metrics.published.add();
  if (report.damaged) parts_.metrics.lost_groups.add();
  if (report.state == PublishState::kKeptLocal && !report.damaged) parts_.metrics.kept_local.add();
  if (outcome.superseded) parts_.metrics.superseded.add();
  if (report.state == PublishState::kRefused) parts_.metrics.refused.add();
  if (root) gather_start(item.publish, *root);
  parts_.tell(changed);
  if (current && parts_.on_publish) parts_.on_publish(report);
  fail_point("publish.told");
  parts_.durable.notify_with([](Durable& durable) { durable.in_flight.reset(); });
}

/// Of all hosts that saw the same start, the one whose list the cluster took has its artefacts gathered.
void Publisher::gather_start(const Publish& publish, const std::string& root) {
  if (!layout::is_start_list(publish.entries.front().path)) return;
  sweeper_.gather({root, publish.entries.front().digest});
}

void Publisher::renew_used(SteadyTime now) {
  if (now < renew_at_ || parts_.stopping) return;
  renew_at_ = now + parts_.options.renew_pause;
  const auto used = parts_.uses.take();
  if (!used.empty() && blobs_->renew(used, Deadline::after(kRenewPatience))) parts_.metrics.renewed.add(used.size());
}

void Publisher::report_lost(const std::vector<KnownEntry>& lost) {
  for (size_t i = 0; i < lost.size() && !parts_.stopping; ++i) {
    const auto& entry = lost[i].entry;
    auto told = index_->report_lost(lost[i].scope, entry.path, entry.digest, Deadline::after(kLostPatience));
    fail_point("publish.lost_told");
    if (told) {
      parts_.metrics.lost_reported.add();
      lost_backoff_.reset();
      continue;
    }
    const ErrorCode code = told.error().code();
    if (code != ErrorCode::kUnavailable && code != ErrorCode::kTimedOut && code != ErrorCode::kBusy) {
      parts_.metrics.lost_dropped.add();  // this host may not, for instance: somebody else will find it
      continue;
    }
    lost_retry_at_ = std::chrono::steady_clock::now() + lost_backoff_.next();
    parts_.durable.with([&](Durable& durable) {
      for (; i < lost.size(); ++i) {
        if (durable.lost_paths.insert(lost[i].entry.path).second) durable.lost.push_back(lost[i]);
      }
    });
    return;
  }
}

}  // namespace inductorfs::catalog
