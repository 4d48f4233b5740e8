// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/catalog/catalog.h"

#include <fcntl.h>

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "catalog/database/publish_codec.h"
#include "catalog/load.h"
#include "catalog/operator_orders.h"
#include "catalog/parts.h"
#include "catalog/publisher.h"
#include "catalog/sweeper.h"
#include "catalog/tail.h"
#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/thread.h"

namespace inductorfs::catalog {
namespace {

/// Marks of deleted entries that are kept; beyond it a deletion lasts until the next start only.
constexpr uint64_t kMarkLimit = 1'000'000;
/// Lost blobs that wait to be told to the cluster.
constexpr size_t kLostLimit = 10'000;
constexpr size_t kStatusPaths = 20;
constexpr size_t kErrorPaths = 5;
constexpr std::string_view kDroppedWhy = "the publish queue was full and this was the oldest";

bool is_of_set(std::string_view path) { return layout::classify(path).family == layout::Family::kTritonKernel; }

/// Safe for concurrent use.
class CatalogImpl final : public Catalog {
 public:
  explicit CatalogImpl(std::unique_ptr<Parts> parts, std::map<ScopeIndex, remote::Position> positions)
      : parts_(std::move(parts)),
        tail_(*parts_, std::move(positions)),
        sweeper_(*parts_),
        publisher_(*parts_, tail_, sweeper_) {}
  ~CatalogImpl() override { end(); }

  void start(ChangeListener on_change, PublishListener on_publish) override;
  void set_damage_listener(std::function<void()> listener) override { parts_->on_damage = std::move(listener); }
  void stop() override { end(); }
  void follow(const std::vector<remote::ScopeId>& scopes) override {
    tail_.follow(scopes);
    if (!started_) tail_.take_up_wanted();
  }
  std::vector<std::string> show(const std::string& root, const std::vector<remote::ScopeId>& scopes) override;
  void forget_shown(std::string_view root) override {
    parts_->tree.write([&](EntryTree& tree) { tree.forget_shown(root); });
  }
  [[nodiscard]] bool wait_synced(Deadline deadline) override { return tail_.wait_synced(deadline); }

  [[nodiscard]] std::optional<KnownEntry> find(const layout::Name& name) const override {
    if (parts_->frozen) return std::nullopt;
    return parts_->tree.read([&](const EntryTree& tree) { return tree.find(name); });
  }
  [[nodiscard]] bool knows(const layout::Name& name) const override {
    return parts_->tree.read([&](const EntryTree& tree) { return tree.knows(name); });
  }
  [[nodiscard]] bool has_directory(const layout::Name& directory) const override {
    return !parts_->frozen && parts_->tree.read([&](const EntryTree& tree) { return tree.has_directory(directory); });
  }
  [[nodiscard]] std::vector<Child> list(const layout::Name& directory) const override {
    if (parts_->frozen) return {};
    return parts_->tree.read([&](const EntryTree& tree) { return tree.list(directory); });
  }
  [[nodiscard]] std::vector<KnownEntry> entries_in(const layout::Name& directory) const override {
    if (parts_->frozen) return {};
    return parts_->tree.read([&](const EntryTree& tree) { return tree.entries_in(directory); });
  }
  [[nodiscard]] std::optional<int64_t> names_changed(const layout::Name& directory) const override {
    return parts_->tree.read([&](const EntryTree& tree) { return tree.paths().names_changed(directory.path); });
  }
  [[nodiscard]] std::optional<KnownEntry> start_list(const std::string& root, std::string_view key) const override {
    if (parts_->frozen) return std::nullopt;
    return parts_->tree.read([&](const EntryTree& tree) { return tree.start_list(root, key); });
  }
  [[nodiscard]] std::vector<KnownEntry> newest(size_t limit) const override {
    if (parts_->frozen) return {};
    return parts_->tree.read([&](const EntryTree& tree) { return tree.newest(limit); });
  }

