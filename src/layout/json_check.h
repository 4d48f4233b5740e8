// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "artefact.h"
#include "json_text.h"

/// Check whether a JSON file has what torch or Triton take for granted when they read it: what is missing there is an
/// exception in the job, not a miss. All of them want the whole file. The functions are pure; safe for concurrent use.
namespace inductorfs::layout {

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
/// Checks cache_key_factors.json (vllm/compilation/backends.py: VllmBackend.__call__): an object of at most
/// kVllmFactorsLimit bytes with the object "env".
[[nodiscard]] Result<void> check_vllm_factors(const Artefact& artefact);

}  // namespace inductorfs::layout
