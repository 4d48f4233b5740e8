// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace inductorfs::places {

/// Removes what killed daemons left there: sockets that nobody listens at, links to sockets that are not there, records
/// of further places (with what they tell of) whose mount is gone. Nothing of a living daemon, nor of one that starts.
void sweep_runtime_directory(const std::string& directory);

}  // namespace inductorfs::places
