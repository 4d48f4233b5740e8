// SPDX-License-Identifier: Apache-2.0
#include "catalog/database/database.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "catalog/database/statement.h"
#include "inductorfs/base/encoding.h"
#include "inductorfs/base/fail_point.h"

namespace inductorfs::catalog {
namespace {

/// SQLite 3.40, os_unix.c: MAX_PATHNAME is 512, and pager.c wants room for the suffix of the journal.
constexpr size_t kPathLimit = 512 - 8;

/// Of those that a full disk did not take: what a try costs that it does not take either.
constexpr size_t kMarksAtOnce = 1'000;
/// SQLite then keeps the index of its log in memory, and no other program can read the file.
constexpr const char* kAlone = "PRAGMA locking_mode=EXCLUSIVE;";
/// A table that cannot be understood does not keep SQLite from reading the others.
constexpr const char* kTolerant = "PRAGMA writable_schema=ON; PRAGMA trusted_schema=OFF;";
/// SQLite's own checkpoint runs inside a commit and does fsync; the default of 1,000 pages would put one into every
/// hundredth sealing of a job. This bounds the log at 32 MiB.
constexpr const char* kPragmas =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=8000;"
    "PRAGMA journal_size_limit=67108864; PRAGMA trusted_schema=OFF;"
    "PRAGMA temp_store=MEMORY;";  // who serves may have no directory for temporary files

// NOLINTBEGIN(bugprone-macro-parentheses): the name that a macro declares cannot stand in parentheses
#define CATALOG_PREPARE(name, sql)                               \
  auto name##_prepared = Statement::prepare(handle_.get(), sql); \
  if (!name##_prepared) return fail(name##_prepared.error());    \
  Statement& name = *name##_prepared
// NOLINTEND(bugprone-macro-parentheses)

/// There each write to the mapped index of the log needs room: a full btrfs answers with SIGBUS.
bool copies_on_write(const std::string& file) {
  constexpr std::array<decltype(statfs::f_type), 3> kSuch = {BTRFS_SUPER_MAGIC, 0x2fc12fc1,
                                                             0xca451a4e};  // ZFS, bcachefs
  struct statfs disk {};
  return ::statfs(file.c_str(), &disk) == 0 && std::ranges::find(kSuch, disk.f_type) != kSuch.end();
}

/// For reading alone. The log of a worker that was killed holds its last commits: SQLite reads it without its own
/// locks, which would have to be written. Where there is none it would make one, unless nobody may change the file.
int open_to_read(const std::string& file, sqlite3** handle) {
  constexpr int kFlags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  if (::access((file + "-wal").c_str(), F_OK) == 0) return sqlite3_open_v2(file.c_str(), handle, kFlags, "unix-none");
  std::string uri = "file:";
  for (const char c : file) {
    const bool is_special = c == '%' || c == '?' || c == '#';
    uri += is_special ? "%" + to_hex({&c, 1}) : std::string(1, c);
  }
  return sqlite3_open_v2((uri + "?immutable=1").c_str(), handle, kFlags | SQLITE_OPEN_URI, nullptr);
}

}  // namespace

void Database::Close::operator()(sqlite3* handle) const noexcept {
  (void)sqlite3_close_v2(handle);  // nothing to tell: all statements are finalised before
}

Result<std::shared_ptr<Fd>> Database::lock(const std::string& file) {
  auto descriptor = open_at(AT_FDCWD, file + ".lock", O_RDWR | O_CREAT, 0600);
  if (!descriptor && descriptor.error().code() == ErrorCode::kReadOnly) {
    descriptor = open_at(AT_FDCWD, file + ".lock", O_RDONLY);
  }
  if (!descriptor) return fail(std::move(descriptor).error().with_context("catalog " + file));
  // Not SQLite's own locks: those are POSIX locks, which do not tell two users in one process apart.
  if (::flock(descriptor->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return fail(ErrorCode::kBusy,
                  "catalog " + file + " is in use by another daemon; stop it or use another directory");
    }
    return fail_errno("flock", file + ".lock");
  }
  return std::make_shared<Fd>(std::move(*descriptor));
}

Result<void> Database::set_aside(const std::string& file) {
  // The log first: SQLite would replay a log that it finds beside a new file of the same name.
  for (const char* suffix : {"-wal", ""}) {
    if (::rename((file + suffix).c_str(), (file + ".damaged" + suffix).c_str()) != 0 && errno != ENOENT) {
      return fail_errno("rename", file + suffix);
    }
    fail_point("catalog.aside");
  }
  if (::unlink((file + "-shm").c_str()) != 0 && errno != ENOENT) return fail_errno("unlink", file + "-shm");
  return {};
}

Result<Database> Database::open(const std::string& file, std::shared_ptr<Fd> lock, Use use) {
  Database database;
  database.lock_ = std::move(lock);
  sqlite3* raw = nullptr;
  if (file.size() > kPathLimit) {
    return fail(ErrorCode::kInvalid, "open " + file + ": the database takes a path of at most " +
                                         std::to_string(kPathLimit) + " bytes, this one has " +
                                         std::to_string(file.size()) + "; name a shorter directory with --store");
  }
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int code = use == Use::kRead ? open_to_read(file, &raw) : sqlite3_open_v2(file.c_str(), &raw, kFlags, nullptr);
  database.handle_.reset(raw);  // a failed open leaves a handle too, which carries the message
  if (raw == nullptr) return fail(ErrorCode::kInternal, "catalog database: no memory");
  if (code != SQLITE_OK) return fail(database_error(raw, "open " + file));
  if (use != Use::kRead && sqlite3_db_readonly(raw, "main") == 1) {
    return fail(ErrorCode::kReadOnly, "catalog " + file + " cannot be written; check its owner and mode");
  }
  (void)sqlite3_busy_timeout(raw, 0);  // cannot fail; the flock leaves nobody to wait for
  if (use != Use::kShared || copies_on_write(file)) INDUCTORFS_TRY(execute(raw, kAlone));
  if (use == Use::kSalvage) {
    INDUCTORFS_TRY(execute(raw, kTolerant));
    return database;
  }
  // First: of a header that it does not take, SQLite says so here.
  INDUCTORFS_TRY(Statement::prepare(raw, "SELECT 1 FROM sqlite_schema"));
  if (use != Use::kRead) INDUCTORFS_TRY(execute(raw, kPragmas));
  fail_point("catalog.opened");
  INDUCTORFS_TRY(database.prepare_schema(file, use));
  if (use == Use::kRead) database.read_only_ = file;
  return database;
}

/// The disk may take writes again. What the log of an earlier worker holds stays the same until then.
Result<void> Database::prepare_to_write() {
  if (read_only_.empty()) return {};
  struct stat held {};
  struct stat named {};
  const bool is_ours = ::fstat(lock_->get(), &held) == 0 && ::stat((read_only_ + ".lock").c_str(), &named) == 0 &&
                       held.st_dev == named.st_dev && held.st_ino == named.st_ino;
  if (!is_ours) return fail(ErrorCode::kReadOnly, "catalog " + read_only_ + ": another file lies there by now");
  INDUCTORFS_TRY_ASSIGN(auto writable, open(read_only_, lock_));
  handle_ = std::move(writable.handle_);
  read_only_.clear();
  return {};
}

Result<void> Database::in_transaction(const std::function<Result<void>()>& work) {
  auto done = in_one_transaction(work);
  if (done) (void)write_left();
  return done;
}

Result<void> Database::in_one_transaction(const std::function<Result<void>()>& work) {
  INDUCTORFS_TRY(prepare_to_write());
  INDUCTORFS_TRY(execute(handle_.get(), "BEGIN IMMEDIATE"));
  Result<void> outcome = work();
  fail_point("catalog.commit");
  if (outcome && fail_point_error("catalog.disk")) outcome = fail_errno("COMMIT", "the catalog");
  if (outcome) outcome = execute(handle_.get(), "COMMIT");
  fail_point("catalog.committed");
  if (!outcome && sqlite3_get_autocommit(handle_.get()) == 0) {
    (void)execute(handle_.get(), "ROLLBACK");  // the first error is the one to tell
  }
  return outcome;
}

Result<void> Database::note_release(std::string_view release) {
  return in_transaction([&]() -> Result<void> {
    CATALOG_PREPARE(written, "SELECT value FROM meta WHERE name='release'");
    INDUCTORFS_TRY_ASSIGN(auto row, written.step());
    const bool same = row && written.bytes(0) == release;
    written.reset();
    if (same) return {};
    INDUCTORFS_TRY(execute(handle_.get(), "DELETE FROM scopes"));
    fail_point("catalog.release");
    CATALOG_PREPARE(note, "INSERT OR REPLACE INTO meta VALUES('release', ?)");
    return note.bind_blob(release).run();
  });
}

Result<bool> Database::queue_may_be_short() {
  CATALOG_PREPARE(select, "SELECT 1 FROM meta WHERE name='queue'");
  INDUCTORFS_TRY_ASSIGN(auto row, select.step());
  return !row;
}

Result<void> Database::note_queue(bool whole) {
  INDUCTORFS_TRY(prepare_to_write());
  return execute(handle_.get(), whole ? "INSERT OR REPLACE INTO meta VALUES('queue', 'whole')"
                                      : "DELETE FROM meta WHERE name='queue'");
}

Result<void> Database::note_followed(const std::vector<remote::ScopeId>& scopes) {
  return in_transaction([&]() -> Result<void> {
    CATALOG_PREPARE(last, "SELECT coalesce(max(turn), 0) FROM followed");
    INDUCTORFS_TRY(last.step());
    const int64_t turn = last.integer(0) + 1;
    last.reset();
    CATALOG_PREPARE(note, "INSERT OR REPLACE INTO followed VALUES(?,?)");
    for (const auto& scope : scopes) INDUCTORFS_TRY(note.bind_text(scope).bind(turn).run());
    return {};
  });
}

Result<std::vector<remote::ScopeId>> Database::once_followed(const std::vector<remote::ScopeId>& now) {
  std::vector<remote::ScopeId> found;
  CATALOG_PREPARE(select, "SELECT scope FROM followed ORDER BY turn DESC, scope");
  INDUCTORFS_TRY(select.each([&] {
    remote::ScopeId scope(select.bytes(0));
    if (std::ranges::find(now, scope) == now.end()) found.push_back(std::move(scope));
  }));
  return found;
}

Result<void> Database::forget_scope(const remote::ScopeId& scope) {
  INDUCTORFS_TRY(prepare_to_write());
  CATALOG_PREPARE(remove, "DELETE FROM followed WHERE scope=?");
  return remove.bind_text(scope).run();
}

Result<void> Database::forget_position(const remote::ScopeId& scope) {
  INDUCTORFS_TRY(prepare_to_write());
  CATALOG_PREPARE(remove, "DELETE FROM scopes WHERE scope=?");
  return remove.bind_text(scope).run();
}

Result<std::optional<remote::Position>> Database::position(const remote::ScopeId& scope) {
  CATALOG_PREPARE(select, "SELECT generation, nonce FROM scopes WHERE scope=?");
  INDUCTORFS_TRY_ASSIGN(auto row, select.bind_text(scope).step());
  if (!row) return std::nullopt;
  return remote::Position{static_cast<uint64_t>(select.integer(0)), std::string(select.bytes(1))};
}

Result<std::vector<std::string>> Database::damages(size_t limit) {
  std::vector<std::string> found;
  CATALOG_PREPARE(check, "SELECT integrity_check FROM pragma_integrity_check(?)");
  INDUCTORFS_TRY(check.bind(static_cast<int64_t>(limit)).each([&] {
    if (check.bytes(0) != "ok") found.emplace_back(check.bytes(0));
  }));
  return found;
}

Result<std::vector<remote::ScopeId>> Database::scopes_with_entries() {
  std::vector<remote::ScopeId> found;
  CATALOG_PREPARE(select, "SELECT DISTINCT scope FROM entries");
  INDUCTORFS_TRY(select.each([&] { found.emplace_back(select.bytes(0)); }));
  return found;
}

Result<size_t> Database::read_entries(const remote::ScopeId& scope, std::string_view after, size_t limit,
                                      const EntryReader& reader) {
  CATALOG_PREPARE(select, "SELECT path, value FROM entries WHERE scope=? AND path>? ORDER BY path LIMIT ?");
  select.bind_text(scope).bind_blob(after).bind(static_cast<int64_t>(limit));
  size_t count = 0;
  INDUCTORFS_TRY(select.each([&] {
    ++count;
    reader(select.bytes(0), select.bytes(1));
  }));
  return count;
}

Result<uint64_t> Database::count_entries(const remote::ScopeId& scope, uint64_t limit) {
  CATALOG_PREPARE(count, "SELECT count(*) FROM (SELECT 1 FROM entries WHERE scope=? LIMIT ?)");
  INDUCTORFS_TRY(count.bind_text(scope).bind(static_cast<int64_t>(limit)).step());
  return static_cast<uint64_t>(count.integer(0));
}

Result<void> Database::read_hidden(const MarkReader& reader) {
  CATALOG_PREPARE(select, "SELECT path, digest FROM hidden");
  return select.each([&] { reader(select.bytes(0), select.bytes(1)); });
}

Result<void> Database::read_queue(const std::function<void(QueueRow)>& reader) {
  CATALOG_PREPARE(select, "SELECT id, payload, error, attempts FROM queue ORDER BY id");
  return select.each([&] {
    reader({select.integer(0), std::string(select.bytes(1)), std::string(select.bytes(2)),
            static_cast<uint64_t>(select.integer(3))});
  });
}

Result<void> Database::apply(const remote::ScopeId& scope, std::span<const codec::Entry> set,
                             std::span<const std::string> removed, const remote::Position* position) {
  return in_transaction([&]() -> Result<void> {
    CATALOG_PREPARE(remove, "DELETE FROM entries WHERE scope=? AND path=?");
    for (const auto& path : removed) INDUCTORFS_TRY(remove.bind_text(scope).bind_blob(path).run());
    CATALOG_PREPARE(put, "INSERT OR REPLACE INTO entries VALUES(?,?,?)");
    for (const auto& entry : set)
      INDUCTORFS_TRY(put.bind_text(scope).bind_blob(entry.path).bind_blob(codec::encode_entry(entry)).run());
    fail_point("catalog.entries");
    if (position == nullptr) return {};
    CATALOG_PREPARE(move, "INSERT OR REPLACE INTO scopes VALUES(?,?,?)");
    return move.bind_text(scope).bind(static_cast<int64_t>(position->generation)).bind_blob(position->nonce).run();
  });
}

Result<bool> Database::forget_some(const remote::ScopeId& scope, size_t limit) {
  bool empty = false;
  auto done = in_transaction([&]() -> Result<void> {
    INDUCTORFS_TRY(forget_position(scope));
    CATALOG_PREPARE(remove,
                    "DELETE FROM entries WHERE (scope, path) IN "
                    "(SELECT scope, path FROM entries WHERE scope=? LIMIT ?)");
    INDUCTORFS_TRY(remove.bind_text(scope).bind(static_cast<int64_t>(limit)).run());
    empty = sqlite3_changes(handle_.get()) < static_cast<int>(limit);
    return {};
  });
  if (!done) return fail(std::move(done).error());
  return empty;
}

Result<void> Database::insert_marks(std::span<const HiddenMark> marks) {
  CATALOG_PREPARE(insert, "INSERT OR IGNORE INTO hidden VALUES(?,?)");
  for (const auto& mark : marks) INDUCTORFS_TRY(insert.bind_blob(mark.path).bind_blob(mark.digest.raw()).run());
  return {};
}

Result<void> Database::hide(std::span<const HiddenMark> marks) {
  const auto insert = [&] { return insert_marks(marks); };
  auto done = in_transaction(insert);
  if (!done) done = in_transaction(insert);  // a disk may fail once
  if (!done) left_.insert(left_.end(), marks.begin(), marks.end());
  return done;
}

Result<void> Database::write_left() {
  while (!left_.empty()) {
    const auto some = std::span(left_).last(std::min(left_.size(), kMarksAtOnce));
    INDUCTORFS_TRY(in_one_transaction([&] { return insert_marks(some); }));
    left_.resize(left_.size() - some.size());
  }
  return {};
}

/// They are shown again.
void Database::take_back(std::span<const HiddenMark> marks) {
  std::erase_if(left_, [&](const HiddenMark& left) { return std::ranges::find(marks, left) != marks.end(); });
}

Result<void> Database::drop_marks(std::span<const HiddenMark> marks) {
  take_back(marks);
  return in_transaction([&]() -> Result<void> {
    CATALOG_PREPARE(remove, "DELETE FROM hidden WHERE path=? AND digest=?");
    for (const auto& mark : marks) INDUCTORFS_TRY(remove.bind_blob(mark.path).bind_blob(mark.digest.raw()).run());
    return {};
  });
}

Result<int64_t> Database::enqueue(int kind, std::string_view payload, std::span<const int64_t> replaced,
                                  std::span<const HiddenMark> shown) {
  take_back(shown);
  int64_t id = 0;
  auto done = in_transaction([&]() -> Result<void> {
    CATALOG_PREPARE(remove, "DELETE FROM queue WHERE id=?");
    for (const int64_t old : replaced) INDUCTORFS_TRY(remove.bind(old).run());
    CATALOG_PREPARE(show, "DELETE FROM hidden WHERE path=? AND digest=?");
    for (const auto& mark : shown) INDUCTORFS_TRY(show.bind_blob(mark.path).bind_blob(mark.digest.raw()).run());
    CATALOG_PREPARE(insert, "INSERT INTO queue(kind, payload) VALUES(?,?)");
    INDUCTORFS_TRY(insert.bind(kind).bind_blob(payload).run());
    fail_point("queue.adding");
    id = sqlite3_last_insert_rowid(handle_.get());
    return {};
  });
  if (!done) return fail(std::move(done).error());
  fail_point("queue.added");
  return id;
}

Result<std::optional<std::string>> Database::queued_payload(int64_t id) {
  CATALOG_PREPARE(select, "SELECT payload FROM queue WHERE id=?");
  INDUCTORFS_TRY_ASSIGN(auto row, select.bind(id).step());
  if (!row) return std::nullopt;
  return std::string(select.bytes(0));
}

Result<void> Database::note_failure(int64_t id, std::string_view error, uint64_t attempts) {
  INDUCTORFS_TRY(prepare_to_write());
  CATALOG_PREPARE(update, "UPDATE queue SET error=?, attempts=? WHERE id=?");
  auto noted = update.bind_text(error).bind(static_cast<int64_t>(attempts)).bind(id).run();
  fail_point("queue.failure_noted");
  return noted;
}

Result<void> Database::dequeue(int64_t id) {
  INDUCTORFS_TRY(prepare_to_write());
  CATALOG_PREPARE(remove, "DELETE FROM queue WHERE id=?");
  auto removed = remove.bind(id).run();
  fail_point("queue.removed");
  return removed;
}

}  // namespace inductorfs::catalog
