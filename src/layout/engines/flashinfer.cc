// SPDX-License-Identifier: Apache-2.0
// FlashInfer 0.7.2: downloaded cubins, and tunings, its own and those of vLLM.
#include <string>
#include <string_view>

#include "inductorfs/codec/digest.h"
#include "layout/engines/engine.h"
#include "layout/name_shapes.h"

namespace inductorfs::layout {
namespace {

using fingerprint::Facet;

constexpr Component kPlain = a(is_plain_name);
constexpr Component kAny = a(is_no_inner_root);
constexpr Component kDigest = hex(16);

/// vllm/model_executor/warmup/flashinfer_autotune_cache.py
constexpr EnginePlace kTuningsOfVllm[] = {
    {Family::kFlashInferAutotune, Below::kNothing, {kPlain, kPlain, hex(kSha256HexLength), a(is_json_name)}},
    {Family::kEnginePrivate, Below::kNothing, {kPlain, kPlain, hex(kSha256HexLength), kAny}},
};

/// flashinfer/autotune_cache.py: ManagedAutotuneCache; the manifest is for people
constexpr EnginePlace kTunings[] = {
    {Family::kFlashInferAutotune, Below::kNothing, {is("v2"), kDigest, is("entries"), {{}, 24, ".json", nullptr}}},
    {Family::kEnginePrivate, Below::kNothing, {is("v2"), kDigest, is("entries"), kAny}},
    {Family::kEnginePrivate, Below::kNothing, {is("v2"), kDigest, kAny}},
    // sglang/srt/model_executor/runner/flashinfer_autotune.py: a file of each rank, which all have to be of one run
    {Family::kEnginePrivate, Below::kSame, {kPlain, kPlain, kDigest, kAny}},
};

/// What get_artifact() downloads; beside it are links.
bool is_download(std::string_view name) {
  return name.ends_with(".cubin") || name.ends_with(".so") || name.ends_with(".h") || name == "checksums.txt";
}

/// flashinfer/artifacts.py, jit/cubin_loader.py
constexpr EnginePlace kCubins[] = {{Family::kFlashInferCubin, Below::kNames, {hex(40)}, is_download}};

constexpr EngineTree kTrees[] = {
    {is("flashinfer_autotune_cache"), kTuningsOfVllm},
    {is("autotune"), kTunings, is("flashinfer")},
    {is("cubins"), kCubins, is("flashinfer")},
};

/// One tuning of load_configs(): [runner, tactic], and since FlashInfer 0.7 the policy of its measurement.
bool is_tuning(const JsonValue& value) {
  constexpr size_t kWithPolicy = 3;
  const size_t count = value.values.size();
  if (value.kind != JsonValue::Kind::kArray || count < 2 || count > kWithPolicy || !value.values[0].is_string())
    return false;
  return count < kWithPolicy || value.values[2].kind == JsonValue::Kind::kArray;
}

/// flashinfer/autotuner/autotuner.py: AutoTuner.load_configs, which does not ask for the form of anything.
Result<void> check_tunings(const Artefact& artefact) {
  INDUCTORFS_TRY_ASSIGN(const auto document, whole_object(artefact));
  for (size_t i = 0; i < document.names.size(); ++i) {
    const JsonValue& value = document.values[i];
    if (document.names[i] == "_generation") continue;
    const bool is_record = document.names[i] == "_metadata" || document.names[i] == "_records";
    if (is_record ? !value.is_object() : !is_tuning(value)) return corrupt(artefact, "a tuning is not of its form");
  }
  return {};
}

/// flashinfer/autotune_cache.py: ManagedAutotuneCache.lookup. The name is the hash of the key that the entry repeats.
Result<void> check_tuning_entry(const Artefact& artefact) {
  constexpr size_t kNameLength = 24;
  INDUCTORFS_TRY_ASSIGN(const auto document, whole_object(artefact));
  const JsonValue* key = document.find("key");
  const JsonValue* runner = document.find("runner");
  if (key == nullptr || !key->is_string() || runner == nullptr || !runner->is_string()) {
    return corrupt(artefact, "has no key or no runner");
  }
  if (document.find("tactic") == nullptr) return corrupt(artefact, "has no tactic");
  if (artefact.name != codec::digest_of(key->text).to_hex().substr(0, kNameLength) + ".json") {
    return corrupt(artefact, "is not named by its key");
  }
  return {};
}

Result<void> check_file(const EngineArtefact& file) {
  if (file.classified.family == Family::kFlashInferAutotune) {
    const bool is_entry = file.classified.canonical.starts_with("autotune/");
    return is_entry ? check_tuning_entry(file.artefact) : check_tunings(file.artefact);
  }
  if (file.artefact.name.ends_with(".cubin")) return check_cubin(file.artefact, file.host);
  if (file.artefact.name.ends_with(".so")) return check_engine_library(file.artefact, file.host);
  return check_utf8_text(file.artefact);
}

constexpr Facet kEngineTuning[] = {Facet::kCuda, Facet::kGpu, Facet::kEngine, Facet::kEnvironment};
constexpr Facet kEngineKernel[] = {Facet::kGpu};

constexpr Rule kRules[] = {
    {.family = Family::kFlashInferAutotune,
     .name = "flashinfer_autotune",
     .shared = true,
     .facets = kEngineTuning,
     .why = "timings of one GPU model. They name versions and the GPU's name, and neither its memory nor its slice. "
            "The latest counts, as on one disk. SGLang's, a file of each rank, stay on the host: ranks with tunings "
            "of different runs throw all of them away",
     .source = "vllm/model_executor/warmup/flashinfer_autotune_cache.py: write_flashinfer_autotune_cache; "
               "flashinfer/autotune_cache.py: ManagedAutotuneCache; "
               "sglang/srt/model_executor/runner/flashinfer_autotune.py: _drop_diverged_autotune_cache",
     .pattern = "flashinfer_autotune_cache/<version>/<arch>/<64 hex>/*.json, "
                "flashinfer/autotune/v2/<16 hex>/entries/<24 hex>.json"},
    {.family = Family::kFlashInferCubin,
     .name = "flashinfer_cubin",
     .shared = true,
     .contest = Contest::kFirstOfPath,
     .facets = kEngineKernel,
     .why = "downloaded, and never made on a host. FlashInfer has the SHA-256 of each, or of the list of them, in its "
            "package, and downloads again what is another",
     .source = "flashinfer/jit/cubin_loader.py: download_file, load_cubin; artifacts.py: ArtifactPath, CheckSumHash",
     .pattern = "flashinfer/cubins/<40 hex>/**/(*.cubin|*.so|*.h|checksums.txt)"},
};

/// Read in FlashInfer 0.7.2 (jit/env.py, autotune_cache.py).
constexpr UserCache kCaches[] = {
    {"FlashInfer", "FLASHINFER_WORKSPACE_BASE", "flashinfer", "~/.cache/flashinfer", false, "/.cache/flashinfer", true,
     true,
     "FlashInfer: downloaded cubins and tunings are shared. Operators that it builds (cached_ops) stay private, "
     "because "
     "ninja writes them in place and judges them by times and absolute paths"},
    {"FlashInfer's cubins", "FLASHINFER_CUBIN_DIR", nullptr, "", false, "", true, false,
     "cubins lie below FLASHINFER_WORKSPACE_BASE; this variable would hide those of an installed flashinfer-cubin"},
    {"FlashInfer's tunings", "FLASHINFER_AUTOTUNE_CACHE_DIR", nullptr, "", false, "", true, false,
     "tunings lie below FLASHINFER_WORKSPACE_BASE, those of vLLM (VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR) below "
     "VLLM_CACHE_ROOT"},
};

}  // namespace

constinit const Engine kFlashInfer{kRules, kTrees, kCaches, check_file};

}  // namespace inductorfs::layout
