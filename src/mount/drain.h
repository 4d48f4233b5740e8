// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "inductorfs/base/clock.h"

namespace inductorfs::mount {

struct Layers;

/// Publishes, at the end of a mount, what is written, as far as that gets before the deadline or until `cancelled`. The
/// log says what was published (mount.drained) and what stays in the durable queue for the next mount
/// (mount.left_queued). Returns at once when the cluster is away.
void drain(Layers& layers, Deadline deadline, const std::function<bool()>& cancelled);

}  // namespace inductorfs::mount