  void hide(const layout::Name& name) override;
  void forget_hidden(std::string_view root) override;
  void set_unfit(const std::string& path, const codec::Digest& digest, const std::string& why) override {
    parts_->tree.write([&](EntryTree& tree) { tree.mark_unfit(path, digest, why); });
  }
  [[nodiscard]] std::string why_unfit(const layout::Name& name) const override {
    return parts_->tree.read([&](const EntryTree& tree) { return tree.why_unfit(name); });
  }
  [[nodiscard]] Absence why_absent(const layout::Name& name) const override;
  void forget_unfit() override;
  [[nodiscard]] Result<void> enqueue(const Publish& publish) override;
  [[nodiscard]] bool queue_may_be_short() const override {
    return parts_->durable.with([](const Durable& durable) { return durable.queue_is_short; });
  }
  void note_queue(bool whole) override;
  [[nodiscard]] uint64_t lost_tails() const override { return tail_.lost_tails(); }
  uint64_t read_again() override { return tail_.read_again(); }
  [[nodiscard]] Result<void> wait_read_again(uint64_t ticket, Deadline deadline) override {
    return tail_.wait_read_again(ticket, deadline);
  }
  [[nodiscard]] std::optional<PublishReport> publish_state(std::string_view path) const override;
  [[nodiscard]] Result<void> drain(Deadline deadline) override;
  void note_use(const codec::Digest& digest) override { parts_->uses.note(digest, std::chrono::steady_clock::now()); }
  void report_lost(const KnownEntry& known) override;
  void freeze(bool frozen) override { operator_.freeze(frozen); }
  [[nodiscard]] bool frozen() const override { return parts_->frozen; }
  void permit_publishing(SteadyTime until) override { operator_.permit_publishing(until); }
  [[nodiscard]] bool drop_queued(const layout::Selection& selection, const std::function<bool()>& cancelled) override {
    return operator_.drop_queued(selection, cancelled);
  }
  [[nodiscard]] CatalogStatus status() const override;

 private:
  void end();
  [[nodiscard]] Result<void> check(const Publish& publish) const;
  [[nodiscard]] codec::Entry with_queued(const Publish& publish);
  void add_deleted(const Publish& publish, const std::string& root, std::vector<HiddenMark>& marks) const;

