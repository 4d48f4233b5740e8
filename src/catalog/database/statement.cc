// SPDX-License-Identifier: Apache-2.0
#include "catalog/database/statement.h"

#include <sqlite3.h>

#include <cerrno>

namespace inductorfs::catalog {
namespace {

/// The words of a statement are right: it is the file that lacks what they name.
Error statement_error(sqlite3* handle, std::string_view sql, int code) {
  Error error = database_error(handle, sql);
  return (code & 0xff) == SQLITE_ERROR ? Error(ErrorCode::kCorrupt, error.what()) : error;
}

}  // namespace

Error database_error(sqlite3* handle, std::string_view doing) {
  const int code = sqlite3_extended_errcode(handle);
  std::string what = "catalog database: " + std::string(doing) + ": " + sqlite3_errmsg(handle);
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {ErrorCode::kBusy, std::move(what)};
    case SQLITE_FULL:
      return {ErrorCode::kNoSpace, std::move(what)};
    case SQLITE_READONLY:
      return {ErrorCode::kReadOnly, std::move(what)};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {ErrorCode::kCorrupt, std::move(what)};
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
    case SQLITE_PERM:
      if (const int cause = sqlite3_system_errno(handle); cause != 0 && cause != ENOENT && cause != EEXIST) {
        return {error_from_errno(cause, doing).code(), std::move(what)};
      }
      return {ErrorCode::kInternal, std::move(what)};
    default:
      return {ErrorCode::kInternal, std::move(what)};
  }
}

Result<void> execute(sqlite3* handle, const char* sql) {
  if (sqlite3_exec(handle, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return fail(database_error(handle, sql));
  return {};
}

void Statement::Finalize::operator()(sqlite3_stmt* statement) const noexcept {
  (void)sqlite3_finalize(statement);  // repeats the error of the last step, which was handled there
}

Result<Statement> Statement::prepare(sqlite3* handle, std::string_view sql) {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v2(handle, sql.data(), static_cast<int>(sql.size()), &raw, nullptr);
  Statement statement(handle, raw);
  if (code != SQLITE_OK) return fail(statement_error(handle, sql, code));
  return statement;
}

Statement& Statement::bind(int64_t value) {
  bind_failed_ |= sqlite3_bind_int64(statement_.get(), next_++, value) != SQLITE_OK;
  return *this;
}

Statement& Statement::bind_text(std::string_view value) {
  // A null pointer would bind NULL: an empty view may have one.
  const char* data = value.data() == nullptr ? "" : value.data();
  bind_failed_ |=
      sqlite3_bind_text64(statement_.get(), next_++, data, value.size(), SQLITE_STATIC, SQLITE_UTF8) != SQLITE_OK;
  return *this;
}

Statement& Statement::bind_blob(std::string_view value) {
  const char* data = value.data() == nullptr ? "" : value.data();
  bind_failed_ |= sqlite3_bind_blob64(statement_.get(), next_++, data, value.size(), SQLITE_STATIC) != SQLITE_OK;
  return *this;
}

Result<bool> Statement::step() {
  if (bind_failed_) return fail(database_error(handle_, "bind"));
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return fail(statement_error(handle_, sqlite3_sql(statement_.get()), code));
}

Result<void> Statement::each(const std::function<void()>& use) {
  auto row = step();
  for (; row && *row; row = step()) use();
  if (!row) return fail(std::move(row).error());
  return {};
}

Result<void> Statement::run() {
  auto row = step();
  reset();
  if (!row) return fail(std::move(row).error());
  return {};
}

void Statement::reset() {
  (void)sqlite3_reset(statement_.get());  // repeats the error of the last step
  next_ = 1;
  bind_failed_ = false;
}

int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }

std::string_view Statement::bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.get(), column);
  if (data == nullptr || size <= 0) return {};
  return {static_cast<const char*>(data), static_cast<size_t>(size)};
}

}  // namespace inductorfs::catalog
