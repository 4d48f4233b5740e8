// SPDX-License-Identifier: Apache-2.0
#include "engine_families.h"

#include <algorithm>
#include <string_view>

#include "name_shapes.h"

namespace inductorfs::layout {
namespace {

constexpr std::string_view kCompileCache = "torch_compile_cache";
constexpr std::string_view kAotCompile = "torch_aot_compile";
constexpr std::string_view kIndex = "vllm_compile_cache.py";
constexpr std::string_view kArtifact = "artifact_compile_range_";

/// rank_<rank>_<data parallel rank>
bool is_rank(std::string_view name) {
  constexpr std::string_view kRank = "rank_";
  if (!name.starts_with(kRank)) return false;
  const std::string_view numbers = name.substr(kRank.size());
  const size_t at = numbers.find('_');
  return at != std::string_view::npos && consists_of(numbers.substr(0, at), kDigit) &&
         consists_of(numbers.substr(at + 1), kDigit);
}

bool is_vllm_hash(std::string_view name) {
  constexpr size_t kLength = 10;
  return is_text_of(name, kLength, kHex);
}

/// A cache root of torch's or Triton's own in vLLM's tree.
bool is_inner_root(std::string_view name) { return name == "inductor_cache" || name == "triton_cache"; }

/// <64 hex>/rank_<r>_<dp>/model
bool leads_through_aot(const PathParts& parts) {
  if (parts.count == 0) return true;
  if (!is_text_of(parts[0], kSha256HexLength, kHex)) return false;
  return parts.count == 1 || is_rank(parts[1]);
}

/// <10 hex>/rank_<r>_<dp>/<tag>/...
bool leads_through_ranks(const PathParts& parts) {
  if (parts.count == 0) return true;
  if (!is_vllm_hash(parts[0])) return false;
  if (parts.count == 1) return true;
  return is_rank(parts[1]) && (parts.count == 2 || !is_inner_root(parts[2])) &&
         (parts.count == 3 || !is_inner_root(parts[3]));
}

Family aot_family(const PathParts& parts) {
  const bool fits = parts.count == 3 && leads_through_aot(parts) && parts[2] == "model";
  return fits ? Family::kVllmModel : Family::kEnginePrivate;
}

Family rank_family(const PathParts& parts) {
  if (parts.count < 4 || !leads_through_ranks(parts)) return Family::kEnginePrivate;
  if (parts.count == 4 && parts[3] == kIndex) return Family::kVllmIndex;
  return parts.count == 4 && parts[3].starts_with(kArtifact) ? Family::kParcelMember : Family::kEnginePrivate;
}

/// cache/kernel.<name>.<hash>
bool is_deep_gemm_kernel(std::string_view name) {
  constexpr std::string_view kKernel = "kernel.";
  if (!name.starts_with(kKernel)) return false;
  const size_t at = name.rfind('.');
  return at >= kKernel.size() && consists_of(name.substr(at + 1), kHex);
}

}  // namespace

bool is_of_an_engine(const PathParts& parts, size_t begin) {
  const PathParts inner = parts.after(begin);
  if (inner[0] == kCompileCache) {
    if (inner.count == 1) return true;
    if (inner[1] == kAotCompile) return leads_through_aot(inner.after(2));
    return leads_through_ranks(inner.after(1));
  }
  if (inner[0] == kAotCompile) return leads_through_aot(inner.after(1));
  return inner[0] == "cache" && inner.count > 1 && is_deep_gemm_kernel(inner[1]);
}

Family engine_family_of(const PathParts& parts) {
  if (parts[0] == kCompileCache && parts.count > 1) {
    return parts[1] == kAotCompile ? aot_family(parts.after(2)) : rank_family(parts.after(1));
  }
  if (parts[0] == kAotCompile) return aot_family(parts.after(1));
  if (parts[0] == "cache" && parts.count > 1 && is_deep_gemm_kernel(parts[1])) {
    return parts.count == 2 ? Family::kDeepGemm : Family::kParcelMember;
  }
  return Family::kOther;
}

}  // namespace inductorfs::layout
