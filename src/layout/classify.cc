// SPDX-License-Identifier: Apache-2.0
// Where a path's cache root ends, and what the path is below it.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "families.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/layout/layout.h"
#include "layout/engines/engine.h"
#include "name_shapes.h"
#include "rule_table.h"

namespace inductorfs::layout {
namespace {

/// Keys that only Triton makes: before 3.2 they were plain SHA-256 in hex, as the directories of other programs are
/// (vLLM: torch_aot_compile/<64 hex>). One in base64 has letters of both cases and digits.
bool is_distinct_triton_key(std::string_view name) {
  constexpr size_t kBase64Length = 43;
  if (!is_triton_key(name) || name.size() == kSha256HexLength) return false;
  if (name.size() != kBase64Length) return true;
  const auto has = [&](char first, char last) {
    return std::any_of(name.begin(), name.end(), [&](char c) { return c >= first && c <= last; });
  };
  return has('a', 'z') && has('A', 'Z') && has('0', '9');
}

/// Says whether the components from `begin` on may be a path that torch or Triton makes in its cache directory, or lead
/// to one. Names that other programs use too (two letters, `cache`) count together with what comes below them.
bool is_of_a_root(const PathParts& parts, size_t begin) {
  const std::string_view first = parts[begin];
  const bool alone = parts.count == begin + 1;
  const std::string_view second = alone ? std::string_view{} : parts[begin + 1];
  if (first == "fxgraph" || first == "aotautograd" || first == kPrecompiledHeaders) return true;
  if (is_of_an_engine(parts, begin)) return true;
  if (first == kTriton) return alone || is_device_or_any(second) || is_distinct_triton_key(second);
  if (first == "cache") {
    return alone || is_text_of(second, kSha256HexLength, kHex) || is_on_disk_cache(second);
  }
  if (first == "dynamo") return alone || second.starts_with("code_state_");
  if (first == "locks") return alone || is_lock(second);
  if (is_torch_directory(first)) {
    return alone || is_torch_name(second.substr(0, kTorchNameLength), 'c') || is_temporary_file(second) ||
           is_lock(second) || code_family(first, second) != Family::kOther;
  }
  if (!is_distinct_triton_key(first)) return false;
  return alone || is_temporary_directory(second) || (parts.count == begin + 2 && second.front() != '.');
}

/// Directories that hold a whole cache for one use (torch's fresh_cache), or something unfinished.
bool hides_roots(std::string_view part) { return is_tempfile_name(part) || is_temporary_directory(part); }

/// Returns the number of components of the path's root; nothing when the path is of no root's layout.
std::optional<size_t> root_size(const PathParts& parts) {
  if (!parts.clean) return std::nullopt;
  for (size_t i = 0; i < parts.count && i <= kRootDepth; ++i) {
    if (is_of_a_root(parts, i)) return i;
    if (hides_roots(parts[i])) return std::nullopt;
  }
  return std::nullopt;
}

/// A path, taken apart.
struct Rooted {
  PathParts inner;  ///< what comes below the root, in the layout of torch's cache directory
  std::string root;
  std::string canonical;
};

/// Of a directory that TRITON_CACHE_DIR names, from the key at `begin` on: torch's layout has the same below
/// triton/<device>.
PathParts below_any_device(const PathParts& parts, size_t begin) {
  PathParts longer = parts;
  const size_t added = 2 - begin;
  for (size_t i = std::min(parts.count, kPartLimit - added); i > begin; --i)
    longer.part[i - 1 + added] = parts.part[i - 1];
  longer.part[0] = kTriton;
  longer.part[1] = kAnyDevice;
  longer.count = parts.count + added;
  return longer;
}

/// Where the path below a root names a Triton key without a device: in the root itself, or in its directory `triton`,
/// where torch's fresh_cache puts them (torch/_inductor/utils.py). The latter is no root of its own: the directory
/// shows the root's other names too, and what is removed there is removed in one place.
std::optional<size_t> plain_key(const PathParts& inner) {
  if (is_distinct_triton_key(inner[0])) return 0;
  if (inner.count >= 2 && inner[0] == kTriton && is_distinct_triton_key(inner[1])) return 1;
  return std::nullopt;
}

Rooted take_apart(std::string_view path) {
  Rooted rooted{split(path), {}, std::string(path)};
  if (!rooted.inner.clean) return rooted;
  const auto size = root_size(rooted.inner);
  if (!size) return rooted;
  size_t begin = 0;
  for (size_t i = 0; i < *size; ++i) begin += rooted.inner[i].size() + 1;
  std::string_view rest = path.substr(begin);
  const PathParts inner = split(rest);  // as the canonical path is: components beyond kPartLimit come into sight
  const auto key = plain_key(inner);
  // Its name in the cluster, below its root, would be no path any more.
  if (key && path.size() + kDevices.size() > codec::kPathLimit) return rooted;
  rooted.inner = inner;
  if (begin > 0) rooted.root = path.substr(0, begin - 1);
  if (key) {
    rooted.inner = below_any_device(inner, *key);
    rooted.canonical = std::string(kDevices) + std::string(rest.substr(*key == 0 ? 0 : kTriton.size() + 1));
    return rooted;
  }
  const bool has_device = rooted.inner.count >= 2 && rooted.inner[0] == kTriton && is_index(rooted.inner[1]);
  if (has_device) {
    const size_t after = kTriton.size() + 1 + rooted.inner[1].size();
    rooted.canonical = std::string(kTriton) + "/" + std::string(kAnyDevice) + std::string(rest.substr(after));
  } else {
    rooted.canonical = rest;
  }
  return rooted;
}

bool has_key_directory(Family family) {
  return family == Family::kFxGraph || family == Family::kAotAutograd || family == Family::kAotAutogradEntry ||
         family == Family::kTritonKernel || family == Family::kTritonLauncher || family == Family::kTritonAutotune;
}

}  // namespace

Classification classify(std::string_view path) {
  Rooted rooted = take_apart(path);
  Classification classified;
  classified.family = family_of(rooted.inner);
  classified.canonical = std::move(rooted.canonical);
  classified.root = std::move(rooted.root);
  if (classified.family == Family::kOther && rooted.inner.clean) {
    // The canonical path, so that a device's index parts nothing here either.
    classified.family = rules_in_force().configured_family(classified.canonical).value_or(Family::kOther);
  }
  if (has_key_directory(classified.family)) {
    classified.key_directory =
        classified.canonical.substr(0, classified.canonical.size() - rooted.inner.last.size() - 1);
  }
  return classified;
}

Name name_of(std::string_view path) {
  Rooted rooted = take_apart(path);
  return {std::move(rooted.canonical), std::move(rooted.root)};
}

bool is_common_directory(std::string_view path) {
  const PathParts parts = take_apart(path).inner;
  return parts.clean && is_common(parts, std::min(parts.count, kPartLimit));
}

CommonUse common_use_of(std::string_view path) {
  const PathParts parts = take_apart(path).inner;
  if (!parts.clean || parts.count > kPartLimit) return CommonUse::kNone;
  const bool in_common = parts.count > 1 && is_common(parts, parts.count - 1);
  const Family family = classify(path).family;
  // Any program's lock file has such a name: in a directory that is not torch's it is that program's alone.
  if (family == Family::kLock) return in_common ? CommonUse::kWrite : CommonUse::kNone;
  // torch/_dynamo/pgo.py: write_local_impl opens <name>.tmp under <name>.lock, and so what a killed job has left there.
  constexpr std::string_view kSuffix = ".tmp";
  if (family == Family::kTemporary && path.ends_with(kSuffix) &&
      classify(path.substr(0, path.size() - kSuffix.size())).family == Family::kPgoState) {
    return CommonUse::kWrite;
  }
  constexpr Family kOfOneUser[] = {Family::kTemporary, Family::kTool, Family::kOther,
                                   Family::kAotInductor};  // the last: a product of whoever built it
  if (std::find(std::begin(kOfOneUser), std::end(kOfOneUser), family) != std::end(kOfOneUser)) return CommonUse::kNone;
  return CommonUse::kRead;
}

bool proves_root(const Name& name) {
  const std::string_view first = std::string_view(name.path).substr(0, name.path.find('/'));
  return first == "fxgraph" || first == "aotautograd";
}

bool is_ambiguous(const Name& name) {
  const std::string_view path = name.path;
  return is_torch_directory(path) || path == kTriton || path == kDevices.substr(0, kDevices.size() - 1) ||
         path == "cache" || path == "dynamo" || path == "locks";
}

std::string canonical_path(std::string_view path) { return take_apart(path).canonical; }

std::string hidden_root(std::string_view path) {
  const PathParts parts = split(path);
  size_t end = 0;
  for (size_t i = 0; parts.clean && i + 1 < parts.count && i <= kRootDepth; ++i) {
    end += parts[i].size() + (i == 0 ? 0 : 1);
    if (is_of_a_root(parts, i) || is_temporary_directory(parts[i])) return {};
    if (is_tempfile_name(parts[i])) return std::string(is_of_a_root(parts, i + 1) ? path.substr(0, end) : "");
  }
  return {};
}

bool is_in_a_root(std::string_view path) { return root_size(split(path)).has_value(); }

bool is_device_name(std::string_view name) { return is_index(name); }

bool is_triton_key_directory(std::string_view path) {
  const PathParts parts = take_apart(path).inner;
  return parts.clean && parts.count == 3 && parts[0] == kTriton && is_device_or_any(parts[1]) &&
         is_triton_key(parts[2]);
}

bool may_hold_triton_set(std::string_view path) {
  const PathParts parts = take_apart(path).inner;
  return parts.clean && parts.count == 3 && parts[0] == kTriton;
}

bool is_candidate_directory(std::string_view path) {
  const PathParts parts = take_apart(path).inner;
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
    const Family family = classify(target).family;
    if (family == Family::kCppBinary || family == Family::kPrecompiledHeader) sealed.push_back(std::move(target));
  }
  return sealed;
}

}  // namespace inductorfs::layout
