// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/host/host_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/text.h"
#include "inductorfs/base/thread.h"

namespace inductorfs::host {
namespace {

/// While nothing is heard of the server, or a facet stays unknown, the same is tried less and less often.
constexpr Milliseconds kAnnounceMost{300'000};
constexpr Milliseconds kUnknownMost{3'600'000};
/// An installation that never rests is looked at all the same.
constexpr Milliseconds kSettleMost{60'000};

/// What start() waits for the first look at the places, which takes some ten milliseconds where they answer.
constexpr Milliseconds kFirstLook{2'000};

SteadyTime now() { return std::chrono::steady_clock::now(); }

bool all_known(const fingerprint::Fingerprint& facts) {
  return std::all_of(std::begin(fingerprint::kAllFacets), std::end(fingerprint::kAllFacets),
                     [&facts](fingerprint::Facet facet) { return facts.get(facet).known; });
}

}  // namespace

/// When what is due. Confined to the host-watch thread.
struct HostWatch::Schedule {
  PackageWatch packages;
  Places places;
  std::string traces;
  std::optional<SteadyTime> timer;     ///< the next look by itself
  std::optional<SteadyTime> probe;     ///< the next probe
  std::optional<SteadyTime> announce;  ///< the next try to tell the cluster
  std::optional<SteadyTime> settle_until;
  Milliseconds unknown_pause{0};
  SteadyTime unknown_again;
  Milliseconds announce_pause{0};
  unsigned failed = 0;  ///< probes in a row without a facet that was known

  /// For poll(2).
  [[nodiscard]] int timeout() const {
    std::optional<SteadyTime> next;
    for (const auto& due : {timer, probe, announce}) {
      if (due && (!next || *due < *next)) next = due;
    }
    return next ? static_cast<int>(std::min<int64_t>(Deadline(*next).left().count(), 3'600'000)) : -1;
  }
  static bool is_due(const std::optional<SteadyTime>& at) { return at && now() >= *at; }
};

HostWatch::HostWatch(const HostWatchOptions& options, Hooks hooks, fingerprint::Fingerprint facts, Counters& counters)
    : options_(options),
      hooks_(std::move(hooks)),
      facts_(std::move(facts)),
      probes_(counters.get("host.probes")),
      changes_(counters.get("host.changes")),
      failures_(counters.get("host.probe_failures")),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const std::time_t learned = options_.learned == 0 ? std::time(nullptr) : options_.learned;
  news_.with([learned](FactsNews& news) { news.learned = learned; });
}

void HostWatch::start() {
  if (!wake_) log::warning("host.watch_deaf", {{"action", "facts are looked at by the timer only"}});
  thread_ = start_thread("host-watch", [this](const std::stop_token&) { run(); });
  // Whoever installs a package as soon as there is a mount must not come before the watches.
  const auto is_set = [](bool looked) { return looked; };
  (void)looked_.wait_until(Deadline::after(kFirstLook).at(), is_set, is_set);
}

void HostWatch::stop() {
  stopping_ = true;
  constexpr uint64_t kOne = 1;
  (void)!::write(wake_.get(), &kOne, sizeof kOne);  // full means raised
  if (thread_.joinable()) thread_.join();
}

void HostWatch::look() {
  asked_ = true;
  constexpr uint64_t kOne = 1;
  (void)!::write(wake_.get(), &kOne, sizeof kOne);  // full means raised
}

void HostWatch::announce_now() {
  has_scopes_to_announce_ = true;
  constexpr uint64_t kOne = 1;
  (void)!::write(wake_.get(), &kOne, sizeof kOne);  // full means raised
}

FactsNews HostWatch::news() const {
  return news_.with([](const FactsNews& news) { return news; });
}

void HostWatch::run() {
  Schedule schedule;
  std::optional<Activity> activity(std::in_place, "looks at the facts of this host");
  if (!options_.from_file) {
    Result<PackageWatch> packages = PackageWatch::open(options_.reader);
    if (packages) schedule.packages = std::move(*packages);
    look_at_places(schedule);
    if (!options_.known_traces.empty() && options_.known_traces != schedule.traces) schedule.probe = now();
  }
  if (options_.ask_at_once) schedule.probe = now();
  tell_looked(schedule);
  looked_.notify_with([](bool& looked) { looked = true; });
  schedule.announce = now();
  schedule.announce_pause = options_.announce_again;
  if (options_.interval.count() > 0) schedule.timer = now() + options_.interval;
  while (!stopping_) {
    if (Schedule::is_due(schedule.announce)) announce(schedule);
    activity.reset();
    await(schedule);
    if (stopping_) return;
    activity.emplace("looks at the facts of this host");
    if (asked_.exchange(false)) schedule.probe = now();
    // While the cluster does not answer, the pause between two tries counts.
    if (has_scopes_to_announce_.exchange(false) && !schedule.announce) schedule.announce = now();
    if (Schedule::is_due(schedule.timer)) look_around(schedule);
    if (Schedule::is_due(schedule.probe)) probe(schedule);
  }
}

void HostWatch::await(Schedule& schedule) {
  std::array<pollfd, 2> items{pollfd{wake_.get(), POLLIN, 0}, pollfd{schedule.packages.fd(), POLLIN, 0}};
  (void)::poll(items.data(), items.size(), schedule.timeout());  // an interruption is a turn like any other
  uint64_t ignored = 0;
  if ((items[0].revents & POLLIN) != 0) (void)!::read(wake_.get(), &ignored, sizeof ignored);
  if ((items[1].revents & POLLIN) == 0 || !schedule.packages.take()) return;
  if (!schedule.settle_until) schedule.settle_until = now() + kSettleMost;
  const SteadyTime settled = std::min(now() + options_.settle, *schedule.settle_until);
  schedule.probe = schedule.probe ? std::max(*schedule.probe, settled) : settled;
}

void HostWatch::look_around(Schedule& schedule) {
  schedule.timer = now() + options_.interval;
  if (!schedule.announce) schedule.announce = now();  // cache roots of further users may have come into use
  const bool unknown = !all_known(facts_) && now() >= schedule.unknown_again;
  if (!options_.from_file && !unknown && hooks_.traces(schedule.places) == schedule.traces) return;
  if (!schedule.probe) schedule.probe = now();
}

void HostWatch::probe(Schedule& schedule) {
  schedule.probe.reset();
  schedule.settle_until.reset();
  probes_.add();
  const Result<fingerprint::Fingerprint> fresh = hooks_.learn();
  if (stopping_) return;
  news_.with([&](FactsNews& news) {
    ++news.probes;
    news.problem = fresh ? std::string() : fresh.error().what();
    if (fresh) news.learned = std::time(nullptr);
  });
  if (!fresh) {
    failures_.add();
    log::warning("host.facts_not_learned", {{"why", fresh.error().what()}, {"action", "the old ones stay"}});
    return;
  }
  take(*fresh, schedule);
}

void HostWatch::take(const fingerprint::Fingerprint& fresh, Schedule& schedule) {
  const bool patient = !options_.from_file && schedule.failed + 1 < kConfirmations;
  FactsChange change = change_of(facts_, fresh, patient);
  schedule.failed = change.kept.empty() ? 0 : schedule.failed + 1;
  if (!change.kept.empty()) {
    schedule.probe = now() + options_.confirm;
    log::warning("host.facts_kept",
                 {{"what", joined(change.kept, " | ")}, {"failed", static_cast<uint64_t>(schedule.failed)}});
  }
  facts_ = std::move(change.facts);
  if (!all_known(facts_)) {
    const Milliseconds longer = std::max(2 * schedule.unknown_pause, options_.interval);
    schedule.unknown_pause = change.scopes ? options_.interval : std::min(longer, kUnknownMost);
    schedule.unknown_again = now() + schedule.unknown_pause;
  }
  if (!options_.from_file) look_at_places(schedule);
  hooks_.apply(facts_, change.scopes);
  news_.with([&](FactsNews& news) {
    news.kept = change.kept;
    if (!change.scopes) return;
    ++news.changes;
    news.changed = std::time(nullptr);
    news.last_change = change.texts;
  });
  tell_looked(schedule);
  if (!change.scopes) return;
  changes_.add();
  log::warning("host.facts_changed", {{"what", joined(change.texts, " | ")}});
  schedule.announce_pause = options_.announce_again;
  schedule.announce = now();
}

void HostWatch::look_at_places(Schedule& schedule) {
  schedule.traces.clear();  // other ones than those of the next look that is answered
  Result<Places> places = options_.reader.places(facts_);
  if (!places) return log::warning("host.places_not_seen", {{"why", places.error().what()}});
  schedule.places = std::move(*places);
  schedule.packages.follow(schedule.places);
  schedule.traces = hooks_.traces(schedule.places);
}

void HostWatch::tell_looked(const Schedule& schedule) {
  if (hooks_.looked) hooks_.looked(facts_, schedule.traces, news().learned);
}

void HostWatch::announce(Schedule& schedule) {
  schedule.announce.reset();
  if (hooks_.announce()) return;
  schedule.announce = now() + schedule.announce_pause;
  schedule.announce_pause = std::min(2 * schedule.announce_pause, kAnnounceMost);
}

}  // namespace inductorfs::host
