// SPDX-License-Identifier: Apache-2.0
#include <sqlite3.h>
#include <sys/xattr.h>

#include <array>

#include "catalog/database/database.h"
#include "catalog/database/statement.h"
#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/handle.h"

/// What the database is made of, and whether a file still is that.
namespace inductorfs::catalog {
namespace {

// Paths are kept as blobs: names on Linux are bytes, not text.
constexpr const char* kSchema = R"(
  CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
  CREATE TABLE scopes(scope TEXT PRIMARY KEY, generation INTEGER NOT NULL, nonce BLOB NOT NULL) WITHOUT ROWID;
  CREATE TABLE entries(scope TEXT NOT NULL, path BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY(scope, path))
    WITHOUT ROWID;
  CREATE TABLE hidden(path BLOB NOT NULL, digest BLOB NOT NULL, PRIMARY KEY(path, digest)) WITHOUT ROWID;
  CREATE TABLE followed(scope TEXT PRIMARY KEY, turn INTEGER NOT NULL) WITHOUT ROWID;
  CREATE TABLE queue(id INTEGER PRIMARY KEY AUTOINCREMENT, kind INTEGER NOT NULL, payload BLOB NOT NULL,
    error TEXT NOT NULL DEFAULT '', attempts INTEGER NOT NULL DEFAULT 0);
)";
/// However kSchema is laid out. Statistics, which ANALYZE makes, are nobody's damage.
constexpr const char* kTables =
    "SELECT type||' '||name||' '||tbl_name||' '||replace(replace(sql, ' ', ''), char(10), '') FROM sqlite_schema "
    "WHERE name NOT LIKE 'sqlite_stat%' ORDER BY name";
/// Those that a start does not read, or not as a whole. They stay small.
constexpr std::array<std::string_view, 4> kUnread = {"meta", "scopes", "followed", "sqlite_sequence"};
/// A number beyond is none that this program gave: SQLite would find no next one, as on a full disk.
constexpr int64_t kMostIds = int64_t{1} << 62;
/// On the file itself, so that it goes with it.
constexpr const char* kDamagedName = "user.inductorfs.damaged";

using Tables = std::vector<std::string>;

Result<Tables> tables_of(sqlite3* handle) {
  Tables tables;
  INDUCTORFS_TRY_ASSIGN(auto select, Statement::prepare(handle, kTables));
  INDUCTORFS_TRY(select.each([&] { tables.emplace_back(select.bytes(0)); }));
  return tables;
}

Result<Tables> tables_as_made() {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open(":memory:", &raw);
  const Handle<sqlite3, sqlite3_close> handle(raw);
  if (code != SQLITE_OK) return fail(ErrorCode::kInternal, "catalog database: no memory");
  INDUCTORFS_TRY(execute(raw, kSchema));
  return tables_of(raw);
}

Result<int64_t> number(sqlite3* handle, std::string_view sql) {
  INDUCTORFS_TRY_ASSIGN(auto select, Statement::prepare(handle, sql));
  INDUCTORFS_TRY_ASSIGN(const bool row, select.step());
  return row ? select.integer(0) : 0;
}

Result<void> check_table(sqlite3* handle, std::string_view table) {
  INDUCTORFS_TRY_ASSIGN(auto check, Statement::prepare(handle, "SELECT quick_check FROM pragma_quick_check(?)"));
  INDUCTORFS_TRY_ASSIGN(const bool row, check.bind_text(table).step());
  if (row && check.bytes(0) == "ok") return {};
  return fail(ErrorCode::kCorrupt, "the table " + std::string(table) + ": " + std::string(check.bytes(0)));
}

}  // namespace

Result<void> Database::note_damaged(const std::string& file) {
  if (::setxattr(file.c_str(), kDamagedName, "1", 1, 0) != 0) return fail_errno("setxattr", file);
  return {};
}

Result<void> Database::prepare_schema(const std::string& file, Use use) {
  INDUCTORFS_TRY_ASSIGN(const auto tables, tables_of(handle_.get()));
  INDUCTORFS_TRY_ASSIGN(const auto pages, number(handle_.get(), "SELECT page_count FROM pragma_page_count"));
  const auto make = [&]() -> Result<void> {
    INDUCTORFS_TRY(execute(handle_.get(), kSchema));
    INDUCTORFS_TRY_ASSIGN(auto first, Statement::prepare(handle_.get(), "INSERT INTO meta VALUES('version', ?)"));
    fail_point("catalog.schema");
    return first.bind(kVersion).run();
  };
  if (tables.empty() && pages <= 1) return in_transaction(make);
  INDUCTORFS_TRY_ASSIGN(const auto found, number(handle_.get(), "SELECT value FROM meta WHERE name='version'"));
  if (found > kVersion) {
    return fail(ErrorCode::kNotSupported, "catalog " + file + " has version " + std::to_string(found) +
                                              ", this program knows up to " + std::to_string(kVersion) +
                                              "; use the newer inductorfs, or another directory");
  }
  if (found < 1) return fail(ErrorCode::kCorrupt, "catalog " + file + " has no version");
  if (use == Use::kRead) return {};  // nobody can set it aside now
  INDUCTORFS_TRY_ASSIGN(const auto made, tables_as_made());
  if (tables != made) return fail(ErrorCode::kCorrupt, "catalog " + file + " has other tables than were made in it");
  auto sound = look(file);
  if (!sound) return fail(std::move(sound).error().with_context("catalog " + file));
  return {};
}

/// What a start can afford: SQLite's check of everything reads the whole file.
Result<void> Database::look(const std::string& file) {
  if (::getxattr(file.c_str(), kDamagedName, nullptr, 0) >= 0) {
    INDUCTORFS_TRY_ASSIGN(const auto found, damages(1));
    if (!found.empty()) return fail(ErrorCode::kCorrupt, "it was found damaged while it was in use: " + found.front());
    (void)::removexattr(file.c_str(), kDamagedName);  // a read had failed once; a mark that stays is met again
  }
  // Asked before, it was what the disk allows; now it is what the header says.
  if (sqlite3_db_readonly(handle_.get(), "main") == 1) return fail(ErrorCode::kCorrupt, "its header forbids writes");
  for (const auto table : kUnread) INDUCTORFS_TRY(check_table(handle_.get(), table));
  for (const auto* last : {"SELECT max(seq) FROM sqlite_sequence", "SELECT max(id) FROM queue"}) {
    INDUCTORFS_TRY_ASSIGN(const auto id, number(handle_.get(), last));
    if (id > kMostIds) return fail(ErrorCode::kCorrupt, "the queue has no further numbers");
  }
  return {};
}

}  // namespace inductorfs::catalog
