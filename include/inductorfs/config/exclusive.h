// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/config/settings.h"

/// Options that exclude each other: --also and --no-also, --python and --fingerprint. Both from one source are an error
/// (check_contradictions); of two sources the later one counts.
namespace inductorfs::config {

/// Takes back what an earlier source gave and `values` exclude.
void overrule(const RawValues& values, Settings& settings);

/// Returns the option of a later source in `given` that excludes `option`, with that source: "no-also (command line)".
/// Empty where `option` is in force, or nobody gave it. Pure.
[[nodiscard]] std::string overruled_by(const std::vector<GivenValues>& given, std::string_view option);

}  // namespace inductorfs::config
