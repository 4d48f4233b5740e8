// SPDX-License-Identifier: Apache-2.0
#include "vfs/overlay.h"

#include <sys/stat.h>

#include <algorithm>

#include "inductorfs/base/thread.h"

namespace inductorfs::vfs {
namespace {

constexpr Milliseconds kJanitorStep{250};
constexpr int kDeadSetSteps = 8;
constexpr size_t kPrefetchNewest = 20'000;
constexpr uint64_t kCheckLimit = uint64_t{64} * 1024;
constexpr size_t kReportedPaths = 5;

}  // namespace

Result<std::unique_ptr<FileSystem>> FileSystem::open(const FileSystemOptions& options, ScopeOf scope_of,
                                                     catalog::Catalog& catalog, store::BlobStore& store,
                                                     remote::Remote& remote, Counters& counters) {
  auto tree = LocalTree::open(options.directory, options.owner_uid, options.owner_gid, options.root_mode);
  if (!tree) return fail(std::move(tree).error().with_context("view"));
  const auto status = tree->stat(LocalTree::view(""));
  if (!status) return fail(status.error());
  if (!*status) return fail(ErrorCode::kInternal, "view: no root directory in " + options.directory);
  auto root = std::make_shared<Node>(kRootNode, S_IFDIR, (*status)->st_ino);
  auto overlay = std::make_unique<Overlay>(options, std::move(scope_of), std::move(*tree), std::move(root), catalog,
                                           store, remote, counters);
  INDUCTORFS_TRY(overlay->recover());
  return std::unique_ptr<FileSystem>(std::move(overlay));
}

Overlay::Overlay(FileSystemOptions options, ScopeOf scope_of, LocalTree tree, NodePtr root, catalog::Catalog& catalog,
                 store::BlobStore& store, remote::Remote& remote, Counters& counters)
    : options_(std::move(options)),
      scope_of_(std::move(scope_of)),
      tree_(std::move(tree)),
      catalog_(catalog),
      store_(store),
      counters_(counters),
      root_(std::move(root)),
      nodes_(root_),
      descriptors_(options_.descriptor_limit),
      sealer_([this](const SealItem& item) { return seal(item); },
              [this](const NodePtr& node) { let_go(nodes_.release(node)); }, options_.quiet_time),
      fetcher_(
          remote, store, counters, [this](const codec::Entry& entry) { return check_fetched(entry); },
          options_.fetch_threads, options_.fetch_total) {
  store_.set_eviction_guard([this](const codec::Digest& digest) { return may_evict(digest); });
}

Overlay::~Overlay() {
  stop();
  store_.set_eviction_guard({});
}

void Overlay::start(KernelCache& kernel) {
  notifier_.start(kernel);
  sealer_.start();
  janitor_ = start_thread("janitor", [this](const std::stop_token& stop) { keep_house(stop); });
}

void Overlay::stop() {
  if (stopped_.exchange(true)) return;
  if (janitor_.joinable()) {
    janitor_.request_stop();
    janitor_.join();
  }
  fetcher_.stop();
  sealer_.stop();
  notifier_.stop();
  mark_clean();
}

void Overlay::keep_house(const std::stop_token& stop) {
  bool prefetched = options_.prefetch_bytes == 0;
  Guarded<std::monostate> pause;
  for (int step = 0; !stop.stop_requested(); ++step) {
    (void)pause.wait_until(
        std::chrono::steady_clock::now() + kJanitorStep, [](const std::monostate&) { return false; },
        [](const std::monostate&) { return true; });
    if (step % kDeadSetSteps == 0) drop_dead_sets();
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
  // Canonical group files are checked as a set (cluster_set_is_whole).
  if (layout::is_group_file(entry.path.substr(entry.path.rfind('/') + 1))) return {};
  auto blob = store_.open_blob(entry.digest);
  if (!blob) return fail(std::move(blob).error());
  std::string head(layout::needs_whole(place.family) ? entry.size : std::min(entry.size, kCheckLimit), '\0');
  const auto got = pread_full(blob->get(), head.data(), head.size(), 0);
  if (!got) return fail(got.error());
  head.resize(*got);
  return layout::check_content(place, head, entry.size);
}

Result<void> Overlay::sync(Deadline deadline) {
  if (!sealer_.drain(deadline)) {
    std::string paths;
    for (const auto& path : sealer_.waiting_paths(kReportedPaths)) paths += (paths.empty() ? "" : ", ") + path;
    return fail(ErrorCode::kTimedOut, "still written to, or waiting for the local disk: " + paths);
  }
  return catalog_.drain(deadline);
}

FileSystemStatus Overlay::status() const {
  FileSystemStatus result;
  result.nodes = nodes_.size();
  result.unsealed = sealer_.waiting();
  result.contested = contested_.with([](const auto& contested) { return contested.size(); });
  result.refused = refused_.with([](const auto& refused) { return refused; });
  return result;
}

}  // namespace inductorfs::vfs
