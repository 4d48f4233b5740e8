// SPDX-License-Identifier: Apache-2.0
#include "catalog/load.h"

#include <filesystem>
#include <utility>

#include "catalog/database/publish_codec.h"
#include "catalog/publisher.h"
#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/host_error.h"
#include "inductorfs/base/log.h"

namespace inductorfs::catalog {
namespace {

/// Rows at a time: about half a millisecond during which a lookup or an enqueue waits.
constexpr size_t kPageRows = 512;

/// What can still be read of a damaged file, of the part that nobody else has.
struct Salvaged {
  std::vector<std::string> payloads;
  std::vector<HiddenMark> hidden;
};

Salvaged salvage(const std::string& file, const std::shared_ptr<Fd>& lock) {
  Salvaged salvaged;
  auto damaged = Database::open(file, lock, Database::Use::kSalvage);
  if (!damaged) return salvaged;
  // Each up to the damage, which is known.
  (void)damaged->read_queue([&](Database::QueueRow row) {
    if (decode_publish(row.payload)) salvaged.payloads.push_back(std::move(row.payload));
  });
  (void)damaged->read_hidden([&](std::string_view path, std::string_view raw) {
    if (const auto digest = codec::Digest::from_raw(raw)) salvaged.hidden.push_back({std::string(path), *digest});
  });
  return salvaged;
}

Result<Database> renew_locked(const std::string& file, const std::shared_ptr<Fd>& lock, Counters& counters) {
  counters.get("catalog.damaged").add();
  const auto salvaged = salvage(file, lock);
  INDUCTORFS_TRY(Database::set_aside(file));
  auto fresh = Database::open(file, lock);
  if (!fresh) return fresh;
  fail_point("catalog.renewed");
  for (const auto& payload : salvaged.payloads) {
    auto publish = decode_publish(payload);
    if (!publish) continue;  // was decoded before it got here
    INDUCTORFS_TRY(fresh->enqueue(static_cast<int>(publish->kind), payload, {}, {}));
  }
  INDUCTORFS_TRY(fresh->hide(salvaged.hidden));
  return fresh;
}

bool is_damaged(const Result<Database>& opened) { return !opened && opened.error().code() == ErrorCode::kCorrupt; }

Result<void> load_marks(Parts& parts) {
  uint64_t damaged = 0;
  std::vector<HiddenMark> dropped;
  auto read = parts.durable.with([&](Durable& durable) {
    return durable.database.read_hidden([&](std::string_view path, std::string_view raw) {
      const auto digest = codec::Digest::from_raw(raw);
      if (!digest) return void(++damaged);
      auto gone = parts.tree.write([&](EntryTree& tree) { return tree.mark_hidden(std::string(path), *digest); });
      if (gone) dropped.push_back(*std::move(gone));
    });
  });
  parts.forget_marks(dropped);
  tell_damaged_rows(parts, "deleted names", damaged);
  return read;
}

struct Page {
  size_t rows = 0;
  size_t damaged = 0;
  std::string last;
  std::vector<codec::Entry> entries;
};

Result<Page> read_page(Parts& parts, const remote::ScopeId& scope, const std::string& after) {
  Page page;
  auto rows = parts.durable.with([&](Durable& durable) {
    return durable.database.read_entries(scope, after, kPageRows, [&](std::string_view path, std::string_view value) {
      page.last = path;
      auto entry = codec::decode_entry(path, value);
      if (!entry && entry.error().code() == ErrorCode::kCorrupt) ++page.damaged;
      if (entry && parts.acceptable(scope, *entry)) page.entries.push_back(std::move(*entry));
    });
  });
  if (!rows) return fail(std::move(rows).error());
  page.rows = *rows;
  return page;
}

Result<void> load_queue(Parts& parts) {
  uint64_t damaged = 0;
  auto loaded = parts.durable.with([&](Durable& durable) -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(auto is_short, durable.database.queue_may_be_short());
    durable.queue_is_short = is_short;
    std::vector<int64_t> unreadable;
    auto done = durable.database.read_queue([&](Database::QueueRow row) {
      auto publish = decode_publish(row.payload);
      if (!publish) {
        unreadable.push_back(row.id);
        if (publish.error().code() == ErrorCode::kCorrupt) ++damaged;
        return;
      }
      QueueIndex::Item item{publish->scope, paths_of(*publish), {}, std::move(row.error), row.attempts};
      for (const auto& entry : publish->entries) item.digests.push_back(entry.digest);
      durable.queue.add(row.id, std::move(item));
    });
    if (!done || unreadable.empty()) return done;
    // What they told of is queued again from the seals of its files (vfs/recover). A row that stays is met again.
    parts.count_failure(durable.note_queue(false));
    for (const int64_t id : unreadable) parts.count_failure(durable.database.dequeue(id));
    return {};
  });
  tell_damaged_rows(parts, "groups that wait to be published", damaged);
  return loaded;
}

/// What a start writes is for later starts. On a disk that takes nothing a worker serves without it the jobs that are
/// there; a mount that begins is refused, so that jobs go on without it. Returns whether the positions are those of
/// this release.
Result<bool> note_start(Parts& parts) {
  const auto left_out = [&](const Result<void>& noted) {
    if (noted || !parts.options.is_resumed || !is_of_host(noted.error().code())) return false;
    log::warning("catalog.start_not_noted", {{"error", noted.error().to_string()}});
    return true;
  };
  return parts.durable.with([&](Durable& durable) -> Result<bool> {
    const auto release = durable.database.note_release(INDUCTORFS_VERSION);
    const bool unknown = left_out(release);
    if (!unknown) INDUCTORFS_TRY(release);
    const auto followed = durable.database.note_followed(parts.options.scopes);
    if (!left_out(followed)) INDUCTORFS_TRY(followed);
    return !unknown;
  });
}

}  // namespace

