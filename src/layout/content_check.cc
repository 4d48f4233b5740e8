// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "artefact.h"
#include "content_checks.h"
#include "elf_file.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/layout/start_list.h"
#include "layout/engines/engine.h"
#include "name_shapes.h"

namespace inductorfs::layout {
namespace {

/// Enough for the checks of families that are not checked whole.
constexpr uint64_t kHeadSize = 64ULL * 1024;

constexpr char kPickleProtocol = '\x80';

Result<void> check_pickle(const Artefact& artefact) {
  if (auto whole = check_pickle_frame(artefact.bytes); !whole) return corrupt(artefact, whole.error().what());
  return {};
}

/// Four bytes that say by which version of the cache it was written, then a pickle. Readers remove a file of another
/// version (_inductor/cache.py: OnDiskCache.get; runtime/caching/implementations.py: _OnDiskCacheImpl.get).
Result<void> check_on_disk_cache(const Artefact& artefact) {
  constexpr std::string_view kVersion0 = "\x5f\xec\xeb\x66";  // the SHA-256 of "0" begins so
  if (!artefact.bytes.starts_with(kVersion0))
    return foreign(artefact, "written by an unknown version of torch's cache");
  return check_pickle({artefact.name, artefact.bytes.substr(kVersion0.size()), artefact.size - kVersion0.size()});
}

/// The name is the hash of the bytes. A pickle has to be a whole one too; what does not begin as one is taken by its
/// name, for a later torch may wrap its pickles.
Result<void> check_candidate(const Artefact& artefact) {
  if (codec::torch_hash(artefact.bytes) != artefact.name) return corrupt(artefact, "is not the hash of its content");
  return artefact.bytes.front() == kPickleProtocol ? check_pickle(artefact) : Result<void>{};
}

/// str.strip() of Python, for the white space of ASCII: nothing else was seen at the ends of generated source.
std::string_view stripped(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r\x1c\x1d\x1e\x1f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

/// codecache.py: write() names a source by code_hash(content.strip(), extra). Everything that a graph refers to is
/// written without `extra`; only a candidate of max-autotune is written with one (select_algorithm.py: TritonTemplate,
/// generate_and_load: the values of its tuning parameters), and no part of the file holds it as it was hashed.
Result<void> check_generated_code(const Artefact& artefact) {
  constexpr std::string_view kTemplate = "triton_heuristics.template(";
  INDUCTORFS_TRY(check_text(artefact));
  const std::string name = "c" + codec::torch_hash(stripped(artefact.bytes)) + ".py";
  if (name == artefact.name || artefact.bytes.find(kTemplate) != std::string_view::npos) return {};
  return corrupt(artefact, "is not the hash of its content");
}

/// Sections in which nvcc, hipcc and SYCL's compiler put code for GPUs.
bool holds_device_code(std::string_view section) {
  constexpr std::string_view kSections[] = {".nv_fatbin", "__nv_relfatbin", ".hip_fatbin"};
  return std::find(std::begin(kSections), std::end(kSections), section) != std::end(kSections) ||
         section.starts_with("__CLANG_OFFLOAD_BUNDLE__");
}

/// CUTLASS and CK have binaries under names of this form. Their names hold neither the version of nvcc or hipcc nor the
/// library's headers (codecache.py: cutlass_key hashes Python modules only, ROCmCodeCache the command line).
Result<void> check_cpp_binary(const Artefact& artefact, const HostLimits& host) {
  const uint16_t type = artefact.name.ends_with(".so") ? kElfSharedObject : kElfRelocatable;
  INDUCTORFS_TRY_ASSIGN(const auto needs, needs_of_binary(artefact, type));
  INDUCTORFS_TRY_ASSIGN(const auto sections, read_section_names(artefact));
  if (std::any_of(sections.begin(), sections.end(), holds_device_code)) {
    return foreign(artefact, "has code for GPUs, and its name does not tell which compiler and which CUTLASS it is of");
  }
  return check_elf_needs(artefact, needs, host);
}

/// The path's last component but one: a group's key.
std::string_view key_of(const Classification& classified) {
  const std::string_view directory = classified.key_directory;
  return directory.substr(directory.rfind('/') + 1);
}

/// Either form: as a writer made it, or as the cluster has it.
Result<void> check_group(const Classification& classified, const Artefact& artefact) {
  const auto written = group_children(artefact.bytes, key_of(classified));
  if (written) return {};
  if (render_group(artefact.bytes, "/" + std::string(key_of(classified)))) return {};
  return corrupt(artefact, written.error().what());
}

Result<void> check_triton_file(const Classification& classified, const Artefact& artefact, const HostLimits& host) {
  if (is_group_file(artefact.name)) return check_group(classified, artefact);
  if (artefact.name.ends_with(".json")) return check_triton_metadata(artefact);
  if (artefact.name.ends_with(".cubin")) return check_cubin(artefact, host);
  if (artefact.name.ends_with(".hsaco")) return check_hsaco(artefact);
  if (artefact.name.ends_with(".ptx")) return check_ptx(artefact, host);
  for (const std::string_view text : {".source", ".ttir", ".ttgir", ".llir", ".amdgcn"}) {
    if (artefact.name.ends_with(text)) return check_utf8_text(artefact);
  }
  return {};
}

Result<void> check_precompiled_header(const Artefact& artefact) {
  if (!artefact.name.ends_with(".gch")) return check_text(artefact);
  return artefact.bytes.starts_with("gpch") ? Result<void>{} : corrupt(artefact, "no precompiled header of g++");
}

Result<void> check_start_list(const Artefact& artefact) {
  const auto keys = start_list_keys(artefact.bytes);
  return keys ? Result<void>{} : corrupt(artefact, keys.error().what());
}

Result<void> check_family(const Classification& classified, const Artefact& artefact, const HostLimits& host) {
  using enum Family;
  const Family family = classified.family;
  if (const Engine* const engine = engine_of(family)) {
    return check_engine_artefact(*engine, classified, artefact, host);
  }
  if (family == kFxGraph || family == kAotAutograd) return check_candidate(artefact);
  if (family == kAotAutogradEntry || family == kPgoState) return check_pickle(artefact);
  if (family == kOnDiskCache) return check_on_disk_cache(artefact);
  if (family == kGeneratedCode) return check_generated_code(artefact);
  if (family == kCppSource) return check_text(artefact);
  if (family == kBestConfig) return check_best_config(artefact);
  if (family == kTritonAutotune) return check_triton_autotune(artefact);
  if (family == kCppBinary) return check_cpp_binary(artefact, host);
  if (family == kPrecompiledHeader) return check_precompiled_header(artefact);
  if (family == kSystemAutotune) return check_system_autotune(artefact);
  if (family == kTritonKernel) return check_triton_file(classified, artefact, host);
  if (family == kTritonLauncher) return check_shared_object(artefact, host);
  if (family == kStartList) return check_start_list(artefact);
  return {};  // nothing is known of what these hold: an operator who shares one vouches for it
}

}  // namespace

bool needs_whole(Family family) {
  using enum Family;
  // From kDynamo on none is shared.
  return family < kDynamo && family != kPrecompiledHeader && family != kVecIsaMarker && family != kKernelPerf;
}

uint64_t bytes_to_check(const Classification& classified, uint64_t size) {
  return needs_whole(classified.family) ? size : std::min(size, kHeadSize);
}

Result<void> check_content(const Classification& classified, std::string_view bytes, uint64_t size,
                           const HostLimits& host) {
  const size_t slash = classified.canonical.rfind('/');
  const std::string_view name =
      std::string_view(classified.canonical).substr(slash == std::string::npos ? 0 : slash + 1);
  const Artefact artefact{name, bytes, size};
  if (bytes.size() > size) return fail(ErrorCode::kInvalid, "more bytes than the size says");
  if (!rule_of(classified.family).shared) return {};
  if (classified.family == Family::kVecIsaMarker) {
    return size == 0 ? Result<void>{} : corrupt(artefact, "a marker has no content");
  }
  if (size == 0) return corrupt(artefact, "is empty");
  if (needs_whole(classified.family) && !artefact.whole()) return wants_whole();
  return check_family(classified, artefact, host);
}

}  // namespace inductorfs::layout
