// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "inductorfs/base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace inductorfs::catalog {

/// Converts SQLite's last error on this connection to an Error.
[[nodiscard]] Error database_error(sqlite3* handle, std::string_view doing);
[[nodiscard]] Result<void> execute(sqlite3* handle, const char* sql);

/// One prepared statement, which can be run again after reset(). Bound text and blobs are not copied: they must live
/// until the statement has been stepped to its end. Needs external synchronisation.
class Statement {
 public:
  [[nodiscard]] static Result<Statement> prepare(sqlite3* handle, std::string_view sql);

  Statement& bind(int64_t value);
  Statement& bind_text(std::string_view value);
  Statement& bind_blob(std::string_view value);

  /// Steps; returns true when there is a row.
  [[nodiscard]] Result<bool> step();
  /// Steps to the end, and calls `use` at each row.
  [[nodiscard]] Result<void> each(const std::function<void()>& use);
  /// Runs a statement that returns no rows, and makes it ready to be bound again.
  [[nodiscard]] Result<void> run();
  void reset();

  [[nodiscard]] int64_t integer(int column) const;
  /// Returns the bytes of a column, which are valid until the next step.
  [[nodiscard]] std::string_view bytes(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const noexcept;
  };
  Statement(sqlite3* handle, sqlite3_stmt* statement) : handle_(handle), statement_(statement) {}

  sqlite3* handle_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int next_ = 1;
  bool bind_failed_ = false;
};

}  // namespace inductorfs::catalog
