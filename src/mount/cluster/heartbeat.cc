// SPDX-License-Identifier: Apache-2.0
#include "mount/cluster/heartbeat.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/host_files.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/own_user.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/codec/frame.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/text.h"
#include "mount/cluster/node_record.h"

namespace inductorfs::mount {

using config::Json;

namespace {

constexpr Milliseconds kRetry{1'000};  ///< the remote's breaker answers at once while it rests
constexpr Milliseconds kLeavePatience{500};
/// What has just been removed from the cluster is known here when its record in the log has come.
constexpr Milliseconds kLogPatience{1'500};
constexpr size_t kIdDigits = 32;
constexpr size_t kScopesShown = 32;
constexpr size_t kScopeDigits = 16;
constexpr std::array kCounters{"lookup.first_touch", "lookup.not_now",    "lookup.lost",        "fetch.blobs",
                               "fetch.bytes",        "publish.published", "publish.kept_local", "publish.refused",
                               "keys.local",         "keys.cluster",      "keys.missed",        "keys.made",
                               "keys.saved_ms"};

Milliseconds jittered(Milliseconds time) {
  thread_local std::minstd_rand random(std::random_device{}());
  return Milliseconds(std::uniform_int_distribution<int64_t>(time.count() * 3 / 4, time.count() * 5 / 4)(random));
}

/// No two mounts that live have the same: a store is locked by one, and in one boot of a host its directory is one. Of
/// two hosts with the same store and host name, as images of one machine have them, the boots differ.
std::string id_of(const std::string& origin, const std::string& store) {
  struct stat status {};
  (void)::stat(store.c_str(), &status);  // the store's lock is held in it
  const std::string place = std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
  return codec::digest_of(origin + "\n" + boot_id() + "\n" + place).to_hex().substr(0, kIdDigits);
}

}  // namespace

Heartbeat::Heartbeat(const config::Settings& settings, Layers& layers)
    : settings_(settings),
      layers_(layers),
      id_(id_of(layers.origin, settings.store)),
      name_(node_name(config::printable(layers.origin.substr(0, layers.origin.find('/'))), settings.mountpoint)),
      started_(std::time(nullptr)),
      cluster_(cluster_id(log::redact_url(settings.remote), settings.prefix)),
      state_(State{.heard = read_heard(settings.store, cluster_)}) {}

void Heartbeat::start() {
  thread_ = start_thread("heartbeat", [this](const std::stop_token&) { run(); });
}

void Heartbeat::stop() {
  stopping_.notify_with([](bool& stopping) { stopping = true; });
  if (thread_.joinable()) thread_.join();
}

void Heartbeat::leave() {
  if (settings_.remote.empty() || !layers_.remote.operators->health().reachable) return;
  layers_.remote.operators->leave(id_, Deadline::after(kLeavePatience));
  layers_.remote.operators->forget_node(name_, Deadline::after(kLeavePatience));
}

void Heartbeat::run() {
  // An earlier worker may have been killed before it told the kernel.
  if (state_.with([](const State& state) { return state.heard.freeze.frozen; })) layers_.catalog->freeze(true);
  Next next = Next::kSoon;
  while (!pause(next == Next::kSoon ? Milliseconds{0} : next == Next::kRetry ? kRetry : jittered(kInterval))) {
    const Activity activity("tells the cluster that this mount is there");
    next = beat();
  }
}

bool Heartbeat::pause(Milliseconds time) {
  return stopping_.wait_until(
      Deadline::after(time).at(), [](bool now) { return now; }, [](bool now) { return now; });
}

Heartbeat::Next Heartbeat::beat() {
  const SteadyTime now = std::chrono::steady_clock::now();
  const std::string text = settings_.read_only ? std::string() : record();
  const bool is_due = text != sent_ || now - sent_at_ >= kRecordInterval;
  const auto answer = layers_.remote.operators->beat(id_, is_due ? text : std::string(), Deadline::after(kPatience));
  const bool is_away =
      !answer && (answer.error().code() == ErrorCode::kUnavailable || answer.error().code() == ErrorCode::kTimedOut);
  if (is_away) return Next::kRetry;
  const bool refused = !answer;  // by a server that answers: it will not do otherwise, and jobs publish all the same
  if (refused) note_refused(answer.error());
  bool news = false;
  bool done = true;
  if (answer) {
    state_.with([](State& state) { state.not_heard.clear(); });
    if (is_due) note_listed(answer->not_listed);
    if (is_due && (answer->not_listed.empty() || sent_.empty())) {
      sent_ = text;
      sent_at_ = now;
    }
    done = obey(answer->orders, news);
    if (!text.empty()) have_remembered(now);
  }
  if (done) layers_.catalog->permit_publishing(std::chrono::steady_clock::now() + kPermission);
  const auto queue = layers_.catalog->status();
  if (!done || (queue.frozen && queue.sending)) return Next::kRetry;
  return news ? Next::kSoon : Next::kUsual;  // the operator waits for the acknowledgement
}

/// Best effort: whoever may not write it is missed by nobody.
void Heartbeat::have_remembered(SteadyTime now) {
  if (remembered_at_ != SteadyTime{} && now - remembered_at_ < remote::kRememberInterval) return;
  remembered_at_ = now;
  (void)layers_.remote.operators->remember_node(name_, Deadline::after(kPatience));
}

void Heartbeat::note_listed(const std::string& why_not) {
  const std::string before = state_.with([&](State& state) { return std::exchange(state.not_listed, why_not); });
  if (why_not.empty() || why_not == before) return;
  log::warning("mount.not_listed", {{"why", why_not}});
}

/// This mount works on; nobody can order it to do anything.
void Heartbeat::note_refused(const Error& error) {
  const std::string before = state_.with([&](State& state) {
    state.not_listed = error.what();
    return std::exchange(state.not_heard, error.what());
  });
  if (before != error.what()) log::warning("mount.orders_not_read", {{"why", error.what()}});
}

void Heartbeat::remember(const std::function<void(HeardOrders&)>& change) {
  const HeardOrders now = state_.with([&](State& state) {
    change(state.heard);
    return state.heard;
  });
  const auto written = write_heard(settings_.store, cluster_, now);
  if (!written) log::warning("mount.orders_not_kept", {{"why", written.error().what()}});
}

bool Heartbeat::obey(const std::string& text, bool& news) {
  if (text.empty()) return true;  // a server that lost its data lifts nothing
  auto orders = parse_orders(text);
  if (!orders) return true;
  // Numbers from the future would make every later order one that was heard already.
  const int64_t latest = system_clock().wall_now() / 1'000'000 + kMostAhead;
  std::erase_if(orders->purges, [latest](const PurgeOrder& one) { return one.id > latest; });
  if (orders->dropped > latest) orders->dropped = 0;
  const HeardOrders heard = state_.with([&](State& state) {
    state.purges = orders->purges;
    return state.heard;
  });
  // A replica that took over may have an earlier order.
  const bool is_newer = orders->freeze.at >= heard.freeze.at && orders->freeze.at <= latest;
  if (!orders->freeze.id.empty() && orders->freeze.id != heard.freeze.id && is_newer) {
    obey_freeze(orders->freeze);
    news = true;
  }
  const bool purges =
      orders->dropped > heard.purged || (!orders->purges.empty() && orders->purges.back().id > heard.purged);
  if (purges && pause(kLogPatience)) return false;
  if (orders->dropped > heard.purged) {
    log::warning("mount.purges_missed", {{"action", "purge all local artefacts that are sealed"}});
    if (!obey_purge(orders->dropped, {})) return false;
    news = true;
  }
  for (const PurgeOrder& order : orders->purges) {
    if (order.id <= heard.purged) continue;
    if (!obey_purge(order.id, order.selection)) return false;
    news = true;
  }
  return true;
}

void Heartbeat::obey_freeze(const FreezeOrder& order) {
  layers_.catalog->freeze(order.frozen);  // first: the disk may not answer
  remember([&](HeardOrders& heard) { heard.freeze = order; });
  if (order.frozen) {
    log::warning("mount.frozen", {{"why", order.why}, {"by", order.by}});
  } else {
    log::info("mount.unfrozen", {{"by", order.by}});
  }
}

bool Heartbeat::obey_purge(int64_t id, const layout::Selection& selection) {
  const Activity activity("purges local artefacts");
  // An upgrade or the end of the mount does not wait for many files; the next worker begins anew.
  const auto cancelled = [this] { return stopping_.with([](bool now) { return now; }); };
  if (!layers_.catalog->drop_queued(selection, cancelled)) return false;
  const auto files = layers_.file_system->purge(selection, cancelled);
  // What was sealed while the files were walked.
  if (!files || !layers_.catalog->drop_queued(selection, cancelled)) return false;
  remember([id](HeardOrders& heard) { heard.purged = std::max(heard.purged, id); });
  log::info("mount.purged", {{"order", id}, {"files", *files}});
  return true;
}

std::string Heartbeat::record() const {
  const HeardOrders heard = state_.with([](const State& state) { return state.heard; });
  const auto scopes = layers_.host->state()->scopes.ids();
  Json shown = Json::array();
  for (const auto& scope : scopes) {
    if (shown.size() == kScopesShown) break;
    shown.push_back(scope.substr(0, kScopeDigits));
  }
  const auto all = layers_.counters.snapshot();
  const auto queue = layers_.catalog->status();
  Json counters = Json::object();
  for (const char* name : kCounters) {
    const auto found = all.find(name);
    counters[name] = found == all.end() ? 0 : found->second;  // some are made at their first event
  }
  return config::to_line(Json::object({{"v", 1},
                                       {"host", config::printable(layers_.origin.substr(0, layers_.origin.find('/')))},
                                       {"mountpoint", shown_mountpoint(settings_.mountpoint)},
                                       {"version", INDUCTORFS_VERSION},
                                       {"codec", codec::kNewestCodec},
                                       {"uid", own_uid()},
                                       {"started", started_},
                                       {"scopes", std::move(shown)},
                                       {"scope_count", std::max<uint64_t>(queue.scopes, scopes.size())},
                                       {"queued", queue.queued},
                                       {"foreign", layers_.file_system->inspection().status().foreign},
                                       {"counters", std::move(counters)},
                                       // Not while a group is being sent that was begun before the freeze.
                                       {"frozen", queue.frozen && !queue.sending},
                                       {"freeze", heard.freeze.id},
                                       {"freeze_at", heard.freeze.at},
                                       {"purged", heard.purged}}));
}

Json Heartbeat::status() const {
  const State state = state_.with([](const State& now) { return now; });
  const bool tells = !settings_.remote.empty() && !settings_.read_only;
  return Json::object({{"frozen", state.heard.freeze.frozen},
                       {"why", frozen_text(state.heard.freeze)},
                       {"purged", state.heard.purged},
                       {"listed", tells && state.not_listed.empty()},
                       {"why_not_listed", tells ? state.not_listed : std::string()},
                       {"orders_not_read", state.not_heard}});
}

std::string Heartbeat::purged(const std::string& path, const std::string& scope) const {
  codec::Entry entry;
  entry.path = path;
  const auto purges = state_.with([](const State& state) { return state.purges; });
  const auto found = std::find_if(purges.rbegin(), purges.rend(),
                                  [&](const PurgeOrder& one) { return one.selection.selects(scope, entry); });
  return found == purges.rend() ? std::string() : "purge of " + config::utc(found->id / 1'000);
}

std::string Heartbeat::why_frozen() const {
  return state_.with([](const State& state) { return frozen_text(state.heard.freeze); });
}

}  // namespace inductorfs::mount
