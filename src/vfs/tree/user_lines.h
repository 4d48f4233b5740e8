// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <map>
#include <optional>

namespace inductorfs::vfs {

/// Returns who caused most of these lines, which loses one when there are too many: so no user pushes out the lines of
/// others. Each line has an `owner`; lines without a known one count as those of one more user. `lines` is not empty.
template <typename Lines>
[[nodiscard]] std::optional<uid_t> owner_of_most(const Lines& lines) {
  std::map<std::optional<uid_t>, size_t> counts;
  for (const auto& line : lines) ++counts[line.owner];
  return std::ranges::max_element(counts, {}, [](const auto& user) { return user.second; })->first;
}

}  // namespace inductorfs::vfs
