// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/codec/entry.h"

namespace inductorfs::layout {

/// Which artefacts an operator means. All conditions that are given must hold; with none, every artefact is selected.
/// Value type; safe for concurrent reads.
struct Selection {
  std::vector<std::string> scopes{};    ///< beginnings of scope ids; one of them must fit
  std::vector<std::string> families{};  ///< names; one of them must be that of the entry's path
  std::string pattern{};                ///< a glob over the canonical path, as RuleChange::pattern
  std::optional<codec::Digest> digest{};
  std::optional<int64_t> before_ns{};  ///< the entry's mtime is below it

  /// Every condition but that of the scopes.
  [[nodiscard]] bool fits(const codec::Entry& entry) const;
  [[nodiscard]] bool fits_scope(std::string_view id) const;
  [[nodiscard]] bool selects(std::string_view scope, const codec::Entry& entry) const {
    return fits_scope(scope) && fits(entry);
  }
  bool operator==(const Selection&) const = default;
};
inline constexpr size_t kSelectedScopesLimit = 256;
/// Hex digits of a scope's id that a selection has at least.
inline constexpr size_t kScopeBeginning = 8;

/// Says whether the scope with this text is of this version of torch, or of one that begins with its components: 2.9.1
/// is of "2.9". False for a scope without torch.
[[nodiscard]] bool is_of_torch(std::string_view scope_text, std::string_view version);

/// Says what is wrong with a selection: an unknown family, a bad pattern, what is no beginning of a scope's id.
[[nodiscard]] Result<void> check_selection(const Selection& selection);

}  // namespace inductorfs::layout
