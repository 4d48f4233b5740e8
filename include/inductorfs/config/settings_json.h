// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/config/json.h"
#include "inductorfs/config/ownership.h"
#include "inductorfs/config/settings.h"

/// Parts of a mount's settings, for the processes that serve it. What is missing, or of another type, throws.
namespace inductorfs::config {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Also, name, path)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GivenValues, values, where, base)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ownership, uid, gid, mode, uncovered)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkerUser, uid, gid, groups)

}  // namespace inductorfs::config
