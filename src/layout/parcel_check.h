// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "artefact.h"
#include "inductorfs/layout/layout.h"

namespace inductorfs::layout {

/// Checks a parcel: that it has the files that its program looks for, no others, and each of them is sound. With the
/// contract of check_content(). Pure; safe for concurrent use.
[[nodiscard]] Result<void> check_parcel(const Classification& classified, const Artefact& artefact,
                                        const HostLimits& host);
/// Checks a shared object of a serving engine. Libraries that it needs are not asked for: the engine has loaded its own
/// (tvm-ffi, CUDA's runtime) from its packages before, where the loader alone would not find them.
[[nodiscard]] Result<void> check_engine_library(const Artefact& artefact, const HostLimits& host);

}  // namespace inductorfs::layout
