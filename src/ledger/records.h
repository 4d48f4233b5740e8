// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "books.h"

/// What a store keeps of the books, as text (docs/formats/store.md). Pure functions.
namespace inductorfs::ledger {

struct KeptTotals {
  Totals totals;
  std::string boot;  ///< of the kernel, as it was written
};

/// A record of a job may have so many bytes: the oldest misses are left out of a longer one.
inline constexpr size_t kRecordLimit = size_t{256} << 10;

[[nodiscard]] std::string to_record(const KeptTotals& kept);
[[nodiscard]] std::string to_record(const JobAccount& job);
/// Empty for what is damaged, or of another version. A reason that this release does not know stays as it is.
[[nodiscard]] std::optional<KeptTotals> totals_from(std::string_view record);
[[nodiscard]] std::optional<JobAccount> job_from(std::string_view record);

}  // namespace inductorfs::ledger
