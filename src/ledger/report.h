// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "books.h"
#include "inductorfs/config/json_forward.h"

/// What the books say, as JSON. Pure functions.
namespace inductorfs::ledger {

using EnvironmentText = std::function<std::string(const std::string& environment)>;

/// Of the users `seen_by` alone, or all.
[[nodiscard]] config::Json stats_report(const Books& books, std::optional<uid_t> seen_by);
/// `others` are all jobs, with which the hints compare.
[[nodiscard]] config::Json job_report(const JobAccount& job, const std::vector<const JobAccount*>& others,
                                      const EnvironmentText& environment_text);
/// "slurm 4711"
[[nodiscard]] std::string text_of(const JobName& name);
/// What people read of a miss's reason.
[[nodiscard]] std::string_view word_of(vfs::UseKind use);
/// Returns what has this word; empty: no use has.
[[nodiscard]] std::optional<vfs::UseKind> use_named(std::string_view word);
[[nodiscard]] bool is_hit(vfs::UseKind use);
[[nodiscard]] std::vector<vfs::UseKind> misses();
/// Returns the sum over all families.
[[nodiscard]] FamilyTally sum_of(const Tally& tally);

}  // namespace inductorfs::ledger
