// SPDX-License-Identifier: Apache-2.0
// DeepGEMM from 2026-04 on: a directory for each kernel.
#include <string_view>

#include "layout/engines/engine.h"
#include "layout/name_shapes.h"

namespace inductorfs::layout {
namespace {

using fingerprint::Facet;

/// <name>.<32 hex>
bool is_entry(std::string_view name) {
  constexpr size_t kHashLength = 32;
  const size_t dot = name.find('.');
  return dot != std::string_view::npos && is_identifier(name.substr(0, dot)) &&
         is_text_of(name.substr(dot + 1), kHashLength, kHex);
}

/// kernel.<name>.<32 hex>
bool is_kernel(std::string_view name) {
  constexpr std::string_view kFirst = "kernel.";
  return name.starts_with(kFirst) && is_entry(name.substr(kFirst.size()));
}

/// csrc/jit/compiler.hpp. Engines give it deep_gemm/ (vllm/utils/deep_gemm.py, sglang/srt/environ.py); a directory of
/// another name is known by its kernels.
constexpr EnginePlace kNamed[] = {
    {Family::kDeepGemm, Below::kMembers, {is("cache"), a(is_kernel)}},
    // deepseek-ai/DeepJIT include/deep_jit/cache/disk.hpp, the cache of later releases
    {Family::kDeepGemm, Below::kMembers, {is("cache"), a(is_entry)}},
    {Family::kTemporary, Below::kSame, {is("tmp")}},
    {Family::kLock, Below::kSame, {is("locks")}},
};
constexpr EnginePlace kKernels[] = {{Family::kDeepGemm, Below::kMembers, {a(is_kernel)}}};

constexpr EngineTree kTrees[] = {{is("deep_gemm"), kNamed}, {is("cache"), kKernels}};

/// deepseek-ai/DeepJIT include/deep_jit/cache/disk.hpp: what is committed has an empty file that says so.
bool is_committed(const ParcelMembers& files) {
  const auto mark = files.find(".committed");
  return files.size() == 4 && files.contains("meta.json") && mark != files.end() && mark->second.size == 0;
}

/// csrc/jit/kernel_runtime.hpp: check_validity, which aborts the job unless both are there. What DG_JIT_DUMP_ASM and
/// its like add is for people.
Result<void> check_kernel(const EngineArtefact& parcel) {
  INDUCTORFS_TRY_ASSIGN(const auto* source, required(parcel, "kernel.cu"));
  INDUCTORFS_TRY_ASSIGN(const auto* binary, required(parcel, "kernel.cubin"));
  if (parcel.members.size() != 2 && !is_committed(parcel.members)) {
    return corrupt(parcel.artefact, "has more than kernel.cu and kernel.cubin");
  }
  INDUCTORFS_TRY(check_text(*source));
  return check_cubin(*binary, parcel.host);
}

constexpr Facet kDeviceCode[] = {Facet::kCuda, Facet::kGpu, Facet::kEnvironment};

constexpr Rule kRules[] = {
    {.family = Family::kDeepGemm,
     .name = "deep_gemm",
     .shared = true,
     .contest = Contest::kFirstOfPath,
     .form = Form::kDirectory,
     .facets = kDeviceCode,
     .why = "a kernel with its source. The name hashes the source, DeepGEMM's headers, the flags with the "
            "architecture, and NVCC's release without its patch level. A directory without one of its files aborts "
            "the job. A rename onto a kernel that is there means to take that one. Up to 2026-04 the files came one by "
            "one, and stay on the host",
     .source = "DeepGEMM csrc/jit/compiler.hpp: Compiler::build; kernel_runtime.hpp: KernelRuntime::check_validity",
     .pattern = "[deep_gemm/]cache/kernel.<name>.<32 hex>/**, deep_gemm/cache/<name>.<32 hex>/**"},
};

constexpr UserCache kCaches[] = {
    {"DeepGEMM", "DG_JIT_CACHE_DIR", "deep_gemm", "~/.deep_gemm", false, "", true, true,
     "DeepGEMM: kernels are shared, each directory whole. vLLM keeps this value; SGLang replaces it by "
     "SGLANG_DG_CACHE_DIR, which is $SGLANG_CACHE_DIR/deep_gemm if nobody sets it"},
};

}  // namespace

constinit const Engine kDeepGemm{kRules, kTrees, kCaches, check_kernel};

}  // namespace inductorfs::layout
