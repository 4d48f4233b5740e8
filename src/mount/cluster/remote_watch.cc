// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/remote_watch.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/text.h"
#include "inductorfs/mount/layers.h"
#include "inductorfs/mount/process.h"

namespace inductorfs::mount {
namespace {

constexpr Milliseconds kTick{1000};
constexpr Milliseconds kProbePatience{2000};
/// Settings of a server change now and then, and a failover brings another server. A mount that follows no scope asks
/// the server nothing else, so this is also how soon that mount knows that the server is away.
constexpr std::chrono::minutes kFactsLifetime{1};
/// Certificates are renewed under a running mount.
constexpr Milliseconds kRenewal{10'000};
/// Between two words to systemd that differ only in the number of entries.
constexpr std::chrono::seconds kSummaryPeriod{10};

/// "1234567" as "1,234,567".
std::string grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string in_utc(std::time_t moment) {
  std::tm parts{};
  std::array<char, 64> text{};
  if (::gmtime_r(&moment, &parts) == nullptr) return "an unknown time";
  (void)std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

}  // namespace

void RemoteWatch::start() {
  thread_ = start_thread("remote-watch", [this](const std::stop_token& stop) { watch_until(stop); });
}

void RemoteWatch::stop() {
  stopping_.notify_with([](bool& stopping) { stopping = true; });
  if (thread_.joinable()) thread_.join();
}

RemoteWatch::Knowledge RemoteWatch::knowledge() const {
  return knowledge_.with([](const Knowledge& knowledge) { return knowledge; });
}

std::string RemoteWatch::why_full() const {
  const std::string refusal = writes_->refusal().why;
  if (refusal.find("memory") != std::string::npos) return refusal;
  const auto facts = knowledge().facts;
  const bool evicts = facts && facts->eviction_policy != "noeviction";
  if (!facts || evicts || facts->memory_limit == 0 || facts->memory_used < facts->memory_limit) return {};
  return "it has no memory left of " + config::human_bytes(facts->memory_limit) + ", and evicts nothing (noeviction)";
}

std::string RemoteWatch::summary() const {
  if (address_.empty()) return "serving as a local cache, without a remote";
  const remote::Operators::Health health = remote_.health();
  std::string line = "serving, " + grouped(entries_()) + " entries; remote " + address_;
  const auto since = away_since_.with([](const std::optional<std::time_t>& away) { return away; });
  const remote::WriteCondition::Refusal refusal = writes_->refusal();
  if (health.reachable && refusal.why.empty()) return config::printable(line + " answers");
  if (health.reachable) {
    return config::printable(line + " refuses what is published since " + in_utc(refusal.since) + ": " + refusal.why);
  }
  if (since) line += " away since " + in_utc(*since);
  return config::printable(line + (since ? ": " : " has not answered yet: ") + health.last_error);
}

void RemoteWatch::watch_until(const std::stop_token&) {
  std::optional<bool> told;
  bool told_refusal = false;
  SteadyTime told_at;
  std::string summary_told;
  SteadyTime stale_at;
  Deadline renewal = Deadline::after(kTick);  // a worker that follows another one may lack some yet
  Milliseconds renewal_rest = kTick;
  bool stopping = false;
  while (!stopping) {
    if (renewal.passed()) {
      const Activity activity("has the files of the remote read");
      const bool are_known = renew_([this] { return stopping_.with([](bool now) { return now; }); });
      renewal_rest = are_known ? kRenewal : std::min(2 * renewal_rest, kRenewal);
      renewal = Deadline::after(renewal_rest);
    }
    const Knowledge known = knowledge();
    if (std::chrono::steady_clock::now() >= stale_at || !known.facts || !known.wrong.empty() || told == false) {
      const Activity activity("asks the server");
      learn();
      stale_at = std::chrono::steady_clock::now() + kFactsLifetime;
    }
    const remote::Operators::Health health = remote_.health();
    const std::string refusal = health.reachable ? writes_->refusal().why : std::string();
    const bool refuses = !refusal.empty();
    const bool changed = told != health.reachable || told_refusal != refuses;
    if (told != health.reachable) note(health);
    if (told_refusal != refuses) note_refusal(refusal);
    told = health.reachable;
    told_refusal = refuses;
    if (changed || std::chrono::steady_clock::now() - told_at >= kSummaryPeriod) {
      std::string line = summary();
      if (line != summary_told) notify_systemd("STATUS=" + line);
      summary_told = std::move(line);
      told_at = std::chrono::steady_clock::now();
    }
    stopping = stopping_.wait_until(
        Deadline::after(kTick).at(), [](bool now) { return now; }, [](bool now) { return now; });
  }
}

void RemoteWatch::learn() {
  // While the remote's breaker is open this answers at once, so it may be asked each tick.
  Result<remote::ServerFacts> facts = remote_.probe(Deadline::after(kProbePatience));
  if (!facts && !is_wrong_server(facts.error())) return;
  const Knowledge before = knowledge();
  if (!facts && facts.error().what() != before.wrong) {
    log::error("mount.remote_wrong", {{"remote", address_}, {"why", facts.error().what()}});
  }
  const bool news = facts && (!before.facts || before.facts->warnings != facts->warnings);
  if (news) {
    for (const std::string& warning : facts->warnings) {
      log::warning("mount.remote_warning", {{"remote", address_}, {"what", warning}});
    }
  }
  const auto missing = facts ? remote_.list_missing_nodes(remote::kMissingAfter, Deadline::after(kProbePatience))
                             : Result<std::vector<remote::MissingNode>>();
  knowledge_.with([&](Knowledge& knowledge) {
    knowledge.missing_nodes = facts && missing ? std::optional(missing->size()) : std::nullopt;
    knowledge.wrong = facts ? std::string() : facts.error().what();
    if (facts) knowledge.facts = std::move(*facts);
  });
}

void RemoteWatch::note(const remote::Operators::Health& health) {
  away_since_.with([&](std::optional<std::time_t>& away) {
    away = health.reachable ? std::nullopt : std::optional<std::time_t>(std::time(nullptr));
  });
  if (health.reachable) {
    log::info("mount.remote_up", {{"remote", address_}});
  } else {
    log::warning("mount.remote_down", {{"remote", address_}, {"why", health.last_error}});
  }
}

void RemoteWatch::note_refusal(const std::string& why) {
  if (!why.empty()) {
    log::warning("mount.remote_refuses", {{"remote", address_}, {"why", why}});
  } else {
    log::info("mount.remote_takes", {{"remote", address_}});
  }
}

}  // namespace inductorfs::mount
