// SPDX-License-Identifier: Apache-2.0
// SGLang 0.5.23: libraries of kernels.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/codec/digest.h"
#include "layout/engines/engine.h"
#include "layout/name_shapes.h"

namespace inductorfs::layout {
namespace {

/// sm<compute capability>
bool is_target(std::string_view name) {
  if (!name.starts_with("sm")) return false;
  name.remove_prefix(2);
  if (name.ends_with('a') || name.ends_with('f')) name.remove_suffix(1);
  return (name.size() == 2 || name.size() == 3) && consists_of(name, kDigit);
}

constexpr Component kTarget = a(is_target);
constexpr Component kModule = a(is_plain_name);
constexpr Component kBuild = hex_after("build-", 16);

/// sglang/kernels/jit/utils/compile/cache.py, loader.py
constexpr EnginePlace kJit[] = {
    {Family::kSglangJit, Below::kMembers, {kTarget, kModule, kBuild, hex_after("deps-", 16)}},
    {Family::kTemporary, Below::kSame, {kTarget, kModule, kBuild, hex_after(".staging-", 32)}},
    {Family::kEnginePrivate, Below::kNothing, {kTarget, kModule, kBuild, a(is_no_inner_root)}},
};

constexpr EngineTree kTrees[] = {{is("jit"), kJit, is("sglang")}};

/// repr() of a tuple of strings, for texts that it quotes as they are.
std::optional<std::string> python_tuple(const JsonValue& entry) {
  std::string text = "(";
  for (const JsonValue& value : entry.values) {
    const bool is_plain = value.is_string() && std::all_of(value.text.begin(), value.text.end(), [](char c) {
                            return c >= ' ' && c <= '~' && c != '\'' && c != '\\';
                          });
    if (!is_plain) return std::nullopt;
    text += (text.size() > 1 ? ", '" : "'") + value.text + "'";
  }
  return text + ")";
}

/// sglang/kernels/jit/utils/compile/cache.py: _deps_key, _read_deps. A directory whose list does not give its name is
/// passed over.
Result<void> check_dependencies(const Classification& classified, const Artefact& list) {
  constexpr size_t kEntrySize = 3;  // root, path below it, digest
  constexpr size_t kKeyLength = 16;
  INDUCTORFS_TRY_ASSIGN(const auto document, whole_json(list));
  if (document.kind != JsonValue::Kind::kArray || document.values.empty()) return corrupt(list, "no list");
  std::string hashed;
  for (const JsonValue& entry : document.values) {
    if (entry.kind != JsonValue::Kind::kArray || entry.values.size() != kEntrySize)
      return corrupt(list, "no dependency");
    const auto text = python_tuple(entry);
    if (!text) return foreign(list, "names a file whose name Python would not print as it is");
    hashed += *text + '\0';
  }
  const std::string key = codec::digest_of(hashed).to_hex().substr(0, kKeyLength);
  if (!classified.canonical.ends_with("/deps-" + key)) return corrupt(list, "does not give the directory its name");
  return {};
}

/// jit/<target>/<module>/build-<key>/deps-<key>: the build's other files (objects, generated sources) stay with it.
Result<void> check_library(const EngineArtefact& parcel) {
  const PathParts parts = split(parcel.classified.canonical);
  INDUCTORFS_TRY_ASSIGN(const auto* library, required(parcel, std::string(parts[2]) + ".so"));
  INDUCTORFS_TRY_ASSIGN(const auto* list, required(parcel, "sgl_deps.json"));
  INDUCTORFS_TRY(check_dependencies(parcel.classified, *list));
  return check_engine_library(*library, parcel.host);
}

constexpr Rule kRules[] = {
    {.family = Family::kSglangJit,
     .name = "sglang_jit",
     .shared = true,
     .contest = Contest::kFirstOfPath,
     .form = Form::kDirectory,
     .is_listed = true,
     .facets = kHostAndDeviceCode,
     .why = "a library of kernels. The names hash the build file, the sources, what both compilers say of themselves, "
            "versions of packages, and all files that the compilers read, and neither the C library that it is linked "
            "with nor the content of torch's and tvm-ffi's. The newest directory whose name is still right is "
            "loaded",
     .source = "sglang/kernels/jit/utils/compile/cache.py: find_prebuilt, commit_build; loader.py",
     .pattern = "sglang/jit/sm<cc>/<module>/build-<16 hex>/deps-<16 hex>/**"},
};

/// Read in SGLang 0.5.23 (srt/environ.py, kernels/jit/utils/compile/cache.py,
/// srt/layers/deep_gemm_wrapper/compile_utils.py).
constexpr UserCache kCaches[] = {
    {"SGLang", "SGLANG_CACHE_DIR", "sglang", "~/.cache/sglang", false, "", true, true,
     "SGLang: kernels of Triton and DeepGEMM and what torch.compile makes below it are shared. Its index of compiled "
     "graphs stays private, because all ranks write one, in place"},
    {"SGLang's own kernels", "SGLANG_JIT_CACHE_DIR", "sglang/jit", "", false, "", true, true,
     "SGLang's own kernels are shared. Without this they lie in ~/.cache/sglang/jit, whatever SGLANG_CACHE_DIR says"},
    {"SGLang's DeepGEMM", "SGLANG_DG_CACHE_DIR", nullptr, "", false, "", true, true, "it lies below SGLANG_CACHE_DIR"},
};

}  // namespace

constinit const Engine kSglang{kRules, kTrees, kCaches, check_library};

}  // namespace inductorfs::layout
