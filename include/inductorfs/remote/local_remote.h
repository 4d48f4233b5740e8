// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "inductorfs/remote/remote.h"

namespace inductorfs::remote {

/// The cluster of a mount without --remote: index and log in memory, so that contests and merges are decided as ever,
/// but no bytes. They are in the store already, within its limit; a second copy of each in memory would have none. What
/// the store has evicted is a miss. Safe for concurrent use.
[[nodiscard]] std::unique_ptr<remote::Remote> make_local_remote();

/// A cluster that cannot be reached, which `why` explains: nothing is fetched, what is published waits in the queue for
/// a worker that has the remote again. Safe for concurrent use.
[[nodiscard]] std::unique_ptr<remote::Remote> make_absent_remote(std::string why);

}  // namespace inductorfs::remote
