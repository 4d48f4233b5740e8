// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "inductorfs/codec/entry.h"
#include "inductorfs/layout/layout.h"
#include "name_shapes.h"
#include "rule_table.h"

namespace inductorfs::layout {
namespace {

/// More than any family has; deeper paths keep their first components and their last.
constexpr size_t kPartLimit = 8;
constexpr std::string_view kBuildSuffix = "_CxxBuild";
constexpr std::string_view kPrecompiledHeaders = "precompiled_headers";

/// A path's components. Immutable after construction.
struct Parts {
  std::array<std::string_view, kPartLimit> part;
  size_t count = 0;  ///< of all components, also those beyond kPartLimit
  std::string_view last;
  bool clean = false;

  [[nodiscard]] std::string_view operator[](size_t index) const { return part[index]; }
};

bool is_plain_component(std::string_view part) { return !part.empty() && part != "." && part != ".."; }

Parts split(std::string_view path) {
  Parts parts;
  if (path.empty() || path.size() > codec::kPathLimit || path.find('\0') != std::string_view::npos) return parts;
  for (size_t begin = 0;;) {
    const size_t end = path.find('/', begin);
    parts.last = path.substr(begin, end == std::string_view::npos ? end : end - begin);
    if (!is_plain_component(parts.last)) return parts;
    if (parts.count < kPartLimit) parts.part[parts.count] = parts.last;
    ++parts.count;
    if (end == std::string_view::npos) break;
    begin = end + 1;
  }
  parts.clean = true;
  return parts;
}

/// Python and Triton hand a device's index to str(), so there is no leading zero. torch 2.15 with
/// TORCH_COMPILE_ON_ONE_RANK has kernels without an index, and os.path.join then gets str(None)
/// (runtime/triton_heuristics.py: CachingAutotuner.__init__).
bool is_index(std::string_view name) {
  constexpr size_t kIndexDigits = 4;
  if (name == "None") return true;
  return name.size() <= kIndexDigits && consists_of(name, kDigit) && (name == "0" || name.front() != '0');
}

bool is_device_or_any(std::string_view name) { return name == kAnyDevice || is_index(name); }

/// Whether everything in a directory of this name is temporary, wherever it stands.
bool is_temporary_directory(std::string_view part) {
  // Triton >= 3.2 writes each file into a directory of its own (runtime/cache.py: FileCacheManager.put); the rest of
  // the form, process id and uuid, is not looked at: nothing that begins like this may ever be shared.
  return part.starts_with("tmp.pid_") || part.ends_with(kBuildSuffix);
}

/// Names of files that are temporary wherever they stand.
bool is_temporary_file(std::string_view name) {
  if (name.front() == '.') {
    // codecache.py write_atomic; and the names that NFS and libfuse give to a file that is deleted while open.
    if (name.ends_with(".tmp")) return true;
    if (name.starts_with(".nfs")) return consists_of(name.substr(4), kHex);
    return name.starts_with(".fuse_hidden") && consists_of(name.substr(12), kHex);
  }
  // <name>.tmp: PGO, cutedsl, any Python program. <name>.tmp.pid_<pid>_<uuid>: Triton 3.0, 3.1 (earlier ones have
  // digits for the uuid). <name>.o.tmp.<pid>: quack.
  if (name.ends_with(".tmp") || name.find(".tmp.pid_") != std::string_view::npos) return true;
  constexpr std::string_view kNumbered = ".tmp.";
  const size_t at = name.rfind(kNumbered);
  return at != std::string_view::npos && consists_of(name.substr(at + kNumbered.size()), kDigit);
}

bool is_lock(std::string_view name) { return name == "lock" || name.ends_with(".lock"); }

/// What comes before the families: names that are temporary or locks in any directory. kOther when it is none.
Family transient_family(const Parts& parts) {
  const size_t known = parts.count < kPartLimit ? parts.count : kPartLimit;
  for (size_t i = 0; i < known; ++i) {
    if (is_temporary_directory(parts[i])) return Family::kTemporary;
  }
  if (is_temporary_directory(parts.last) || is_temporary_file(parts.last)) return Family::kTemporary;
  return is_lock(parts.last) ? Family::kLock : Family::kOther;
}

struct Suffix {
  std::string_view text;
  Family family;
};

/// <xx>/<c+51><suffix>, the whole suffix.
constexpr Suffix kCodeSuffixes[] = {
    {".py", Family::kGeneratedCode},
    {".main.cpp", Family::kCppSource},
    {".main.so", Family::kCppBinary},
    {".cpp", Family::kCppSource},
    {".so", Family::kCppBinary},
    {".so.load_ok", Family::kVecIsaMarker},
    {".h", Family::kCppSource},
    {".main.o", Family::kCppBinary},
    {".optimized.cpp", Family::kCppSource},
    {".optimized.o", Family::kCppBinary},
    {".o", Family::kCppBinary},
    {".kernel_perf", Family::kKernelPerf},
    {".picked_kernel", Family::kKernelPerf},
    {".cu", Family::kCutlass},
    {".so.error", Family::kCutlass},
    {".o.error", Family::kCutlass},
    {".debug", Family::kTool},
    {".halide", Family::kHalide},
    {".cubin", Family::kAotInductor},
    {".hsaco", Family::kAotInductor},
    {".fatbin", Family::kAotInductor},
    {".ptx", Family::kAotInductor},
    {".ll", Family::kAotInductor},
    {".spv", Family::kAotInductor},
    {".weights.S", Family::kAotInductor},
    {".weights.cpp", Family::kAotInductor},
    {".weights.o", Family::kAotInductor},
};

/// A file of torch's code directories: `name` in `directory` (codecache.py: get_path, write).
Family code_family(std::string_view directory, std::string_view name) {
  constexpr std::string_view kBestConfig = ".best_config";
  if (name.ends_with(kBestConfig) &&
      is_text_of(name.substr(0, name.size() - kBestConfig.size()), kSha256HexLength, kHex)) {
    return Family::kBestConfig;
  }
  const std::string_view stem = name.substr(0, kTorchNameLength);
  if (!is_torch_name(stem, 'c') || torch_directory(stem) != directory) return Family::kOther;
  const std::string_view rest = name.substr(kTorchNameLength);
  for (const Suffix& suffix : kCodeSuffixes) {
    if (rest == suffix.text) return suffix.family;
  }
  // AotCodeCompiler.compile: .wrapper.*, .kernel.*, their _abicompat and _metadata forms, weights.
  if (rest.starts_with(".wrapper") || rest.starts_with(".kernel") || rest.starts_with("_weights") ||
      rest.starts_with("_serialized_weights")) {
    return Family::kAotInductor;
  }
  return Family::kOther;
}

/// What lies deeper in a code directory; all of it is private, so that only its name in `explain` depends on this.
Family below_code_family(std::string_view name) {
  const std::string_view stem = name.substr(0, kTorchNameLength);
  if (name.find("_run_") != std::string_view::npos || name.ends_with(".debug")) return Family::kTool;
  if (!is_torch_name(stem, 'c')) return Family::kOther;
  if (name.substr(kTorchNameLength) == ".halide") return Family::kHalide;
  return name.size() == kTorchNameLength ? Family::kAotInductor : Family::kOther;
}

Family fxgraph_family(const Parts& parts) {
  const bool fits = parts.count == 4 && is_torch_name(parts[2], 'f') && torch_directory(parts[2]) == parts[1] &&
                    is_torch_hash(parts[3]);
  return fits ? Family::kFxGraph : Family::kOther;
}

Family aotautograd_family(const Parts& parts) {
  if (parts.count != 3 || !is_torch_name(parts[1], 'a')) return Family::kOther;
  if (is_torch_hash(parts[2])) return Family::kAotAutograd;
  return parts[2] == "entry" ? Family::kAotAutogradEntry : Family::kOther;
}

Family triton_family(const Parts& parts) {
  if (parts.count < 3) return Family::kOther;
  // TritonBundler.read_and_emit: becomes the key directory by rename.
  if (parts[2].starts_with("tmp.") && is_uuid(parts[2].substr(4))) return Family::kTemporary;
  if (parts.count != 4 || !is_device_or_any(parts[1]) || !is_triton_key(parts[2])) return Family::kOther;
  const std::string_view name = parts[3];
  if (name.front() == '.') return Family::kOther;
  // A launcher's name ends in `.so` alone or in EXT_SUFFIX (`.cpython-312-x86_64-linux-gnu.so`).
  if (name.ends_with(".so")) return Family::kTritonLauncher;
  return name.ends_with(".autotune.json") ? Family::kTritonAutotune : Family::kTritonKernel;
}

/// code_state_path() makes one name of what the user called the job, the rank and the tag.
Family dynamo_family(const Parts& parts) {
  const bool is_state = parts.count == 2 && parts[1].starts_with("code_state_") && parts[1].ends_with(".pkl");
  return is_state ? Family::kPgoState : Family::kDynamo;
}

Family cache_family(const Parts& parts) {
  if (parts.count < 2) return Family::kOther;
  return parts.count == 2 && is_text_of(parts[1], kSha256HexLength, kHex) ? Family::kSystemAutotune
                                                                          : Family::kGenericCache;
}

/// Not `.h.pch`: clang checks the times of the headers that went into it, and fails the compile where they differ.
Family precompiled_header_family(const Parts& parts) {
  if (parts.count >= 2 && parts[1] == "locks") return Family::kLock;
  if (parts.count != 2 || !is_torch_name(parts[1].substr(0, kTorchNameLength), 'c')) return Family::kOther;
  const std::string_view rest = parts[1].substr(kTorchNameLength);
  return rest == ".h" || rest == ".h.gch" ? Family::kPrecompiledHeader : Family::kOther;
}

/// A file or a directory that stands in the root itself.
Family root_file_family(std::string_view name) {
  if (is_tempfile_name(name)) return Family::kTemporary;
  if (name.starts_with("inductor_const_spill_")) return Family::kTemporary;
  if (name.ends_with(".py") && is_tempfile_name(name.substr(0, name.size() - 3))) return Family::kTemporary;
  constexpr std::string_view kConfigs = "configs_";
  constexpr std::string_view kJson = ".json";
  if (name.starts_with(kConfigs) && name.ends_with(kJson) && name.size() == kConfigs.size() + 8 + kJson.size()) {
    return Family::kCutlass;
  }
  return name == "memoizer_cache.json" ? Family::kGenericCache : Family::kOther;
}

struct Tree {
  std::string_view directory;
  Family family;
};

/// Directories of the root below which everything is of one family, none of them shared.
constexpr Tree kTrees[] = {
    {"locks", Family::kLock},
    {"gcc", Family::kTool},
    {"bisect", Family::kTool},
    {"autoheuristic", Family::kTool},
    {"unhashed_kernel_inputs", Family::kTool},
    {"torch_cutlass", Family::kCutlass},
    {"torch_cutlass_library", Family::kCutlass},
    {"aoti_eager", Family::kAotInductor},
    {"cutedsl_compile_cache", Family::kObjectCache},
    {"quack", Family::kObjectCache},
    {"flydsl_compile_cache", Family::kObjectCache},
};

Family tree_family(const Parts& parts) {
  if (parts[0].starts_with("halide-runtime-")) return Family::kHalide;
  // with_fresh_cache_if_config: with caches disabled a directory made by mkdtemp is a whole cache of its own.
  if (is_tempfile_name(parts[0])) return Family::kTemporary;
  if (parts.count == 1) return root_file_family(parts[0]);
  for (const Tree& tree : kTrees) {
    if (parts[0] == tree.directory) return tree.family;
  }
  return Family::kOther;
}

Family family_of(const Parts& parts) {
  if (!parts.clean) return Family::kOther;
  if (const Family family = transient_family(parts); family != Family::kOther) return family;
  const std::string_view root = parts[0];
  if (is_torch_directory(root)) {
    if (parts.count < 2) return Family::kOther;
    return parts.count == 2 ? code_family(root, parts[1]) : below_code_family(parts[1]);
  }
  if (root == "triton") return triton_family(parts);
  if (root == "fxgraph") return fxgraph_family(parts);
  if (root == "aotautograd") return aotautograd_family(parts);
  if (root == "cache") return cache_family(parts);
  if (root == "dynamo" && parts.count >= 2) return dynamo_family(parts);
  if (root == kPrecompiledHeaders) return precompiled_header_family(parts);
  return tree_family(parts);
}

/// Where the device's name stands in `triton/<device>[/...]`: {begin, end}; begin is 0 for any other path.
std::pair<size_t, size_t> device_span(std::string_view path) {
  constexpr std::string_view kTriton = "triton/";
  if (!path.starts_with(kTriton)) return {0, 0};
  const size_t slash = path.find('/', kTriton.size());
  const size_t end = slash == std::string_view::npos ? path.size() : slash;
  if (!is_index(path.substr(kTriton.size(), end - kTriton.size()))) return {0, 0};
  return {kTriton.size(), end};
}

std::string with_any_device(std::string_view path) {
  const auto [begin, end] = device_span(path);
  if (begin == 0) return std::string(path);
  std::string canonical;
  canonical.reserve(path.size());
  canonical += path.substr(0, begin);
  canonical += kAnyDevice;
  canonical += path.substr(end);
  return canonical;
}

bool has_key_directory(Family family) {
  return family == Family::kFxGraph || family == Family::kAotAutograd || family == Family::kAotAutogradEntry ||
         family == Family::kTritonKernel || family == Family::kTritonLauncher || family == Family::kTritonAutotune;
}

}  // namespace

Classification classify(std::string_view path) {
  const Parts parts = split(path);
  Classification classified;
  classified.family = family_of(parts);
  classified.canonical = parts.clean ? with_any_device(path) : std::string(path);
  if (classified.family == Family::kOther && parts.clean) {
    const RuleTable* changed = changed_rules();
    // The canonical path, so that a device's index parts nothing here either.
    if (changed != nullptr)
      classified.family = changed->configured_family(classified.canonical).value_or(Family::kOther);
  }
  if (has_key_directory(classified.family)) {
    classified.key_directory = classified.canonical.substr(0, classified.canonical.size() - parts.last.size() - 1);
  }
  return classified;
}

std::string canonical_path(std::string_view path) {
  return split(path).clean ? with_any_device(path) : std::string(path);
}

bool is_device_name(std::string_view name) { return is_index(name); }

bool is_triton_key_directory(std::string_view path) {
  const Parts parts = split(path);
  return parts.clean && parts.count == 3 && parts[0] == "triton" && is_device_or_any(parts[1]) &&
         is_triton_key(parts[2]);
}

bool is_candidate_directory(std::string_view path) {
  const Parts parts = split(path);
  if (!parts.clean) return false;
  if (parts.count == 2) return parts[0] == "aotautograd" && is_torch_name(parts[1], 'a');
  return parts.count == 3 && parts[0] == "fxgraph" && is_torch_name(parts[2], 'f') &&
         torch_directory(parts[2]) == parts[1];
}

std::vector<std::string> sealed_by_removal_of(std::string_view directory) {
  if (!directory.ends_with(kBuildSuffix)) return {};
  const std::string stem(directory.substr(0, directory.size() - kBuildSuffix.size()));
  std::vector<std::string> sealed;
  // CppBuilder.build names its directory <output_dir>/<name>_CxxBuild and its target <output_dir>/<name><extension>.
  // For separate main and optimized sources it runs three times, and the link comes last and under the name of the
  // first object: hence `.so` before `.o`. A precompiled header's name is the header's path with its `.h`.
  for (const std::string_view extension : {".so", ".o", ".gch", ".h.gch"}) {
    std::string target = stem + std::string(extension);
    const Family family = family_of(split(target));
    if (family == Family::kCppBinary || family == Family::kPrecompiledHeader) sealed.push_back(std::move(target));
  }
  return sealed;
}

}  // namespace inductorfs::layout
