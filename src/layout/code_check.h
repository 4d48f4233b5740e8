// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "artefact.h"
#include "elf_file.h"
#include "inductorfs/base/result.h"
#include "inductorfs/layout/layout.h"

/// The checks of code in any form, for the families that hold such files, with the contract of check_content(). Pure;
/// safe for concurrent use.
namespace inductorfs::layout {

/// Refuses a NUL. A file that a crash of its host tore has zeros where its bytes were; Python refuses source with a NUL
/// by an exception that torch does not catch.
[[nodiscard]] Result<void> check_text(const Artefact& artefact);
/// Refuses what Python's Path.read_text() raises for too: what is no UTF-8.
[[nodiscard]] Result<void> check_utf8_text(const Artefact& artefact);
/// Returns what a sound binary of this ELF type and of this kind of CPU needs of a host.
[[nodiscard]] Result<ElfNeeds> needs_of_binary(const Artefact& artefact, uint16_t type);
/// Checks a shared object, and what it needs of the host.
[[nodiscard]] Result<void> check_shared_object(const Artefact& artefact, const HostLimits& host);
[[nodiscard]] Result<void> check_cubin(const Artefact& artefact, const HostLimits& host);
[[nodiscard]] Result<void> check_hsaco(const Artefact& artefact);
[[nodiscard]] Result<void> check_ptx(const Artefact& artefact, const HostLimits& host);

}  // namespace inductorfs::layout
