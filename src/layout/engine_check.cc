// SPDX-License-Identifier: Apache-2.0
#include "compiled_artifact.h"
#include "content_checks.h"
#include "inductorfs/codec/digest.h"
#include "name_shapes.h"
#include "pickle_frame.h"

namespace inductorfs::layout {
namespace {

bool is_array(const JsonValue& value) { return value.kind == JsonValue::Kind::kArray; }

/// The whole of a model: torch/_dynamo/aot_compile.py, AOTCompiledFunction.save_compiled_function, one pickle.dumps.
Result<void> check_model(const Classification& classified, const Artefact& artefact) {
  if (auto whole = check_pickle_frame(artefact.bytes); !whole) return corrupt(artefact, whole.error().what());
  return check_devices(classified.canonical, artefact);
}

/// What _load_modelinfo_from_cache reads; another class's members are an exception there, which is a miss.
Result<void> check_model_info(const Artefact& artefact) {
  INDUCTORFS_TRY_ASSIGN(const auto document, whole_object(artefact));
  const JsonValue* hash = document.find("hash");
  const JsonValue* info = document.find("modelinfo");
  if (hash == nullptr || !hash->is_string() || !consists_of(hash->text, kHex)) return corrupt(artefact, "has no hash");
  if (info == nullptr || !info->is_object() || info->names.empty()) return corrupt(artefact, "has no modelinfo");
  return {};
}

/// One tuning of load_configs(): [runner, tactic], and since FlashInfer 0.7 the policy of its measurement.
bool is_tuning(const JsonValue& value) {
  constexpr size_t kWithPolicy = 3;
  const size_t count = value.values.size();
  if (!is_array(value) || count < 2 || count > kWithPolicy || !value.values[0].is_string()) return false;
  return count < kWithPolicy || is_array(value.values[2]);
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

Result<void> check_download(const Artefact& artefact, const HostLimits& host) {
  if (artefact.name.ends_with(".cubin")) return check_cubin(artefact, host);
  if (artefact.name.ends_with(".so")) return check_engine_library(artefact, host);
  return check_utf8_text(artefact);
}

}  // namespace

Result<void> check_engine_artefact(const Classification& classified, const Artefact& artefact, const HostLimits& host) {
  if (rule_of(classified.family).form != Form::kFile) return check_parcel(classified, artefact, host);
  if (classified.family == Family::kVllmModel) return check_model(classified, artefact);
  if (classified.family == Family::kVllmModelInfo) return check_model_info(artefact);
  if (classified.family == Family::kFlashInferCubin) return check_download(artefact, host);
  return classified.canonical.starts_with("autotune/") ? check_tuning_entry(artefact) : check_tunings(artefact);
}

}  // namespace inductorfs::layout
