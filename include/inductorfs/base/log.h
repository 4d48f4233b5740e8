// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#include "inductorfs/base/result.h"

/// The structured log: one line an event, `time level event key=value ...` (logfmt), values quoted when they must be.
///
/// Who logs: the FUSE boundary, thread entry functions and the daemon; libraries below return errors instead, so that
/// nothing is logged twice. Never pass secrets: URLs go through redact_url(). Safe for concurrent use.
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

/// Where lines go. Call once at start, before threads; until then they go to standard error from kWarning up.
/// An empty path is standard error. A file is rotated at 16 MiB, three older ones are kept.
[[nodiscard]] Result<void> open(const std::string& path, Level lowest);
[[nodiscard]] Result<Level> level_from_string(std::string_view text);

void write(Level level, std::string_view event, Fields fields = {});
inline void debug(std::string_view event, Fields fields = {}) { write(Level::kDebug, event, fields); }
inline void info(std::string_view event, Fields fields = {}) { write(Level::kInfo, event, fields); }
inline void warning(std::string_view event, Fields fields = {}) { write(Level::kWarning, event, fields); }
inline void error(std::string_view event, Fields fields = {}) { write(Level::kError, event, fields); }

/// A guard for events that a bad day repeats: true at most once in `seconds` for each event name; the next line that
/// passes says how many were held back (`suppressed=N`, added by write_limited).
void write_limited(Level level, std::string_view event, Fields fields, int seconds = 10);

/// The same URL with user and password (and the value of a `password` parameter) replaced by "***".
[[nodiscard]] std::string redact_url(std::string_view url);

}  // namespace inductorfs::log
