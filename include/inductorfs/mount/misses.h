// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/config/json_forward.h"
#include "inductorfs/mount/layers.h"

namespace inductorfs::mount {

/// Adds to the misses of a report (ledger::Ledger::misses) what is to be said of each, as "text", and to those whose
/// key other hosts have under other facts the "nearest" of these (host::nearest_report). Asks the cluster once for its
/// scopes, and for the first ten misses who has their keys. Blocks for about two seconds at most.
void explain_misses(config::Json& report, Layers& layers);

}  // namespace inductorfs::mount
