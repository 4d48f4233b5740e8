// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace inductorfs::places {

/// Removes what killed daemons left in the directory: sockets at which nobody listens, links to sockets that are gone,
/// and, with `and_places`, what is left at further places of mounts that are gone. It removes nothing of a daemon that
/// lives or starts.
void sweep_runtime_directory(const std::string& directory, bool and_places);

}  // namespace inductorfs::places
