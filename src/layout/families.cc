// SPDX-License-Identifier: Apache-2.0
#include "families.h"

#include <algorithm>
#include <iterator>

#include "inductorfs/codec/entry.h"
#include "inductorfs/layout/start_list.h"
#include "layout/engines/engine.h"
#include "name_shapes.h"

namespace inductorfs::layout {

PathParts split(std::string_view path) {
  PathParts parts;
  if (!codec::is_clean_path(path)) return parts;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    parts.last = path.substr(begin, end - begin);
    if (parts.count < kPartLimit) parts.part[parts.count] = parts.last;
    ++parts.count;
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

namespace {

/// What comes before the families: names that are temporary or locks in any directory. kOther when it is none.
Family transient_family(const PathParts& parts) {
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

}  // namespace

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

namespace {

/// What lies deeper in a code directory; all of it is private, so that only its name in `explain` depends on this.
Family below_code_family(std::string_view name) {
  const std::string_view stem = name.substr(0, kTorchNameLength);
  if (name.find("_run_") != std::string_view::npos || name.ends_with(".debug")) return Family::kTool;
  if (!is_torch_name(stem, 'c')) return Family::kOther;
  if (name.substr(kTorchNameLength) == ".halide") return Family::kHalide;
  return name.size() == kTorchNameLength ? Family::kAotInductor : Family::kOther;
}

Family fxgraph_family(const PathParts& parts) {
  const bool fits = parts.count == 4 && is_torch_name(parts[2], 'f') && torch_directory(parts[2]) == parts[1] &&
                    is_torch_hash(parts[3]);
  return fits ? Family::kFxGraph : Family::kOther;
}

Family aotautograd_family(const PathParts& parts) {
  if (parts.count != 3 || !is_torch_name(parts[1], 'a')) return Family::kOther;
  if (is_torch_hash(parts[2])) return Family::kAotAutograd;
  return parts[2] == "entry" ? Family::kAotAutogradEntry : Family::kOther;
}

Family triton_family(const PathParts& parts) {
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
Family dynamo_family(const PathParts& parts) {
  const bool is_state = parts.count == 2 && parts[1].starts_with("code_state_") && parts[1].ends_with(".pkl");
  return is_state ? Family::kPgoState : Family::kDynamo;
}

}  // namespace

/// Caches of torch itself: pad_mm.py's memoizer (runtime/caching/memoizers.py) and _inductor/cache.py. Other programs
/// may give the classes behind them other names.
bool is_on_disk_cache(std::string_view name) { return name == "should_pad" || name == "inductor_on_disk_cache"; }

namespace {

Family cache_family(const PathParts& parts) {
  constexpr size_t kKeyLength = 32;  // both take the first half of a SHA-256
  if (parts.count < 2) return Family::kOther;
  if (parts.count == 2 && is_text_of(parts[1], kSha256HexLength, kHex)) return Family::kSystemAutotune;
  const bool is_entry = parts.count == 3 && is_on_disk_cache(parts[1]) && is_text_of(parts[2], kKeyLength, kHex);
  return is_entry ? Family::kOnDiskCache : Family::kGenericCache;
}

/// Not `.h.pch`: clang checks the times of the headers that went into it, and fails the compile where they differ.
Family precompiled_header_family(const PathParts& parts) {
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

Family tree_family(const PathParts& parts) {
  if (parts[0].starts_with("halide-runtime-")) return Family::kHalide;
  // with_fresh_cache_if_config: with caches disabled a directory made by mkdtemp is a whole cache of its own.
  if (is_tempfile_name(parts[0])) return Family::kTemporary;
  if (parts.count == 1) return root_file_family(parts[0]);
  for (const Tree& tree : kTrees) {
    if (parts[0] == tree.directory) return tree.family;
  }
  return Family::kOther;
}

}  // namespace

Family family_of(const PathParts& parts) {
  if (!parts.clean) return Family::kOther;
  if (const Family family = transient_family(parts); family != Family::kOther) return family;
  if (const Family family = engine_family_of(parts); family != Family::kOther) return family;
  const std::string_view root = parts[0];
  if (is_torch_directory(root)) {
    if (parts.count < 2) return Family::kOther;
    return parts.count == 2 ? code_family(root, parts[1]) : below_code_family(parts[1]);
  }
  if (root == kTriton) return triton_family(parts);
  if (root == "fxgraph") return fxgraph_family(parts);
  if (root == "aotautograd") return aotautograd_family(parts);
  if (root == "cache") return cache_family(parts);
  if (root == "dynamo" && parts.count >= 2) return dynamo_family(parts);
  if (root == kPrecompiledHeaders) return precompiled_header_family(parts);
  const bool is_list = root == kStartLists && parts.count == 2 && is_text_of(parts[1], kSha256HexLength, kHex);
  return is_list ? Family::kStartList : tree_family(parts);
}

/// Whether the directory of the first `depth` components is common to all users (is_common_directory).
/// Not precompiled_headers: torch looks for it in a directory of each user's own (codecache.py: _HEADER_DIR), and
/// compilers include what lies there, which is shown at a further place for that reason and closed to others.
bool is_common(const PathParts& parts, size_t depth) {
  for (size_t i = 0; i < depth; ++i) {
    if (parts[i].starts_with("tmp.pid_")) return false;  // of one process
  }
  PathParts directory = parts;
  directory.count = depth;
  if (const auto is_common = is_common_to_engines(directory)) return *is_common;
  const std::string_view root = parts[0];
  if (is_torch_directory(root)) {
    if (depth == 1) return true;
    // What a killed compiler has left in its build directory, the next one removes (cpp_builder.py: _remove_dir).
    return parts[1].ends_with(kBuildSuffix) || below_code_family(parts[1]) == Family::kHalide;
  }
  if (root == kTriton) {
    if (depth > 3 || (depth >= 2 && !is_device_or_any(parts[1]))) return false;
    return depth < 3 || is_triton_key(parts[2]);
  }
  if (root.starts_with("halide-runtime-")) return true;
  constexpr std::string_view kCommon[] = {"fxgraph", "aotautograd", "cache", "dynamo"};
  if (std::find(std::begin(kCommon), std::end(kCommon), root) != std::end(kCommon)) return true;
  for (const Tree& tree : kTrees) {
    if (root == tree.directory) return tree.family != Family::kTool && tree.family != Family::kAotInductor;
  }
  return false;
}

}  // namespace inductorfs::layout
