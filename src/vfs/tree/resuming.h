// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/base/guarded.h"

namespace inductorfs::vfs {

/// The phase of a takeover. What the earlier worker left is examined when its requests are finished, because only then
/// does the file of a rename that is on the disk alone have a node. Until everything is examined nothing is evicted,
/// and sync waits.
enum class Resuming { kNo, kRequests, kFiles };

using TakeoverPhase = Guarded<Resuming>;

}  // namespace inductorfs::vfs
