// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "artefact.h"

/// What torch's standalone compiler makes for vLLM. Pure; safe for concurrent use.
namespace inductorfs::layout {

/// Checks what CompiledArtifact.load reads (torch/_inductor/standalone_compile.py): a checksum, then pieces with their
/// lengths before them, to the last byte. A load of anything else is an exception that ends the engine.
[[nodiscard]] Result<void> check_compiled_artifact(const Artefact& artefact);
/// Checks for which devices the code in an artefact of vLLM is. `canonical` is its path, in which the rank is.
///
/// Inductor writes the device's index into what it generates (codegen/wrapper.py: write_get_raw_stream), and neither
/// the path nor a key has it: the launch on another device is the driver's "invalid argument", which ends the engine.
/// Which device a reader has is not known. A process of rank r has a device with an index up to r, wherever it is: so
/// code for a higher one is of a process that was placed otherwise, and stays on its host (kNotSupported).
[[nodiscard]] Result<void> check_devices(std::string_view canonical, const Artefact& artefact);

}  // namespace inductorfs::layout
