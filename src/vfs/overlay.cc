// SPDX-License-Identifier: Apache-2.0
#include "vfs/overlay.h"

#include <sys/stat.h>

#include <algorithm>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/thread.h"
#include "vfs/resume.h"

namespace inductorfs::vfs {
namespace {

constexpr Milliseconds kJanitorStep{250};
constexpr int kDeadSetSteps = 8;
constexpr size_t kPrefetchNewest = 20'000;
constexpr size_t kReportedPaths = 5;

}  // namespace

Result<std::unique_ptr<FileSystem>> FileSystem::open(const FileSystemOptions& options, const Host& host,
                                                     catalog::Catalog& catalog, store::BlobStore& store,
                                                     remote::Remote& remote, Counters& counters) {
  auto tree = LocalTree::open(options.directory, options.owner_uid, options.owner_gid, options.root_mode);
  if (!tree) return fail(std::move(tree).error().with_context("view"));
  if (!options.resume) INDUCTORFS_TRY(tree->dress_root());
  const auto status = tree->stat(LocalTree::view(""));
  if (!status) return fail(status.error());
  if (!*status) return fail(ErrorCode::kInternal, "view: no root directory in " + options.directory);
  auto root = std::make_shared<Node>(kRootNode, S_IFDIR, (*status)->st_ino);
  auto overlay = std::make_unique<Overlay>(options, std::move(*tree), std::move(root),
                                           Services{host, catalog, store, remote, counters});
  INDUCTORFS_TRY(options.resume ? Resume(*overlay).take_over() : overlay->recover());
  return std::unique_ptr<FileSystem>(std::move(overlay));
}

Overlay::Overlay(FileSystemOptions options, LocalTree tree, NodePtr root, const Services& services)
    : options_(std::move(options)),
      host_(services.host),
      tree_(std::move(tree)),
      catalog_(services.catalog),
      store_(services.store),
      counters_(services.counters),
      root_(std::move(root)),
      nodes_(root_, options_.region),
      descriptors_(options_.descriptor_limit),
      sets_({host_, catalog_, store_, nodes_, pins_, notifier_, counters_},
            [this](const std::vector<NodePtr>& gone) { let_go(gone); }),
      marks_(host_, tree_, counters_),
      sealer_([this](const SealItem& item) { return seal(item); },
              [this](const NodePtr& node) { let_go(nodes_.release(node)); }, options_.quiet_time),
      fetcher_(services.remote, services.store, services.counters,
               {[this](const codec::Entry& entry) { return check_fetched(entry); },
                [this](const codec::Entry& entry, const std::string& why) { hide_unfit(entry, why, verdicts_.age()); }},
               options_.fetch_threads, options_.fetch_total, options_.lookup_patience) {
  store_.set_eviction_guard([this](const codec::Digest& digest) { return may_evict(digest); });
}

Overlay::~Overlay() {
  stop();
  store_.set_eviction_guard({});
}

void Overlay::start(KernelCache& kernel) {
  notifier_.start(kernel);
  sealer_.start();
  in_place_.start();
  janitor_ = start_thread("janitor", [this](const std::stop_token& stop) { keep_house(stop); });
}

void Overlay::requests_finished() {
  resuming_.notify_with([](Resuming& resuming) {
    if (resuming == Resuming::kRequests) resuming = Resuming::kFiles;
  });
}

void Overlay::stop() {
  if (stopped_.exchange(true)) return;
  if (janitor_.joinable()) {
    janitor_.request_stop();
    janitor_.join();
  }
  fetcher_.stop();
  in_place_.stop();
  sealer_.stop();
  notifier_.stop();
  mark_clean();
}

void Overlay::keep_house(const std::stop_token& stop) {
  bool prefetched = options_.prefetch_bytes == 0;
  const auto waits = [](Resuming resuming) { return resuming == Resuming::kRequests; };
  const auto goes_on = [&](Resuming resuming) { return !waits(resuming); };
  const auto step_from_now = [] { return std::chrono::steady_clock::now() + kJanitorStep; };
  while (!stop.stop_requested() && resuming_.wait_until(step_from_now(), goes_on, waits)) {
  }
  if (resuming_.with([](Resuming resuming) { return resuming == Resuming::kFiles; })) {
    const Activity activity("looks at what an earlier worker has left", AwaitedBy::kSync);
    Resume(*this).finish(stop);
  }
  Guarded<std::monostate> pause;
  for (int step = 0; !stop.stop_requested(); ++step) {
    (void)pause.wait_until(
        step_from_now(), [](const std::monostate&) { return false; }, [](const std::monostate&) { return true; });
    const Activity activity("looks after sets and the store's size");
    if (step % kDeadSetSteps == 0) drop_dead_sets();
    if (step % kDeadSetSteps == 0) store_.keep_floor();
    if (!prefetched && catalog_.status().synced) {
      prefetched = true;
      prefetch_newest();
    }
  }
}

void Overlay::prefetch_newest() {
  std::vector<codec::Entry> wanted;
  uint64_t bytes = 0;
  for (auto& known : catalog_.newest(kPrefetchNewest)) {
    bytes += known.entry.size;
    if (bytes > options_.prefetch_bytes) break;
    wanted.push_back(std::move(known.entry));
  }
  fetcher_.prefetch(wanted);
}

Result<void> Overlay::check_fetched(const codec::Entry& entry) {
  const auto place = layout::classify(entry.path);
  // Canonical group files are checked as a set (ClusterSets::take).
  if (layout::is_group_file(entry.path.substr(entry.path.rfind('/') + 1))) return {};
  if (verdicts_.fits(entry.path, entry.digest)) return {};
  const uint64_t age = verdicts_.age();
  auto blob = store_.open_blob(entry.digest);
  if (!blob) return fail(std::move(blob).error());
  std::string head(std::min(entry.size, layout::bytes_to_check(place, entry.size)), '\0');
  const auto got = pread_full(blob->get(), head.data(), head.size(), 0);
  if (!got) return fail(got.error());
  head.resize(*got);
  const auto fits = host_.check(place, head, entry.size);
  if (fits) {
    verdicts_.remember(entry.path, entry.digest, age);
    return fits;
  }
  const ErrorCode code = fits.error().code();
  if (code != ErrorCode::kCorrupt && code != ErrorCode::kNotSupported) return fits;
  // Damaged on this host's disk, perhaps: that is no fault of the entry's, and its bytes can come again.
  const auto digest = codec::digest_of_file(blob->get());
  if (!digest) return fail(digest.error());
  if (*digest != entry.digest) {
    store_.discard(entry.digest);
    log::write_limited(log::Level::kError, "store.damaged", {{"path", entry.path}, {"digest", entry.digest.to_hex()}});
    return fail(ErrorCode::kUnavailable, "its bytes are damaged on this host's disk: " + entry.path);
  }
  hide_unfit(entry, fits.error().to_string(), age);
  return fits;
}

/// What was published, and nothing for this host or this release: hidden from this mount, and nobody else is told.
void Overlay::hide_unfit(const codec::Entry& entry, const std::string& why, uint64_t age) {
  std::vector<codec::Entry> entries{entry};
  if (layout::classify(entry.path).family == layout::Family::kTritonKernel) {
    // One child that cannot be used makes the set useless.
    for (auto& known : catalog_.entries_in(entry.path.substr(0, entry.path.rfind('/')))) {
      const bool of_set = layout::classify(known.entry.path).family == layout::Family::kTritonKernel;
      if (of_set && known.entry.path != entry.path) entries.push_back(std::move(known.entry));
    }
  }
  for (const auto& unfit : entries) {
    verdicts_.unless_changed(age, [&] { catalog_.set_unfit(unfit.path, unfit.digest, why); });
    for (const auto& local : local_paths_of(unfit.path)) {
      const auto directory = nodes_.walk(local.substr(0, local.rfind('/')));
      if (directory.missing.empty()) notifier_.wish_content_forgotten(directory.node->id);
    }
  }
  log::write_limited(log::Level::kWarning, "fetch.not_for_this_host", {{"path", entry.path}, {"why", why}});
}

Result<void> Overlay::sync(Deadline deadline) {
  const auto in_words = [](const std::vector<std::string>& paths) {
    std::string words;
    for (const auto& path : paths) words += (words.empty() ? "" : ", ") + path;
    return words;
  };
  // What an earlier worker had not begun to seal is found by then.
  const auto resumed = [](Resuming resuming) { return resuming == Resuming::kNo; };
  if (!resuming_.wait_until(deadline.at(), resumed, resumed)) {
    return fail(ErrorCode::kTimedOut, "still looking at what an earlier worker of this mount has left");
  }
  do {
    if (!in_place_.drain(deadline)) {
      return fail(ErrorCode::kTimedOut,
                  "written in place, and not known to be complete: " + in_words(in_place_.reasons(kReportedPaths)));
    }
    if (!sealer_.drain(deadline)) {
      return fail(ErrorCode::kTimedOut, "still written to, or waiting for the local disk: " +
                                            in_words(sealer_.waiting_paths(kReportedPaths)));
    }
  } while (in_place_.waiting() > 0 && !in_place_.is_held());  // the sealer gives back what it is given too early
  INDUCTORFS_TRY(catalog_.drain(deadline));
  if (in_place_.waiting() > 0 && in_place_.is_held()) {
    return fail(ErrorCode::kBusy, "written in place just before the mount was taken away: " +
                                      in_words(in_place_.reasons(kReportedPaths)));
  }
  const auto left = sealer_.paths_without_room(kReportedPaths);
  if (left.empty()) return {};
  return fail(ErrorCode::kNoSpace, "the store is full of what is in use, so these stay on this host: " +
                                       in_words(left) + "; raise --store-limit, or free space below --store");
}

FileSystemStatus Overlay::status() const {
  FileSystemStatus result;
  result.nodes = nodes_.size();
  result.unsealed = sealer_.waiting() + in_place_.waiting();
  result.in_place = in_place_.reasons(kReportedPaths);
  result.contested = contested_.with([](const auto& contested) { return contested.size(); });
  result.refused = refused_.with([](const auto& refused) { return refused; });
  result.foreign = marks_.foreign();
  result.foreign_reasons = marks_.reasons();
  return result;
}

}  // namespace inductorfs::vfs
