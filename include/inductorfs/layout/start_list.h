// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"

/// Start lists: which artefacts a job asked for when it started, noted by a mount for the next start of the same job
/// elsewhere. A list is an entry of the cluster under each of the first names that the job asked for, at a path which
/// no mount shows. docs/formats.md has the bytes. Pure; safe for concurrent use.
namespace inductorfs::layout {

/// The directory of the lists' paths.
inline constexpr std::string_view kStartLists = ".starts";
/// The keys that a list has, and its bytes; more than the starts of the largest jobs known ask for.
inline constexpr size_t kStartListKeys = 20'000;
inline constexpr size_t kStartListBytes = size_t{4} << 20;

struct StartKey {
  std::string key;           ///< AskedKey::key: the canonical path of a key directory, or of a file without one
  unsigned passed_over = 0;  ///< so many starts in a row have not asked for it, 9 at most
};

/// Returns the path of the list for starts that ask for this key.
[[nodiscard]] std::string start_list_path(std::string_view key);
/// Says whether the path is one of a list.
[[nodiscard]] bool is_start_list(std::string_view path);

/// Returns the keys in the order in which they were asked for. kCorrupt when the bytes are no list, or one beyond the
/// limits.
[[nodiscard]] Result<std::vector<StartKey>> start_list_keys(std::string_view bytes);
/// Returns the bytes of a list with as many of these keys, from the first on, as the limits allow.
[[nodiscard]] std::string start_list_text(const std::vector<StartKey>& keys);

/// Returns the list that follows from an earlier one when a start has asked for these keys, in this order. What it did
/// not ask for stays behind them until it was passed over by kForgotten starts in a row; `judges` is false where the
/// start cannot tell, because programs had asked for a part of the list before it.
inline constexpr unsigned kForgotten = 3;
[[nodiscard]] std::vector<StartKey> next_start_list(const std::vector<StartKey>& earlier,
                                                    const std::vector<std::string>& asked, bool judges);

}  // namespace inductorfs::layout
