// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/base/guarded.h"

namespace inductorfs::vfs {

/// How far a takeover is. What the earlier worker left is looked at when its requests are finished, because a rename
/// that is on the disk only has a node for its file. Until all is looked at nothing is evicted, and sync waits.
enum class Resuming { kNo, kRequests, kFiles };

using TakeoverPhase = Guarded<Resuming>;

}  // namespace inductorfs::vfs
