// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "artefact.h"
#include "inductorfs/base/result.h"
#include "inductorfs/layout/layout.h"

namespace inductorfs::layout {

/// Checks an artefact of a serving engine's family, with the contract of check_content(). Of a parcel all members are
/// checked. Pure; safe for concurrent use.
[[nodiscard]] Result<void> check_engine_artefact(const Classification& classified, const Artefact& artefact,
                                                 const HostLimits& host);

}  // namespace inductorfs::layout
