// SPDX-License-Identifier: Apache-2.0
// TileLang 0.1.15: a directory for each kernel.
#include <string>
#include <string_view>

#include "inductorfs/codec/digest.h"
#include "layout/engines/engine.h"
#include "layout/name_shapes.h"

namespace inductorfs::layout {
namespace {

/// sys.platform and platform.machine() of Linux
bool is_platform(std::string_view name) { return name == "linux-x86_64" || name == "linux-aarch64"; }

bool is_version(std::string_view name) {
  return is_in(name.front(), kDigit) && name.find('.') != std::string_view::npos;
}

/// tilelang/cache/kernel_cache.py, binary_cache.py, autotuner/param.py. The version above is in the key too.
constexpr EnginePlace kOfPlatform[] = {
    {Family::kTileLang, Below::kMembers, {is("kernels"), hex(kSha256HexLength)}},
    {Family::kTemporary, Below::kSame, {is(".staging")}},
    // AutotuneResult.save_to_disk: with a pickled function, and no GPU in their key
    {Family::kEnginePrivate, Below::kSame, {is("autotuner")}},
};
constexpr EnginePlace kBinaries[] = {{Family::kTileLang, Below::kMembers, {hex(kSha256HexLength)}}};
constexpr EnginePlace kStaging[] = {{Family::kTemporary, Below::kSame, {is("cuda-binaries")}}};

constexpr EngineTree kTrees[] = {
    {a(is_platform), kOfPlatform, a(is_version)},
    {is("cuda-binaries"), kBinaries, a(is_version)},
    {is(".staging"), kStaging, a(is_version)},
};

/// Checks {"size": ..., "sha256": ...} of a file.
Result<void> check_record(const Artefact& file, const JsonValue* record) {
  const JsonValue* size = record == nullptr ? nullptr : record->find("size");
  const JsonValue* digest = record == nullptr ? nullptr : record->find("sha256");
  if (size == nullptr || size->text != std::to_string(file.size)) return corrupt(file, "is not of its recorded size");
  if (digest == nullptr || digest->text != codec::digest_of(file.bytes).to_hex()) {
    return corrupt(file, "is not what its record says");
  }
  return {};
}

Result<void> check_code(const Artefact& file, const HostLimits& host) {
  if (file.name.ends_with(".so")) return check_engine_library(file, host);
  if (file.name.ends_with(".cubin")) return check_cubin(file, host);
  if (file.name.ends_with(".ptx")) return check_ptx(file, host);
  if (file.name.ends_with(".json")) return whole_json(file).map([](const JsonValue&) {});
  return check_text(file);
}

/// tilelang/cache/kernel_cache.py: _write_manifest, _verify_cache_dir_integrity. Which files there are depends on the
/// backend; each has params.json and the code that is loaded.
Result<void> check_kernel(const EngineArtefact& parcel) {
  constexpr std::string_view kManifest = "manifest.json";
  INDUCTORFS_TRY_ASSIGN(const auto* manifest, required(parcel, kManifest));
  INDUCTORFS_TRY(required(parcel, "params.json"));
  INDUCTORFS_TRY_ASSIGN(const auto document, whole_object(*manifest));
  const JsonValue* records = document.find("files");
  if (records == nullptr || !records->is_object()) return corrupt(*manifest, "has no files");
  if (records->names.size() + 1 != parcel.members.size()) return corrupt(*manifest, "does not name what is there");
  const auto is_loaded = [&parcel](std::string_view name) { return parcel.members.contains(name); };
  if (!is_loaded("kernel_lib.so") && !is_loaded("kernel.cubin") && !is_loaded("kernel.py")) {
    return corrupt(parcel.artefact, "has no code");
  }
  for (const auto& [name, file] : parcel.members) {
    if (name == kManifest) continue;
    INDUCTORFS_TRY(check_record(file, records->find(name)));
    INDUCTORFS_TRY(check_code(file, parcel.host));
  }
  return {};
}

/// tilelang/cache/binary_cache.py: BinaryCache.load
Result<void> check_binary(const EngineArtefact& parcel) {
  constexpr std::string_view kMetadata = "metadata.json";
  INDUCTORFS_TRY_ASSIGN(const auto* metadata, required(parcel, kMetadata));
  INDUCTORFS_TRY_ASSIGN(const auto document, whole_object(*metadata));
  const JsonValue* format = document.find("format");
  if (format == nullptr || format->text != "tilelang.cuda-binary-cache.v1") {
    return foreign(*metadata, "is of an unknown version of TileLang's cache");
  }
  if (parcel.members.size() != 2) return corrupt(parcel.artefact, "has more than a kernel and metadata.json");
  const auto& kernel =
      parcel.members.begin()->first == kMetadata ? parcel.members.rbegin()->second : parcel.members.begin()->second;
  if (kernel.name != "kernel.cubin" && kernel.name != "kernel.ptx")
    return foreign(kernel, "is code of an unknown form");
  if (kernel.size == 0) return corrupt(kernel, "is empty");
  INDUCTORFS_TRY(check_record(kernel, &document));
  return check_code(kernel, parcel.host);
}

Result<void> check_parcel(const EngineArtefact& parcel) {
  const bool is_binary = parcel.classified.canonical.starts_with("cuda-binaries/");
  return is_binary ? check_binary(parcel) : check_kernel(parcel);
}

constexpr Rule kRules[] = {
    {.family = Family::kTileLang,
     .name = "tilelang",
     .shared = true,
     .contest = Contest::kFirstOfPath,
     .form = Form::kDirectory,
     .facets = kHostAndDeviceCode,
     .why = "a kernel with its host library, or its machine code alone. The name has TileLang's version, the program "
            "and the target, and neither nvcc nor the C library; the content of TileLang's own libraries only if a "
            "variable says so. The directory is there when it is whole, and a rename onto one is lost",
     .source = "tilelang/cache/kernel_cache.py: KernelCache._save_kernel_to_disk, _load_kernel_from_disk; "
               "binary_cache.py: BinaryCache.save, load",
     .pattern = "<version>/linux-<machine>/kernels/<64 hex>/**, <version>/cuda-binaries/<64 hex>/**"},
};

/// Read in TileLang 0.1.15 (env.py).
constexpr UserCache kCaches[] = {
    {"TileLang", "TILELANG_CACHE_DIR", "tilelang", "~/.tilelang/cache", false, "", true, true,
     "TileLang: kernels are shared, each directory whole"},
};

}  // namespace

constinit const Engine kTileLang{kRules, kTrees, kCaches, check_parcel};

}  // namespace inductorfs::layout
