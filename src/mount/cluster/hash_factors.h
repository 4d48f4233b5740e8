// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "inductorfs/base/clock.h"
#include "inductorfs/config/json_forward.h"
#include "inductorfs/mount/layers.h"

/// Why a serving engine asks for another hash than other pods do. vLLM writes what its hash is made of beside its
/// artefacts (cache_key_factors.json), and the cluster shares that file (layout::Family::kVllmFactors).
namespace inductorfs::mount {

/// Compares two files of factors. Returns an array of {"name", "ours", "theirs", "remedy"}, in the order of the names;
/// null when one of the texts is none. Values are JSON in ASCII, cut after 200 bytes. Pure; safe for concurrent use.
[[nodiscard]] config::Json compare_factors(std::string_view ours, std::string_view theirs);

/// Compares the factors of a hash that this host made last below the root of `place` (or of the one that `place`
/// names), whether they were published or not, with the nearest ones of other hashes in the same scope. Returns
/// {"ours": hash, "theirs": hash, "origin": who published theirs, "others": other hashes that were compared,
/// "differences": the first 32 of compare_factors(), "more": how many more there are}, or null when there is nothing to
/// compare. Blocks until the deadline at most, on the store and the cluster.
[[nodiscard]] config::Json other_hash_report(Layers& layers, const std::string& scope, std::string_view place,
                                             Deadline deadline);

}  // namespace inductorfs::mount
