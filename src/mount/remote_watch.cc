// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/remote_watch.h"

#include "inductorfs/base/activity.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/mount/layers.h"
#include "inductorfs/mount/process.h"

namespace inductorfs::mount {
namespace {

constexpr Milliseconds kTick{1000};
constexpr Milliseconds kProbePatience{2000};
/// Settings of a server change now and then, and a failover brings another server.
constexpr std::chrono::minutes kFactsLifetime{10};

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

void RemoteWatch::watch_until(const std::stop_token&) {
  std::optional<bool> told;
  SteadyTime stale_at;
  bool stopping = false;
  while (!stopping) {
    if (std::chrono::steady_clock::now() >= stale_at || !knowledge().facts) {
      const Activity activity("asks the server");
      learn();
      stale_at = std::chrono::steady_clock::now() + kFactsLifetime;
    }
    const remote::Remote::Health health = remote_.health();
    if (told != health.reachable) tell(health.reachable, health.last_error);
    told = health.reachable;
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
  knowledge_.with([&](Knowledge& knowledge) {
    knowledge.wrong = facts ? std::string() : facts.error().what();
    if (facts) knowledge.facts = std::move(*facts);
  });
}

void RemoteWatch::tell(bool reachable, const std::string& why) {
  if (reachable) {
    log::info("mount.remote_up", {{"remote", address_}});
    notify_systemd("STATUS=serving; " + address_ + " answers");
  } else {
    log::warning("mount.remote_down", {{"remote", address_}, {"why", why}});
    notify_systemd("STATUS=serving; " + address_ + " does not answer");
  }
}

}  // namespace inductorfs::mount
