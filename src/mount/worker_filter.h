// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inductorfs/config/settings.h"

namespace inductorfs::mount {

/// Puts this worker under the filter of those who serve (base/call_filter.h), for good: once, and before there are
/// threads. What it could not load then it loads before. Builds with sanitizers, which make calls of their own, have
/// none.
void put_under_filter(const config::Settings& settings);

/// Says why this worker has no filter; empty: it has. Safe for concurrent use after put_under_filter().
[[nodiscard]] const std::string& worker_filter_warning();

}  // namespace inductorfs::mount
