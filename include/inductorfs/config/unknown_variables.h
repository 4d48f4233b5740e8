// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

namespace inductorfs::config {

/// Returns a line for each variable that looks like an option's (INDUCTORFS_REMOT) and is none, with the option that
/// may be meant; ten lines at most. Not for what the project's tests and scripts use, and what Kubernetes makes for
/// services. Pure.
[[nodiscard]] std::vector<std::string> unknown_variables(const std::map<std::string, std::string>& variables);

}  // namespace inductorfs::config
