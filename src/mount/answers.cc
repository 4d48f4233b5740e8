// SPDX-License-Identifier: Apache-2.0
#include "mount/answers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inductorfs/base/host_error.h"
#include "inductorfs/base/log.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/host/report.h"
#include "inductorfs/mount/cluster_control.h"
#include "inductorfs/mount/misses.h"
#include "inductorfs/mount/sharing.h"
#include "inductorfs/mount/status.h"
#include "mount/processes/store_place.h"

namespace inductorfs::mount {

using config::Json;
using config::to_line;

namespace {

/// A long sync() is cut into pieces, so that it notices that the mount ends or that its client has gone.
constexpr Milliseconds kSyncSlice{500};
constexpr Milliseconds kSyncPause{100};
/// What `explain` may cost in the cluster.
constexpr Milliseconds kNearestPatience{1000};
constexpr size_t kNearestLimit = 1000;
/// For what requests have just done to be counted.
constexpr Milliseconds kSettlePatience{1000};
/// For why they missed something to be found out.
constexpr Milliseconds kExplainPatience{3000};

/// Adds why the server was not asked, which the first of its errors says.
Error with_server(const Answers::Sources& from, const Error& error) {
  const remote::Operators::Health health = from.layers.remote.operators->health();
  if (from.settings.remote.empty() || health.reachable) return error;
  return unreached(from.settings, Error(error.code(), health.last_error + "; " + error.what()));
}

ledger::Ledger& settled_account(const Layers& layers) {
  (void)layers.ledger->settle(Deadline::after(kSettlePatience));
  return *layers.ledger;
}

}  // namespace

void Answers::end_waits() {
  ending_.notify_with([](bool& ending) { ending = true; });
}

std::function<bool()> Answers::or_ending(const std::function<bool()>& cancelled) const {
  return [this, &cancelled] { return cancelled() || ending_.with([](bool ending) { return ending; }); };
}

std::string Answers::status(const control::Peer* guest) {
  return status_json({from_.settings, from_.layers, from_.remote_watch.knowledge(), from_.also(), from_.left_over(),
                      from_.host_watch.news(), from_.supervision.news(), from_.store_watch.look(),
                      from_.heartbeat.status(), from_.requests_by_user(), guest});
}

std::string Answers::where() { return where_json(from_.settings, from_.also()); }

Result<std::string> Answers::explain(const std::string& path, const control::Peer* guest) {
  INDUCTORFS_TRY(from_.store_watch.answers());
  if (guest != nullptr && !from_.layers.file_system->inspection().lets_in(path, guest->uid, guest->groups)) {
    return fail(ErrorCode::kNotPermitted, "a directory above " + config::printable(path) + " does not let the user " +
                                              std::to_string(guest->uid) + " in; ask as its owner, or as root");
  }
  const vfs::Explanation explanation = from_.layers.file_system->inspection().explain(path);
  const Deadline deadline = Deadline::after(kNearestPatience);
  // Of one that may stand in the directory of a key, the key is what a program asks for.
  const std::string above = path.substr(0, path.rfind('/'));
  const std::string& key = layout::is_candidate_directory(above) ? above : path;
  if (!explanation.visible && layout::key_asked_by(key)) {
    const ledger::MissQuestion miss{0, key, key, layout::Family::kOther, explanation.absent};
    return explanation_json(explanation, explain_miss(miss, from_.layers, cluster_, deadline));
  }
  Json verdict = {{"text", (explanation.visible ? "shown here: " : "nothing is shown here: ") + explanation.why}};
  if (!explanation.scope_text.empty()) {
    const Result<std::vector<remote::ScopeInformation>> scopes =
        from_.layers.remote.index->list_scopes(kNearestLimit, deadline);
    verdict["nearest"] = scopes ? host::nearest_report(explanation.scope_text, *scopes)
                                : Json{{"why_none", "the cluster's scopes cannot be listed: " + scopes.error().what()}};
  }
  return explanation_json(explanation, verdict, cluster_.why_frozen());
}

Result<std::string> Answers::ask_cluster(const std::string& request, const std::function<bool()>& cancelled) {
  if (from_.settings.remote.empty()) {
    return fail(ErrorCode::kNotSupported,
                from_.settings.mountpoint + " has no --remote, so it belongs to no cluster; name a mount that has one");
  }
  INDUCTORFS_TRY_ASSIGN(const auto asked, cluster_request(config::from_text(request)));
  const remote::Remote& remote = from_.layers.remote;
  const auto answer = run_cluster_request(*remote.index, *remote.operators, asked, or_ending(cancelled));
  return answer ? Result<std::string>(to_line(*answer)) : fail(unreached(from_.settings, answer.error()));
}

std::string Answers::stats(std::optional<uid_t> user) {
  Json report = settled_account(from_.layers).stats(user);
  const auto add = [&](const std::string& part, std::initializer_list<const char*> figures) {
    Json& all = report[part] = Json::object();
    for (const char* figure : figures) all[figure] = from_.layers.counters.get(part + "." + figure).get();
  };
  add("starts", {"lists", "foreseen", "foreseen_bytes", "used", "used_bytes", "published"});
  add("leases", {"taken", "waits", "served", "too_long", "idle"});
  return to_line(report);
}

std::string Answers::jobs(std::optional<uid_t> user) {
  return to_line(Json::object({{"jobs", settled_account(from_.layers).jobs(user)}}));
}

std::string Answers::misses(uint64_t job, std::optional<uid_t> user) {
  ledger::Ledger& account = settled_account(from_.layers);
  account.ask_again(job, user);
  (void)account.settle_questions(Deadline::after(kExplainPatience));
  Json report = account.misses(job, user);
  compare_hashes(report, from_.layers);
  return to_line(report);
}

Result<std::string> Answers::sync(Deadline deadline, const std::function<bool()>& cancelled) {
  catalog::Catalog& catalog = *from_.layers.catalog;
  bool has_asked = false;
  uint64_t ticket = 0;
  while (true) {
    const uint64_t lost = catalog.lost_tails();
    Result<void> done = from_.store_watch.answers();  // what follows may wait for the disk without a deadline
    if (done) done = from_.layers.file_system->sync(deadline.earlier(kSyncSlice));
    // A server may go on acknowledging when another one has taken its place.
    if (done) done = from_.layers.remote.index->confirm_server(deadline.earlier(kSyncSlice));
    // The same one may have come back with less.
    if (done && !std::exchange(has_asked, true)) ticket = catalog.read_again();
    if (done) done = catalog.wait_read_again(ticket, deadline.earlier(kSyncSlice));
    if (done && catalog.lost_tails() != lost) {
      has_asked = false;
      continue;
    }
    if (done) {
      INDUCTORFS_TRY(from_.store_watch.look().usable);  // what could not be written here is not there to be published
      return to_line(sync_report(from_.settings, from_.layers.counters, from_.layers.file_system->inspection().status(),
                                 from_.layers.host->state()->scopes, from_.layers.host->unknown_jobs()));
    }
    for (const StuckThread& stuck : from_.supervision.stuck_threads()) {
      // A slow disk may be done before the deadline.
      if (stuck.work.awaited_by == AwaitedBy::kSync && (!stuck.waits_for_disk || deadline.passed())) {
        return fail(ErrorCode::kTimedOut, stuck.to_string() + "; status has the remedy");
      }
    }
    // Jobs have to end before there is room, and an operator a freeze.
    const ErrorCode code = done.error().code();
    const bool is_held = code == ErrorCode::kUnavailable && catalog.frozen();
    const bool gives_up = deadline.passed() || cancelled() || code == ErrorCode::kNoSpace || is_held;
    if (gives_up) return fail(is_held ? done.error() : with_server(from_, done.error()));
    // An answer before the slice is over means that the remote is away now; it may be back before the deadline.
    const bool stopping = ending_.wait_until(
        deadline.earlier(kSyncPause).at(), [](bool now) { return now; }, [](bool now) { return now; });
    if (stopping)
      return fail(ErrorCode::kUnavailable, "the mount is ending: queued groups are published after the next mount");
  }
}

Result<std::string> Answers::warm(const control::WarmSelection& selection, Milliseconds slice,
                                  const std::function<bool()>& cancelled) {
  INDUCTORFS_TRY_ASSIGN(const Json answer, warmer_.step(selection, slice, or_ending(cancelled)));
  return to_line(answer);
}

Result<std::string> Answers::show_to(uid_t user, const std::function<bool()>& cancelled) {
  INDUCTORFS_TRY_ASSIGN(const auto failed, from_.mounter.show_to(user, or_ending(cancelled)));
  return to_line(Json{{"failed", failed.empty() ? std::string() : failed.front()}});
}

Result<void> Answers::unmount(bool lazy) {
  const bool before = unmounted_.exchange(true);  // before it: the main thread may see the mount go at once
  from_.layers.file_system->hold_questions(true);
  Result<void> done = from_.mounter.unmount(lazy);
  if (done) {
    from_.end();
  } else {
    unmounted_ = before;
    from_.layers.file_system->hold_questions(false);
  }
  nobody_unmounts_ = !done && done.error().code() == ErrorCode::kTimedOut;
  return done;
}

Result<std::string> Answers::upgrade(const std::string& program, const Fd& executable) {
  struct stat found {};
  constexpr mode_t kRuns = S_IXUSR | S_IXGRP | S_IXOTH;
  if (::fstat(executable.get(), &found) != 0 || !S_ISREG(found.st_mode) || (found.st_mode & kRuns) == 0) {
    return fail(ErrorCode::kInvalid, "the daemon cannot run this program: " + program + ": name another --program");
  }
  Fd copy(::fcntl(executable.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return fail_errno("fcntl", program);
  INDUCTORFS_TRY(from_.store_watch.answers());
  if (const Result<void> written = try_to_write(from_.settings.store); !written && is_of_host(written.error().code())) {
    return fail(written.error().code(), "not upgraded, version " INDUCTORFS_VERSION
                                        " goes on serving: the disk of --store takes no writes (" +
                                            written.error().what() + "): see the warnings of inductorfs status");
  }
  INDUCTORFS_TRY(from_.supervision.ask_upgrade(program, std::move(copy)));
  log::info("mount.upgrade_begun", {{"program", program}});
  hands_over_ = true;
  from_.end();
  return config::to_line({{"pid", ::getpid()}});
}

}  // namespace inductorfs::mount
