// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "books.h"
#include "inductorfs/config/json_forward.h"

/// Why a job compiled, as JSON. Pure functions.
namespace inductorfs::ledger {

/// Returns the reasons of all misses of the job, those of graphs first, and then the most frequent: [{"reason",
/// "count", "asked", "families", "text", "nearest"}]. "text" and "nearest" are what was found out of one of them
/// (Ledger::note_explained). Of the misses of a family that look alike only some are asked about: where these have one
/// reason, it is that of all.
[[nodiscard]] config::Json reasons_report(const JobAccount& job);
/// Returns the last misses, the last one first, with what was found out of each.
[[nodiscard]] config::Json misses_report(const JobAccount& job);

}  // namespace inductorfs::ledger
