// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "artefact.h"
#include "elf_file.h"

namespace inductorfs::layout {

/// Checks whether this host's loader can satisfy what such a file needs; kNotSupported says what is missing. Pure;
/// safe for concurrent use.
[[nodiscard]] Result<void> check_elf_needs(const Artefact& artefact, const ElfNeeds& needs, const HostLimits& host);

}  // namespace inductorfs::layout
