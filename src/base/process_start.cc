// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/process_start.h"

#include <charconv>

namespace inductorfs {
namespace {

/// Of the start in /proc/PID/stat (proc_pid_stat(5): 22), counted from the blank behind the name, which is field 2.
constexpr int kBlanksBeforeStart = 20;

}  // namespace

std::optional<uint64_t> start_in_stat(std::string_view stat) {
  // The name stands in parentheses and may itself hold parentheses and blanks.
  size_t at = stat.rfind(')');
  for (int i = 0; i < kBlanksBeforeStart && at != std::string_view::npos; ++i) at = stat.find(' ', at + 1);
  if (at == std::string_view::npos) return std::nullopt;
  uint64_t start = 0;
  const auto parsed = std::from_chars(stat.data() + at + 1, stat.data() + stat.size(), start);
  return parsed.ec == std::errc() ? std::optional(start) : std::nullopt;
}

}  // namespace inductorfs
