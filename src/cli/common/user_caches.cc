// SPDX-License-Identifier: Apache-2.0
#include "cli/common/user_caches.h"

#include <array>

namespace inductorfs::cli {
namespace {

// Read in vLLM 0.32 (envs.py, compilation/decorators.py, compilation/compiler_interface.py, utils/deep_gemm.py), SGLang
// 0.5.23 (srt/environ.py, kernels/jit/utils/compile/cache.py, srt/layers/deep_gemm_wrapper/compile_utils.py),
// FlashInfer 0.7.2 (jit/env.py, autotune_cache.py), TileLang 0.1.15 (env.py), tvm-ffi 0.1.15 (cpp/extension.py) and
// torch 2.13 (utils/cpp_extension.py).
constexpr std::array<UserCache, 15> kCaches{{
    {"torch", "TORCHINDUCTOR_CACHE_DIR", "", "", false, "", true, false,
     "torch.compile: graphs, kernels, generated code and tuning results are shared. vLLM, and SGLang with "
     "torch.compile, replace this value by a directory below their own"},
    {"Triton", "TRITON_CACHE_DIR", "triton_cache", "~/.triton/cache", false, "", true, false,
     "Triton, with torch.compile and without it: kernels are shared. vLLM 0.32 keeps this value; SGLang with "
     "torch.compile replaces it by a directory below its own"},
    {"vLLM", "VLLM_CACHE_ROOT", "vllm", "~/.cache/vllm", true, "", true, true,
     "vLLM: compiled models, their artifacts, what it knows of model classes, tunings of FlashInfer and kernels of "
     "DeepGEMM are shared. Unpacked artifacts, the topology of a host and its startup plan stay private. vLLM sets "
     "TORCHINDUCTOR_CACHE_DIR to a directory below this one, whatever it was before"},
    {"SGLang", "SGLANG_CACHE_DIR", "sglang", "~/.cache/sglang", false, "", true, true,
     "SGLang: kernels of Triton and DeepGEMM and what torch.compile makes below it are shared. Its index of compiled "
     "graphs stays private, because all ranks write one, in place"},
    {"SGLang's own kernels", "SGLANG_JIT_CACHE_DIR", "sglang/jit", "", false, "", true, true,
     "SGLang's own kernels are shared. Without this they lie in ~/.cache/sglang/jit, whatever SGLANG_CACHE_DIR says"},
    {"DeepGEMM", "DG_JIT_CACHE_DIR", "deep_gemm", "~/.deep_gemm", false, "", true, true,
     "DeepGEMM: kernels are shared, each directory whole. vLLM keeps this value; SGLang replaces it by "
     "SGLANG_DG_CACHE_DIR, which is $SGLANG_CACHE_DIR/deep_gemm if nobody sets it"},
    {"TileLang", "TILELANG_CACHE_DIR", "tilelang", "~/.tilelang/cache", false, "", true, true,
     "TileLang: kernels are shared, each directory whole"},
    {"FlashInfer", "FLASHINFER_WORKSPACE_BASE", "flashinfer", "~/.cache/flashinfer", false, "/.cache/flashinfer", true,
     true,
     "FlashInfer: downloaded cubins and tunings are shared. Operators that it builds (cached_ops) stay private, "
     "because "
     "ninja writes them in place and judges them by times and absolute paths"},
    {"FlashInfer's cubins", "FLASHINFER_CUBIN_DIR", nullptr, "", false, "", true, false,
     "cubins lie below FLASHINFER_WORKSPACE_BASE; this variable would hide those of an installed flashinfer-cubin"},
    {"FlashInfer's tunings", "FLASHINFER_AUTOTUNE_CACHE_DIR", nullptr, "", false, "", true, false,
     "tunings lie below FLASHINFER_WORKSPACE_BASE, those of vLLM (VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR) below "
     "VLLM_CACHE_ROOT"},
    {"SGLang's DeepGEMM", "SGLANG_DG_CACHE_DIR", nullptr, "", false, "", true, true, "it lies below SGLANG_CACHE_DIR"},
    {"tvm-ffi", "TVM_FFI_CACHE_DIR", nullptr, "~/.cache/tvm-ffi", false, "", false, false,
     "ninja writes extensions in place, and their names have neither compiler nor CUDA, so that no mount shares them"},
    {"torch extensions", "TORCH_EXTENSIONS_DIR", nullptr, "~/.cache/torch_extensions", true, "", false, false,
     "an extension's directory has its name alone, and ninja writes it in place, so that no mount shares it"},
    {"the CUDA driver", "CUDA_CACHE_PATH", nullptr, "~/.nv/ComputeCache", false, "", false, false,
     "its format is not public, so that nothing could be checked, and no mount shares it. SGLang sets it to "
     "$SGLANG_CACHE_DIR/nv, which works as on a local disk"},
    {"vLLM's media", "VLLM_ASSETS_CACHE", nullptr, "", false, "", false, false,
     "downloads for tests and media below VLLM_CACHE_ROOT: they are no compile results"},
}};

}  // namespace

std::span<const UserCache> user_caches() { return kCaches; }

}  // namespace inductorfs::cli
