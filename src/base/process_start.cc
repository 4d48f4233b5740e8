// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/process_start.h"

#include <charconv>
#include <string>

#include "inductorfs/base/text.h"

namespace inductorfs {
namespace {

// proc_pid_stat(5), counted from the blank behind the name, which is field 2.
constexpr int kBlanksBeforeParent = 2;
constexpr int kBlanksBeforeTicks = 12;  // utime, stime, cutime, cstime
constexpr int kBlanksBeforeThreads = 18;
constexpr int kBlanksBeforeStart = 20;

template <typename Number>
std::optional<Number> field_in_stat(std::string_view stat, int blanks) {
  // The name stands in parentheses and may itself hold parentheses and blanks.
  size_t at = stat.rfind(')');
  for (int i = 0; i < blanks && at != std::string_view::npos; ++i) at = stat.find(' ', at + 1);
  if (at == std::string_view::npos) return std::nullopt;
  Number number = 0;
  const auto parsed = std::from_chars(stat.data() + at + 1, stat.data() + stat.size(), number);
  return parsed.ec == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<uint64_t> sum_of_ticks(std::string_view stat, int fields) {
  uint64_t all = 0;
  for (int field = 0; field < fields; ++field) {
    const auto ticks = field_in_stat<uint64_t>(stat, kBlanksBeforeTicks + field);
    if (!ticks) return std::nullopt;
    all += *ticks;
  }
  return all;
}

/// Of the main thread, or of the one whose text it is; 0 when it is no such text.
char state_in_stat(std::string_view stat) {
  const size_t name_end = stat.rfind(')');
  return name_end == std::string_view::npos || name_end + 2 >= stat.size() ? '\0' : stat[name_end + 2];
}

}  // namespace

std::optional<uint64_t> start_in_stat(std::string_view stat) {
  return field_in_stat<uint64_t>(stat, kBlanksBeforeStart);
}

bool is_ended_in_stat(std::string_view stat) {
  const char state = state_in_stat(stat);
  return (state == 'Z' || state == 'X') && field_in_stat<int>(stat, kBlanksBeforeThreads).value_or(0) <= 1;
}

std::optional<uint64_t> ticks_in_stat(std::string_view stat) { return sum_of_ticks(stat, 4); }
std::optional<uint64_t> own_ticks_in_stat(std::string_view stat) { return sum_of_ticks(stat, 2); }

bool waits_for_disk_in_stat(std::string_view stat) { return state_in_stat(stat) == 'D'; }

std::optional<pid_t> parent_in_stat(std::string_view stat) { return field_in_stat<pid_t>(stat, kBlanksBeforeParent); }

std::string_view line_in_status(std::string_view status, std::string_view name) {
  const std::string label = "\n" + std::string(name) + ":";
  const size_t at = status.find(label);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = status.substr(at + label.size());
  return trimmed(rest.substr(0, rest.find('\n')));
}

std::optional<uint64_t> number_in_status(std::string_view status, std::string_view name) {
  const std::string_view line = line_in_status(status, name);
  uint64_t number = 0;
  const auto parsed = std::from_chars(line.data(), line.data() + line.size(), number);
  return parsed.ec == std::errc() ? std::optional(number) : std::nullopt;
}

}  // namespace inductorfs
