// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "artefact.h"
#include "elf_file.h"
#include "inductorfs/base/result.h"
#include "inductorfs/layout/layout.h"
#include "json_text.h"

/// What check_content() asks of the bytes of a family, with its contract. Each group of functions has the source of its
/// name. All are pure, and safe for concurrent use.
namespace inductorfs::layout {

// code_check.cc: code in any form

/// Checks whether this host's loader can satisfy what such a file needs; kNotSupported says what is missing.
[[nodiscard]] Result<void> check_elf_needs(const Artefact& artefact, const ElfNeeds& needs, const HostLimits& host);

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

// json_check.cc: what torch or Triton take for granted when they read a JSON file. What is missing there is an
// exception in the job, not a miss. All of them want the whole file.

/// Parses the whole file within the limits of metadata.
[[nodiscard]] Result<JsonValue> whole_json(const Artefact& artefact);
/// As whole_json(); kCorrupt for anything but an object.
[[nodiscard]] Result<JsonValue> whole_object(const Artefact& artefact);
/// Checks <xx>/<64 hex>.best_config (torch/_inductor/runtime/autotune_cache.py: _load_cached_autotuning).
[[nodiscard]] Result<void> check_best_config(const Artefact& artefact);
/// Checks <kernel>.json of a key directory (triton/compiler/compiler.py: CompiledKernel).
[[nodiscard]] Result<void> check_triton_metadata(const Artefact& artefact);
/// Checks <function>.autotune.json (triton/runtime/autotuner.py: Autotuner.check_disk_cache).
[[nodiscard]] Result<void> check_triton_autotune(const Artefact& artefact);
/// Checks cache/<system hash> (torch/_inductor/codecache.py: CacheBase, PersistentCache).
[[nodiscard]] Result<void> check_system_autotune(const Artefact& artefact);

// compiled_artifact.cc

/// Checks what torch's CompiledArtifact.load reads (torch/_inductor/standalone_compile.py): a checksum, then pieces
/// with their lengths before them, to the last byte. A load of anything else is an exception that ends the engine.
[[nodiscard]] Result<void> check_compiled_artifact(const Artefact& artefact);

// pickle_frame.cc

/// Checks whether the bytes are one whole pickle of protocol 2 to 5: every opcode is known and has all of its argument,
/// every FRAME holds what it says and ends between two opcodes, and STOP is the last byte. It executes nothing and
/// makes no object. kCorrupt, with the offset and the reason, otherwise.
[[nodiscard]] Result<void> check_pickle_frame(std::string_view bytes);

// system_autotune.cc

/// Parses {"system": {...}, "cache": {...}} of cache/<system hash>; kCorrupt for anything else, kTooLarge over the
/// limits.
[[nodiscard]] Result<JsonValue> parse_system_autotune(std::string_view text);

}  // namespace inductorfs::layout
