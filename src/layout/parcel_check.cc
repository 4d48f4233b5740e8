// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "compiled_artifact.h"
#include "content_checks.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/codec/parcel.h"
#include "inductorfs/layout/index_name.h"
#include "name_shapes.h"

namespace inductorfs::layout {
namespace {

/// The files of a parcel by name. All the programs have theirs in one directory without another in it.
using Files = std::map<std::string, Artefact, std::less<>>;

Result<Files> files_of(const Artefact& artefact, const codec::ParcelHead& head) {
  auto bodies = codec::parcel_bodies(head, artefact.bytes);
  if (!bodies) return corrupt(artefact, bodies.error().what());
  Files files;
  for (size_t i = 0; i < head.items.size(); ++i) {
    const codec::ParcelItem& item = head.items[i];
    if (item.directory) return corrupt(artefact, item.path + " is a directory");
    files.emplace(item.path, Artefact{item.path, (*bodies)[i], (*bodies)[i].size()});
  }
  return files;
}

Result<const Artefact*> required(const Artefact& parcel, const Files& files, std::string_view name) {
  const auto found = files.find(name);
  if (found == files.end()) return corrupt(parcel, "lacks " + std::string(name));
  if (found->second.size == 0) return corrupt(parcel, std::string(name) + " is empty");
  return &found->second;
}

/// The parent's path of a canonical one, with a slash before and none after.
std::string directory_of(std::string_view canonical) {
  return "/" + std::string(canonical.substr(0, canonical.rfind('/')));
}

/// An engine that finds an artefact missing ends; one that the index does not name would never be removed.
Result<void> check_index(const Classification& classified, const Artefact& parcel, const Files& files) {
  INDUCTORFS_TRY_ASSIGN(const auto* index, required(parcel, files, kVllmIndexName));
  INDUCTORFS_TRY_ASSIGN(const auto names, index_members(classified.family, index->bytes));
  INDUCTORFS_TRY_ASSIGN(const auto directory, index_directory(classified.family, index->bytes));
  if (!directory.ends_with(directory_of(classified.canonical))) {
    return foreign(*index, "names the files of another directory");
  }
  for (const std::string& name : names) {
    INDUCTORFS_TRY_ASSIGN(const auto* artifact, required(parcel, files, name));
    INDUCTORFS_TRY(check_compiled_artifact(*artifact));
    INDUCTORFS_TRY(check_devices(classified.canonical, *artifact));
  }
  if (files.size() != names.size() + 1) return corrupt(parcel, "has a file that its index does not name");
  return {};
}

/// deepseek-ai/DeepJIT include/deep_jit/cache/disk.hpp: what is committed has an empty file that says so.
bool is_committed(const Files& files) {
  const auto mark = files.find(".committed");
  return files.size() == 4 && files.contains("meta.json") && mark != files.end() && mark->second.size == 0;
}

/// csrc/jit/kernel_runtime.hpp: check_validity, which aborts the job unless both are there. What DG_JIT_DUMP_ASM and
/// its like add is for people.
Result<void> check_deep_gemm(const Artefact& parcel, const Files& files, const HostLimits& host) {
  INDUCTORFS_TRY_ASSIGN(const auto* source, required(parcel, files, "kernel.cu"));
  INDUCTORFS_TRY_ASSIGN(const auto* binary, required(parcel, files, "kernel.cubin"));
  if (files.size() != 2 && !is_committed(files)) return corrupt(parcel, "has more than kernel.cu and kernel.cubin");
  INDUCTORFS_TRY(check_text(*source));
  return check_cubin(*binary, host);
}

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
Result<void> check_tilelang_kernel(const Artefact& parcel, const Files& files, const HostLimits& host) {
  constexpr std::string_view kManifest = "manifest.json";
  INDUCTORFS_TRY_ASSIGN(const auto* manifest, required(parcel, files, kManifest));
  INDUCTORFS_TRY(required(parcel, files, "params.json"));
  INDUCTORFS_TRY_ASSIGN(const auto document, whole_object(*manifest));
  const JsonValue* records = document.find("files");
  if (records == nullptr || !records->is_object()) return corrupt(*manifest, "has no files");
  if (records->names.size() + 1 != files.size()) return corrupt(*manifest, "does not name what is there");
  const auto is_loaded = [&files](std::string_view name) { return files.contains(name); };
  if (!is_loaded("kernel_lib.so") && !is_loaded("kernel.cubin") && !is_loaded("kernel.py")) {
    return corrupt(parcel, "has no code");
  }
  for (const auto& [name, file] : files) {
    if (name == kManifest) continue;
    INDUCTORFS_TRY(check_record(file, records->find(name)));
    INDUCTORFS_TRY(check_code(file, host));
  }
  return {};
}

/// tilelang/cache/binary_cache.py: BinaryCache.load
Result<void> check_tilelang_binary(const Artefact& parcel, const Files& files, const HostLimits& host) {
  constexpr std::string_view kMetadata = "metadata.json";
  INDUCTORFS_TRY_ASSIGN(const auto* metadata, required(parcel, files, kMetadata));
  INDUCTORFS_TRY_ASSIGN(const auto document, whole_object(*metadata));
  const JsonValue* format = document.find("format");
  if (format == nullptr || format->text != "tilelang.cuda-binary-cache.v1") {
    return foreign(*metadata, "is of an unknown version of TileLang's cache");
  }
  if (files.size() != 2) return corrupt(parcel, "has more than a kernel and metadata.json");
  const auto& kernel = files.begin()->first == kMetadata ? files.rbegin()->second : files.begin()->second;
  if (kernel.name != "kernel.cubin" && kernel.name != "kernel.ptx")
    return foreign(kernel, "is code of an unknown form");
  if (kernel.size == 0) return corrupt(kernel, "is empty");
  INDUCTORFS_TRY(check_record(kernel, &document));
  return check_code(kernel, host);
}

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
Result<void> check_sglang_jit(const Classification& classified, const Artefact& parcel, const Files& files,
                              const HostLimits& host) {
  std::string_view module = classified.canonical;
  for (int i = 0; i < 2; ++i) module.remove_prefix(module.find('/') + 1);
  module = module.substr(0, module.find('/'));
  INDUCTORFS_TRY_ASSIGN(const auto* library, required(parcel, files, std::string(module) + ".so"));
  INDUCTORFS_TRY_ASSIGN(const auto* list, required(parcel, files, "sgl_deps.json"));
  INDUCTORFS_TRY(check_dependencies(classified, *list));
  return check_engine_library(*library, host);
}

}  // namespace

Result<void> check_engine_library(const Artefact& artefact, const HostLimits& host) {
  HostLimits limits = host;
  limits.resolves = nullptr;
  return check_shared_object(artefact, limits);
}

Result<void> check_parcel(const Classification& classified, const Artefact& artefact, const HostLimits& host) {
  auto head = codec::decode_parcel_head(artefact.bytes);
  if (!head) {
    if (head.error().code() == ErrorCode::kNotSupported) return fail(std::move(head).error());
    return corrupt(artefact, head.error().what());
  }
  INDUCTORFS_TRY_ASSIGN(const auto files, files_of(artefact, *head));
  if (classified.family == Family::kVllmIndex) return check_index(classified, artefact, files);
  if (classified.family == Family::kDeepGemm) return check_deep_gemm(artefact, files, host);
  if (classified.family == Family::kSglangJit) return check_sglang_jit(classified, artefact, files, host);
  const bool is_binary = classified.canonical.starts_with("cuda-binaries/");
  return is_binary ? check_tilelang_binary(artefact, files, host) : check_tilelang_kernel(artefact, files, host);
}

}  // namespace inductorfs::layout