void Parts::note_failure(const Error& error) {
  metrics.database_errors.add();
  if (error.code() != ErrorCode::kCorrupt) return;
  (void)Database::note_damaged(options.file);  // on a disk that takes nothing the next failure notes it
  damaged = true;
}

void Parts::forget_marks(const std::vector<HiddenMark>& marks) {
  if (marks.empty()) return;
  count_failure(durable.with([&](Durable& of_disk) { return of_disk.database.drop_marks(marks); }));
}

void tell_damaged_rows(Parts& parts, std::string_view what, uint64_t rows) {
  if (rows == 0) return;
  parts.metrics.damaged_rows.add(rows);
  parts.store.note_damage();
  log::error("catalog.rows_damaged", {{"what", what}, {"rows", rows}});
}

Result<Database> open_or_renew(const std::string& file, bool is_resumed, Counters& counters) {
  if (const auto parent = std::filesystem::path(file).parent_path(); !parent.empty()) {
    INDUCTORFS_TRY(make_directories(parent.string(), 0700));
  }
  INDUCTORFS_TRY_ASSIGN(auto lock, Database::lock(file));
  auto database = Database::open(file, lock);
  for (const auto use : {Database::Use::kAlone, Database::Use::kRead}) {
    const bool is_ill = !database && is_of_host(database.error().code());
    if (is_resumed && is_ill) database = Database::open(file, lock, use);
  }
  if (!is_damaged(database)) return database;
  database = Database::open(file, lock);  // a read may have failed once
  return is_damaged(database) ? renew_locked(file, lock, counters) : std::move(database);
}

Result<Database> renew(const std::string& file, Counters& counters) {
  INDUCTORFS_TRY_ASSIGN(auto lock, Database::lock(file));
  return renew_locked(file, lock, counters);
}

Result<remote::Position> load_scope(Parts& parts, const FollowedScope& scope) {
  uint64_t unusable = 0;
  uint64_t damaged = 0;
  std::string after;
  std::vector<std::string> changed;
  for (bool more = true; more && !parts.stopping;) {
    INDUCTORFS_TRY_ASSIGN(auto page, read_page(parts, scope.id, after));
    size_t used = 0;
    bool gone = false;
    parts.tree.write([&](EntryTree& tree) {
      for (const auto& entry : page.entries) {
        const EntryTree::Change change = tree.set(scope.index, entry);
        gone = gone || change == EntryTree::Change::kGone;
        if (change != EntryTree::Change::kRefused) ++used;
        if (change == EntryTree::Change::kVisible) changed.push_back(entry.path);
      }
    });
    parts.tell(changed);
    if (gone) return remote::Position{};
    unusable += page.rows - used;
    damaged += page.damaged;
    more = page.rows == kPageRows;
    after = std::move(page.last);
  }
  tell_damaged_rows(parts, "entries of the cluster", damaged);
  parts.metrics.rejected.add(unusable);
  // One of them may be of an artefact of this host that the cluster has lost meanwhile.
  if (unusable > 0) parts.count_failure(parts.durable.with([](Durable& d) { return d.note_queue(false); }));
  if (unusable > 0 || parts.stopping) return remote::Position{};
  auto position = parts.durable.with([&](Durable& durable) { return durable.database.position(scope.id); });
  if (!position) return fail(std::move(position).error());
  return position->value_or(remote::Position{});
}

Result<std::map<ScopeIndex, remote::Position>> load(Parts& parts) {
  INDUCTORFS_TRY_ASSIGN(const bool positions_hold, note_start(parts));
  INDUCTORFS_TRY(load_marks(parts));
  std::map<ScopeIndex, remote::Position> positions;
  for (const auto& scope : parts.tree.read([](const EntryTree& tree) { return tree.scopes().all(); })) {
    auto position = load_scope(parts, scope);  // nobody listens yet
    if (!position) return fail(std::move(position).error());
    positions[scope.index] = positions_hold ? std::move(*position) : remote::Position{};
  }
  INDUCTORFS_TRY(load_queue(parts));
  parts.count_entries();
  return positions;
}

}  // namespace inductorfs::catalog
