// SPDX-License-Identifier: Apache-2.0
#include "vfs/overlay.h"

#include <sys/stat.h>

#include <utility>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/thread.h"

namespace inductorfs::vfs {
namespace {

constexpr Milliseconds kJanitorStep{250};
/// While the first prefetch waits for the catalog; a cluster that is not there is no reason to go on so.
constexpr Milliseconds kFirstStep{20};
constexpr int kFirstSteps = 250;
constexpr int kDeadSetSteps = 8;
constexpr int kUnusedBranchSteps = 240;
constexpr size_t kReportedPaths = 5;

}  // namespace

Result<std::unique_ptr<FileSystem>> FileSystem::open(const FileSystemOptions& options, const Host& host,
                                                     catalog::Catalog& catalog, store::BlobStore& store,
                                                     remote::Blobs& blobs, remote::Leases& leases, Counters& counters) {
  auto tree = LocalTree::open(options.directory, options.owner_uid, options.owner_gid, options.root_mode,
                              {options.user_bytes, options.user_files});
  if (!tree) return fail(std::move(tree).error().with_context("view"));
  if (!options.resume) INDUCTORFS_TRY(tree->dress_root());
  INDUCTORFS_TRY_ASSIGN(const auto status, tree->stat(LocalTree::view("")));
  if (!status) return fail(ErrorCode::kInternal, "view: no root directory in " + options.directory);
  auto root = std::make_shared<Node>(kRootNode, S_IFDIR, status->st_ino);
  auto overlay = std::make_unique<Overlay>(options, std::move(*tree), std::move(root),
                                           Services{host, catalog, store, blobs, leases, counters});
  INDUCTORFS_TRY(overlay->begin());
  return std::unique_ptr<FileSystem>(std::move(overlay));
}

Overlay::Overlay(FileSystemOptions options, LocalTree disk, NodePtr root, const Services& services)
    : Services(services),
      options_(std::move(options)),
      tree_(options_, std::move(disk), std::move(root), store_),
      damage_(tree_.disk()),
      context_{services,  options_,        tree_,     damage_,  phase_,  shown_attributes_,
               notifier_, scopes_,         sets_,     shown_,   fit_,    fetcher_,
               starts_,   prefetch_,       views_,    parcels_, leases_, lookup_,
               branches_, listings_,       changes_,  marks_,   origin_, refusals_,
               removal_,  seal_queue_,     in_place_, sealing_, data_,   key_sets_,
               names_,    branch_removal_, renames_,  stale_,   places_},
      fetcher_(cluster_blobs_, store_, counters_,
               {[this](const codec::Entry& entry, std::optional<std::string_view> verified) {
                  return fit_.check(entry, verified);
                },
                [this](const codec::Entry& entry, const std::string& why) { fit_.needs_newer_release(entry, why); }},
               options_.fetch_threads, options_.fetch_total, options_.lookup_patience),
      seal_queue_([this](const SealItem& item) { return sealing_.seal(item); },
                  [this](const NodePtr& node) { tree_.let_go(tree_.nodes().release(node)); }, options_.quiet_time) {
  tree_.on_listed_more([this](NodeId directory) { notifier_.wish_content_forgotten(directory); });
  store_.set_eviction_guard([this](const codec::Digest& digest) { return eviction_.allows(digest); });
  store_.set_damage_listener([this](const codec::Digest& digest, int file) { damage_.note(digest, file); });
  store_.set_left_listener([this](uint64_t inode, uint64_t size) { tree_.disk().charges().left_store(inode, size); });
}

Result<void> Overlay::begin() {
  if (!options_.resume) {
    INDUCTORFS_TRY(recovery_.run());
    branch_removal_.remove_empty_common();
    return {};
  }
  return Takeover(context_).run();
}

void Overlay::on_catalog_change(const std::vector<std::string>& paths) {
  changes_.on_catalog_change(paths);
  leases_.changed(paths);
  sealing_.adopt_winners(paths);
}

void Overlay::host_changed() {
  scopes_.host_changed();
  fit_.judge_again();
  stale_.drop_stale_below("");
  sets_.drop_foreign();
}

std::optional<uint64_t> Overlay::purge(const layout::Selection& selection, const std::function<bool()>& cancelled) {
  const auto gone = stale_.purge(selection, cancelled);
  if (gone) sets_.drop_selected(selection);
  return gone;
}

Overlay::~Overlay() {
  stop();
  store_.set_eviction_guard({});
  store_.set_damage_listener({});
  store_.set_left_listener({});
}

void Overlay::start(KernelCache& kernel) {
  notifier_.start(kernel);
  leases_.start();
  seal_queue_.start();
  in_place_.start();
  user_count_ = start_thread("user-count", [this](const std::stop_token& stop) {
    const Activity activity("counts what users have");
    tree_.disk().charges().count_all(tree_.disk(), stop);
  });
  janitor_ = start_thread("janitor", [this](const std::stop_token& stop) { keep_house(stop); });
}

void Overlay::requests_finished() {
  phase_.notify_with([](Resuming& resuming) {
    if (resuming == Resuming::kRequests) resuming = Resuming::kFiles;
  });
}

void Overlay::stop() {
  if (stopped_.exchange(true)) return;
  for (std::jthread* thread : {&janitor_, &user_count_}) {
    if (!thread->joinable()) continue;
    thread->request_stop();
    thread->join();
  }
  leases_.stop();
  fetcher_.stop();
  in_place_.stop();
  seal_queue_.stop();
  notifier_.stop();
  recovery_.mark_clean(republish_.wait(Deadline::after(Milliseconds(0))));
}

void Overlay::keep_house(const std::stop_token& stop) {
  const auto waits = [](Resuming resuming) { return resuming == Resuming::kRequests; };
  const auto goes_on = [&](Resuming resuming) { return !waits(resuming); };
  const auto step_from_now = [] { return std::chrono::steady_clock::now() + kJanitorStep; };
  while (!stop.stop_requested() && phase_.wait_until(step_from_now(), goes_on, waits)) {
  }
  if (phase_.with([](Resuming resuming) { return resuming == Resuming::kFiles; })) {
    const Activity activity("looks at what an earlier worker has left", AwaitedBy::kSync);
    follow_up_.run(stop);
  }
  // Whoever ends the mount waits for this thread: it must not sleep until its next step is due.
  Guarded<bool> ended(false);
  const std::stop_callback wake(stop, [&ended] { ended.notify_with([](bool& now) { now = true; }); });
  const auto is_over = [](bool now) { return now; };
  const auto next = [&](int step) {
    const bool hurry = step < kFirstSteps && prefetch_.waits();
    return std::chrono::steady_clock::now() + (hurry ? kFirstStep : kJanitorStep);
  };
  for (int step = 0; !ended.wait_until(next(step), is_over, is_over); ++step) {
    const Activity activity("looks after sets and the store's size");
    take_damaged_away(stop);
    fit_.ask_again_if_due();
    if (step % kDeadSetSteps == 0) key_sets_.end_dead_sets();
    if (step % kDeadSetSteps == 0) store_.keep_floor();
    if (step % kUnusedBranchSteps == 0) branch_removal_.remove_unused();
    for (const auto& root : context_.known_roots_.take_left()) forget_root(root);
    prefetch_.newest_wanted();
    republish_.run_if_due(stop);
  }
}

void Overlay::take_damaged_away(const std::stop_token& stop) {
  const auto found = damage_.take();
  if (!found.is_any()) return;
  const Activity activity("takes damaged files away", AwaitedBy::kSync);
  for (const auto& digest : found.blobs) changes_.drop_shown(digest);
  stale_.drop_damaged(found.parcels, [&stop] { return stop.stop_requested(); });
  damage_.done();
}

/// With each name in a root the kernel forgets what it keeps below; it keeps no absence in a root itself.
void Overlay::forget_root(const std::string& root) {
  const NodePtr shown = tree_.nodes().find(root_of_branch(root));
  const NodePtr inside = tree_.nodes().find(root);
  if (!shown || !inside) return;
  for (const auto& [name, child] : tree_.nodes().children(inside)) notifier_.forget_name(shown->id, name);
}

Result<void> Overlay::sync(Deadline deadline) {
  const auto in_words = [](const std::vector<std::string>& paths) {
    std::string words;
    for (const auto& path : paths) words += (words.empty() ? "" : ", ") + path;
    return words;
  };
  // What an earlier worker had not begun to seal is found by then.
  const auto resumed = [](Resuming resuming) { return resuming == Resuming::kNo; };
  if (!phase_.wait_until(deadline.at(), resumed, resumed)) {
    return fail(ErrorCode::kTimedOut, "still looking at what an earlier worker of this mount has left");
  }
  // While it is frozen, nothing is published, and drain() below says so.
  if (!catalog_.frozen() && !republish_.wait(deadline)) {
    return fail(ErrorCode::kTimedOut,
                "the cluster has lost the end of what it had acknowledged, and it is not known yet what it has");
  }
  const uint64_t queued_again = sealing_.queued_again();
  do {
    if (!in_place_.drain(deadline)) {
      return fail(ErrorCode::kTimedOut,
                  "written in place, and not known to be complete: " + in_words(in_place_.reasons(kReportedPaths)));
    }
    if (!seal_queue_.drain(deadline)) {
      return fail(ErrorCode::kTimedOut, "still written to, or waiting for the local disk: " +
                                            in_words(seal_queue_.waiting_paths(kReportedPaths)));
    }
    if (!seal_queue_.try_for_room(deadline)) {
      return fail(ErrorCode::kTimedOut, "the local disk has not said yet whether it has room again for these: " +
                                            in_words(seal_queue_.paths_without_room(kReportedPaths)));
    }
  } while (in_place_.waiting() > 0 && !in_place_.is_held());  // the seal queue gives back what it is given too early
  INDUCTORFS_TRY(catalog_.drain(deadline));
  if (sealing_.queued_again() != queued_again) return sync(deadline);
  if (!damage_.wait(deadline)) return fail(ErrorCode::kTimedOut, "still taking damaged files away");
  if (in_place_.waiting() > 0 && in_place_.is_held()) {
    return fail(ErrorCode::kBusy, "written in place just before the mount was taken away: " +
                                      in_words(in_place_.reasons(kReportedPaths)));
  }
  const auto left = seal_queue_.paths_without_room(kReportedPaths);
  if (left.empty()) return {};
  return fail(why_not_sealed(in_words(left)));
}

Error Overlay::why_not_sealed(const std::string& paths) const {
  const auto failure = sealing_.last_failure();
  if (!failure || failure->code() == ErrorCode::kNoSpace) {
    return {ErrorCode::kNoSpace, "the store or its disk is full, so these are not published yet: " + paths +
                                     "; they wait for room: raise --store-limit, or free space below --store"};
  }
  return {failure->code(), "the disk of --store takes no writes, so these are not published yet: " + paths + ": " +
                               failure->what() + "; they are tried again: see what dmesg says of that disk"};
}

}  // namespace inductorfs::vfs
