// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/config/settings.h"

/// What is wrong with options where they come from: names that are none, and options that exclude each other (--also
/// and --no-also, --python and --fingerprint). Both from one source are an error (check_contradictions); of two sources
/// the later one counts.
namespace inductorfs::config {

/// Makes the error of a value that an option does not take, for the reason `why`. Pure.
[[nodiscard]] Error refused_value(std::string_view name, const std::string& value, const std::string& where,
                                  const Error& why);

/// Takes back what an earlier source gave and `values` exclude.
void overrule(const RawValues& values, Settings& settings);

/// Returns the option of a later source in `given` that excludes `option`, with that source: "no-also (command line)".
/// Empty where `option` is in force, or nobody gave it. Pure.
[[nodiscard]] std::string overruled_by(const std::vector<GivenValues>& given, std::string_view option);

/// Returns a line for each variable that looks like an option's (INDUCTORFS_REMOT) and is none, with the option that
/// may be meant; ten lines at most. Not for what the project's tests and scripts use, and what Kubernetes makes for
/// services. Pure.
[[nodiscard]] std::vector<std::string> unknown_variables(const std::map<std::string, std::string>& variables);

}  // namespace inductorfs::config
