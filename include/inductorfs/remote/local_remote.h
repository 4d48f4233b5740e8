// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inductorfs/remote/remote.h"

namespace inductorfs::remote {

/// Makes the cluster of a mount without --remote. It keeps an index and a log in memory, so that contests and merges
/// are decided as with a server, but no bytes: those are in the store already, within its limit, and a second copy of
/// each in memory would have no limit. A blob that the store has evicted is a miss. Safe for concurrent use.
[[nodiscard]] Remote make_local_remote();

/// Makes a cluster that cannot be reached, for the reason `why`. Nothing is fetched; what is published waits in the
/// queue for a worker that has the remote again. Safe for concurrent use.
[[nodiscard]] Remote make_absent_remote(std::string why);

}  // namespace inductorfs::remote