  std::unique_ptr<Parts> parts_;
  Tail tail_;
  Sweeper sweeper_;
  Publisher publisher_;
  OperatorOrders operator_{*parts_};
  struct Threads {
    std::jthread tail;
    std::jthread publish;
    std::jthread sweep;
  };
  Guarded<Threads> threads_;
  std::atomic<bool> started_{false};
};

void CatalogImpl::start(ChangeListener on_change, PublishListener on_publish) {
  parts_->on_change = std::move(on_change);
  parts_->on_publish = std::move(on_publish);
  started_ = true;
  parts_->tree.write([](EntryTree& tree) { tree.note_times(); });
  threads_.with([&](Threads& threads) {
    threads.tail = start_thread("catalog-tail", [this](const std::stop_token&) { tail_.run(); });
    threads.publish = start_thread("catalog-publish", [this](const std::stop_token&) { publisher_.run(); });
    threads.sweep = start_thread("catalog-sweep", [this](const std::stop_token&) { sweeper_.run(); });
  });
}

void CatalogImpl::end() {
  parts_->stopping = true;
  tail_.stop();
  publisher_.stop();
  sweeper_.stop();
  // Taken out first: joining is a wait for other threads, which must not happen under a lock.
  Threads threads = threads_.with([](Threads& running) { return std::move(running); });
  if (threads.tail.joinable()) threads.tail.join();
  if (threads.publish.joinable()) threads.publish.join();
  if (threads.sweep.joinable()) threads.sweep.join();
  parts_->count_failure(parts_->durable.with([](Durable& durable) { return durable.database.write_left(); }));
}

std::vector<std::string> CatalogImpl::show(const std::string& root, const std::vector<remote::ScopeId>& scopes) {
  return parts_->tree.write([&](EntryTree& tree) { return tree.show(root, scopes); });
}

void CatalogImpl::hide(const layout::Name& name) {
  const std::string& path = name.path;
  std::vector<HiddenMark> marks;
  const auto mark = [&](const std::string& hidden, const codec::Digest& digest) {
    const HiddenMark one{HiddenMarks::path_of({hidden, name.root}), digest};
    if (std::ranges::find(marks, one) == marks.end()) marks.push_back(one);
  };
  // Of a Triton set all files go with one.
  const auto mark_queued = [&](const QueueIndex::Item& item) {
    for (size_t i = 0; i < item.paths.size(); ++i) {
      if (item.paths[i] == path || (is_of_set(path) && is_of_set(item.paths[i]))) mark(item.paths[i], item.digests[i]);
    }
  };
  // What was written here and is on its way must not come back when the cluster has it: what is queued, and what is
  // being published although later bytes have taken its place in the queue. The queue first: a publish that ends now is
  // in the tree before it leaves the queue (Publisher::finish).
  parts_->durable.with([&](Durable& durable) {
    for (const auto* item : durable.queue.items_with(path)) mark_queued(*item);
    const auto& sent = durable.in_flight_item;
    if (durable.in_flight && std::ranges::find(sent.paths, path) != sent.paths.end()) mark_queued(sent);
  });
  const auto queued = static_cast<ptrdiff_t>(marks.size());
  for (const auto& [file, digest] : parts_->tree.read([&](const EntryTree& tree) { return tree.files_of(name); }))
    mark(file, digest);
  if (marks.empty()) return;
  // Beyond a path's limit its first mark goes: not that of what the cluster has.
  std::rotate(marks.begin(), marks.begin() + queued, marks.end());
  fail_point("hide.marking");
  std::vector<HiddenMark> fresh;
  const bool full = parts_->tree.read([&](const EntryTree& tree) {
    std::ranges::copy_if(marks, std::back_inserter(fresh),
                         [&](const auto& one) { return !tree.marks().contains(one.path, one.digest); });
    return tree.marks().paths() >= kMarkLimit;
  });
  if (!full && !fresh.empty()) {
    parts_->count_failure(parts_->durable.with([&](Durable& durable) { return durable.database.hide(fresh); }));
  }
  // The marks that these push out of a path's limit go on disk too, or the next start would load others in their place.
  std::vector<HiddenMark> dropped;
  parts_->tree.write([&](EntryTree& tree) {
    for (const auto& hidden : marks) {
      if (full) {
        if (name.root.empty()) tree.mark_lost(hidden.path, hidden.digest);  // of another root's it stays in all
      } else if (auto gone = tree.mark_hidden(hidden.path, hidden.digest)) {
        dropped.push_back(*std::move(gone));
      }
    }
  });
  fail_point("hide.marked");
  parts_->forget_marks(dropped);
}

void CatalogImpl::forget_hidden(std::string_view root) {
  parts_->forget_marks(parts_->tree.write([&](EntryTree& tree) { return tree.unmark_root(root); }));
}

Absence CatalogImpl::why_absent(const layout::Name& name) const {
  const bool frozen = parts_->frozen;
  const Absence why = parts_->tree.read([&](const EntryTree& tree) {
    const bool has_it = frozen && (tree.find(name) || tree.has_directory(name));
    return has_it ? Absence::kFrozen : tree.why_absent(name);
  });
  return why == Absence::kNever && !tail_.synced() ? Absence::kUnread : why;
}

void CatalogImpl::forget_unfit() {
  auto seen = parts_->tree.write([](EntryTree& tree) { return tree.unmark_unfit(); });
  parts_->tell(seen);
}

Result<void> CatalogImpl::check(const Publish& publish) const {
  if (publish.entries.empty() || publish.entries.size() > codec::kRecordEntryLimit) {
    return fail(ErrorCode::kInvalid, "a group has 1 to " + std::to_string(codec::kRecordEntryLimit) + " entries");
  }
  const bool contested = publish.kind == Publish::Kind::kFirst || publish.kind == Publish::Kind::kCandidate;
  if (contested && !codec::is_clean_path(publish.contest)) {
    return fail(ErrorCode::kInvalid, "a contest needs its key directory");
  }
  const bool of_one = publish.kind == Publish::Kind::kMerge || publish.kind == Publish::Kind::kFirstOfPath;
  if (of_one && publish.entries.size() != 1) {
    return fail(ErrorCode::kInvalid, "a merge, and what is published as the first of its path, has one entry");
  }
  std::set<std::string_view> paths;
  for (const auto& entry : publish.entries) {
    if (!paths.insert(entry.path).second) return fail(ErrorCode::kInvalid, "twice in one group: " + entry.path);
    if (!parts_->acceptable(publish.scope, entry)) {
      return fail(ErrorCode::kInvalid, "not an entry of this scope: " + entry.path);
    }
  }
  if (!std::ranges::all_of(publish.seen, codec::is_clean_path)) {
    return fail(ErrorCode::kInvalid, "what was seen is not a path");
  }
  return {};
}

/// Of a group that is to be merged. What waits under its path, in its scope, may hold the timings of another root: the
/// group takes its place in the queue, and must not lose them.
codec::Entry CatalogImpl::with_queued(const Publish& publish) {
  codec::Entry ours = publish.entries.front();
  const auto queued = parts_->durable.with([&](const Durable& durable) -> std::optional<codec::Digest> {
    if (!durable.queue.same_paths(publish.scope, {ours.path})) return std::nullopt;
    return durable.queue.queued_digest(publish.scope, ours.path);
  });
  if (!queued || *queued == ours.digest) return ours;
  const auto bytes_of = [&](const codec::Digest& digest) -> Result<std::string> {
    INDUCTORFS_TRY_ASSIGN(const auto blob, parts_->store.open_blob(digest));
    return blob.read_all(kMergeLimit);
  };
  const auto mine = bytes_of(ours.digest);
  const auto theirs = bytes_of(*queued);
  if (!mine || !theirs) return ours;  // evicted: nothing to merge with
  const auto merged = layout::merge_system_autotune(*mine, *theirs);
  if (!merged || *merged == *mine) return ours;
  if (const auto digest = parts_->store.put(*merged)) {
    ours.digest = *digest;
    ours.size = merged->size();
  }
  return ours;
}

/// Adds the marks of what is made anew and was deleted in this root. A Triton set was deleted when all of its files are
/// marked; the marks of some are those of another set, which stays away, and keeps those that it shares with this one.
void CatalogImpl::add_deleted(const Publish& publish, const std::string& root, std::vector<HiddenMark>& marks) const {
  parts_->tree.read([&](const EntryTree& tree) {
    const auto is_kept = [&](const codec::Entry& entry) {
      return is_of_set(entry.path) && !tree.marks().contains(HiddenMarks::path_of({entry.path, root}), entry.digest);
    };
    const auto is_in_cluster = [&](const codec::Entry& entry, bool with_these_bytes) {
      const auto known = is_of_set(entry.path) ? tree.find_known(publish.scope, entry.path) : std::nullopt;
      return known && (known->digest == entry.digest) == with_these_bytes;
    };
    const bool set_is_new = std::ranges::any_of(publish.entries, is_kept);
    const bool is_another =
        std::ranges::any_of(publish.entries, [&](const auto& one) { return is_in_cluster(one, false); });
    for (const auto& entry : publish.entries) {
      const bool stays = is_of_set(entry.path) && (set_is_new || (is_another && is_in_cluster(entry, true)));
      if (!stays) marks.push_back({HiddenMarks::path_of({entry.path, root}), entry.digest});
    }
  });
}

Result<void> CatalogImpl::enqueue(const Publish& publish) {
  Publish stamped = publish;
  if (publish.kind == Publish::Kind::kMerge && publish.entries.size() == 1) stamped.entries = {with_queued(publish)};
  for (auto& entry : stamped.entries) entry.origin = parts_->options.origin;
  INDUCTORFS_TRY(check(stamped));
  const std::string payload = encode_publish(stamped);
  QueueIndex::Item item;
  std::vector<HiddenMark> shown;
  item.scope = stamped.scope;
  item.paths = paths_of(stamped);
  item.queued = std::chrono::steady_clock::now();
  item.root = publish.root;
  for (const auto& entry : stamped.entries) item.digests.push_back(entry.digest);
  if (!publish.is_again) add_deleted(stamped, {}, shown);
  if (!publish.is_again && !publish.root.empty()) add_deleted(stamped, publish.root, shown);
  Result<void> queued = parts_->durable.notify_with([&](Durable& durable) -> Result<void> {
    std::vector<int64_t> gone;
    const auto replaced = durable.queue.same_paths(item.scope, item.paths);
    if (replaced) gone.push_back(*replaced);
    const bool full = !replaced && durable.queue.size() >= parts_->options.queue_limit;
    const auto oldest = full ? durable.queue.oldest() : std::nullopt;
    if (oldest) gone.push_back(*oldest);
    const auto id = durable.database.enqueue(static_cast<int>(stamped.kind), payload, gone, shown);
    if (!id) {
      ++durable.wakes;
      parts_->note_failure(id.error());
      if (id.error().code() != ErrorCode::kCorrupt) return fail(id.error());
      return fail(
          ErrorCode::kUnavailable,
          "the catalog is damaged, and the next worker begins a new one (inductorfs upgrade): " + id.error().what());
    }
    if (replaced) durable.queue.remove(*replaced);
    if (oldest) {
      durable.keep_local(*oldest, kDroppedWhy);
      parts_->metrics.dropped.add();
    }
    durable.queue.add(*id, std::move(item));
    ++durable.wakes;
    return {};
  });
  if (!queued) return queued;
  // Made anew here: no longer deleted.
  parts_->tree.write([&](EntryTree& tree) {
    for (const auto& mark : shown) tree.unmark_hidden(mark.path, mark.digest);
  });
  if (shown.empty()) return {};
  // By the publish thread: a caller may hold locks that the listener takes.
  parts_->durable.notify_with([&](Durable& durable) {
    for (const auto& entry : stamped.entries) durable.returned.push_back(entry.path);
    ++durable.wakes;
  });
  return {};
}

void CatalogImpl::note_queue(bool whole) {
  // What was published and is not read back may be lost before the next start reads.
  if (whole && parts_->tree.read([](const EntryTree& tree) { return !tree.awaited_of().empty(); })) return;
  parts_->count_failure(parts_->durable.with([&](Durable& durable) { return durable.note_queue(whole); }));
}

std::optional<PublishReport> CatalogImpl::publish_state(std::string_view path) const {
  return parts_->durable.with([&](const Durable& durable) { return durable.queue.state(std::string(path)); });
}

Result<void> CatalogImpl::drain(Deadline deadline) {
  const auto empty = [](const Durable& durable) {
    return durable.queue.size() == 0 && !durable.in_flight && durable.undelivered.empty();
  };
  parts_->durable.notify_with([&](Durable& durable) {
    ++durable.drainers;
    ++durable.wakes;
    parts_->count_failure(durable.database.write_left());
  });
  return parts_->durable.wait_until(
      deadline.at(), [&](const Durable& durable) { return parts_->stopping || parts_->frozen || empty(durable); },
      [&](Durable& durable) -> Result<void> {
        --durable.drainers;
        if (empty(durable)) return {};
        const std::optional<Error>& last = durable.last_error;
        std::string what = std::to_string(durable.queue.size()) + " groups are not published yet:";
        for (const auto& path : durable.queue.paths(kErrorPaths)) what += " " + path;
        if (parts_->stopping) what += "; the catalog was stopped";
        if (parts_->frozen) what += "; the cluster is frozen: lift that with inductorfs freeze --lift";
        if (last) what += "; last error: " + last->text();
        const bool away = parts_->stopping || parts_->frozen || (last && last->code() == ErrorCode::kUnavailable);
        return fail(away ? ErrorCode::kUnavailable : ErrorCode::kTimedOut, std::move(what));
      });
}

void CatalogImpl::report_lost(const KnownEntry& known) {
  parts_->tree.write([&](EntryTree& tree) { tree.mark_lost(known.entry.path, known.entry.digest); });
  parts_->durable.notify_with([&](Durable& durable) {
    if (durable.lost_paths.contains(known.entry.path)) return;
    if (durable.lost.size() >= kLostLimit) return parts_->metrics.lost_dropped.add();
    durable.lost_paths.insert(known.entry.path);
    durable.lost.push_back(known);
    ++durable.wakes;
  });
}

CatalogStatus CatalogImpl::status() const {
  CatalogStatus status;
  parts_->tree.read([&](const EntryTree& tree) {
    status.entries = tree.visible();
    status.start_lists = tree.start_lists();
    status.scopes = tree.scopes().all().size();
    status.hidden = tree.known() - tree.visible() - status.start_lists;
  });
  status.frozen = parts_->frozen;
  status.synced = tail_.synced();
  status.unread = tail_.unread();
  parts_->durable.with([&](const Durable& durable) {
    status.sending = durable.in_flight.has_value();
    status.queued = durable.queue.size();
    status.queued_paths = durable.queue.paths(kStatusPaths);
    if (status.queued_paths.empty()) return;
    if (const auto state = durable.queue.state(status.queued_paths.front())) status.oldest_queued_error = state->why;
  });
  return status;
}

}  // namespace

Result<std::unique_ptr<Catalog>> Catalog::open(const CatalogOptions& options, remote::Blobs& blobs,
                                               remote::Index& index, store::BlobStore& store,
                                               ScopeAccepts scope_accepts, Counters& counters) {
  const uint64_t damaged_before = counters.get("catalog.damaged").get();
  auto database = open_or_renew(options.file, options.is_resumed, counters);
  if (!database) return fail(std::move(database).error());
  for (int looks = 1;; ++looks) {
    auto parts = std::make_unique<Parts>(options, blobs, index, store, scope_accepts, counters, std::move(*database));
    auto positions = load(*parts);
    if (positions && parts->metrics.damaged.get() > damaged_before) {
      store.note_damage();
      log::error("catalog.set_aside", {{"file", options.file + ".damaged"}});
    }
    if (positions) return std::make_unique<CatalogImpl>(std::move(parts), std::move(*positions));
    if (looks == 3 || positions.error().code() != ErrorCode::kCorrupt) return fail(std::move(positions).error());
    parts.reset();  // closes the damaged file before it is renamed
    // A read may have failed once: damage is what a second look finds too.
    const bool again = looks == 1;
    database = again ? open_or_renew(options.file, options.is_resumed, counters) : renew(options.file, counters);
    if (!database) return fail(std::move(database).error());
  }
}

}  // namespace inductorfs::catalog
