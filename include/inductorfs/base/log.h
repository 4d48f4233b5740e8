// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#include "inductorfs/base/result.h"

/// The structured log. Each event is one line, `time level module.event key=value ...` (logfmt); values are quoted when
/// needed. The event is a literal `module.event` (CONTRIBUTING.md), and docs/operations has a row for it.
///
/// The FUSE boundary, thread entry functions and the daemon write to the log. Libraries below return errors instead, so
/// that nothing is logged twice. Secrets must never be passed: URLs go through redact_url(). Safe for concurrent use.
namespace inductorfs::log {

enum class Level { kDebug, kInfo, kWarning, kError };

struct Field {
  std::string_view key;
  std::variant<std::string, int64_t, uint64_t, double, bool> value;

  Field(std::string_view k, std::string v) : key(k), value(std::move(v)) {}
  Field(std::string_view k, std::string_view v) : key(k), value(std::string(v)) {}
  Field(std::string_view k, const char* v) : key(k), value(std::string(v)) {}
  Field(std::string_view k, bool v) : key(k), value(v) {}
  Field(std::string_view k, int v) : key(k), value(static_cast<int64_t>(v)) {}
  Field(std::string_view k, unsigned v) : key(k), value(static_cast<uint64_t>(v)) {}
  Field(std::string_view k, int64_t v) : key(k), value(v) {}
  Field(std::string_view k, uint64_t v) : key(k), value(v) {}
  Field(std::string_view k, double v) : key(k), value(v) {}
};

using Fields = std::initializer_list<Field>;

/// Opens the log file and drops events below `lowest`. Call it once at start, before there are threads; until then
/// events from kWarning up go to standard error. An empty path means standard error. A file is rotated at 16 MiB, and
/// three older files are kept.
[[nodiscard]] Result<void> open(const std::string& path, Level lowest);
[[nodiscard]] Result<Level> level_from_string(std::string_view text);

void write(Level level, std::string_view event, Fields fields = {});
inline void debug(std::string_view event, Fields fields = {}) { write(Level::kDebug, event, fields); }
inline void info(std::string_view event, Fields fields = {}) { write(Level::kInfo, event, fields); }
inline void warning(std::string_view event, Fields fields = {}) { write(Level::kWarning, event, fields); }
inline void error(std::string_view event, Fields fields = {}) { write(Level::kError, event, fields); }

/// Writes an event that may repeat often: at most one line in `seconds` for each event name. The next line that is
/// written says how many were held back (`suppressed=N`).
void write_limited(Level level, std::string_view event, Fields fields, int seconds = 10);

/// Returns the URL with user and password (and the value of a `password` parameter) replaced by "***".
[[nodiscard]] std::string redact_url(std::string_view url);

}  // namespace inductorfs::log
