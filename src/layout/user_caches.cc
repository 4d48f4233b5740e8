// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/layout/user_caches.h"

#include <vector>

#include "layout/engines/engine.h"

namespace inductorfs::layout {
namespace {

/// Those that no engine keeps. Read in tvm-ffi 0.1.15 (cpp/extension.py) and torch 2.13 (utils/cpp_extension.py).
constexpr UserCache kCaches[] = {
    {"torch", "TORCHINDUCTOR_CACHE_DIR", "", "", false, "", true, false,
     "torch.compile: graphs, kernels, generated code and tuning results are shared. vLLM, and SGLang with "
     "torch.compile, replace this value by a directory below their own"},
    {"Triton", "TRITON_CACHE_DIR", "triton_cache", "~/.triton/cache", false, "", true, false,
     "Triton, with torch.compile and without it: kernels are shared. vLLM 0.32 keeps this value; SGLang with "
     "torch.compile replaces it by a directory below its own"},
    {"tvm-ffi", "TVM_FFI_CACHE_DIR", nullptr, "~/.cache/tvm-ffi", false, "", false, false,
     "ninja writes extensions in place, and their names have neither compiler nor CUDA, so that no mount shares them"},
    {"torch extensions", "TORCH_EXTENSIONS_DIR", nullptr, "~/.cache/torch_extensions", true, "", false, false,
     "an extension's directory has its name alone, and ninja writes it in place, so that no mount shares it"},
    {"the CUDA driver", "CUDA_CACHE_PATH", nullptr, "~/.nv/ComputeCache", false, "", false, false,
     "its format is not public, so that nothing could be checked, and no mount shares it. SGLang sets it to "
     "$SGLANG_CACHE_DIR/nv, which works as on a local disk"},
};

std::vector<UserCache> make_caches() {
  std::vector<UserCache> caches(std::begin(kCaches), std::end(kCaches));
  for (const Engine* const engine : kEngines) caches.insert(caches.end(), engine->caches.begin(), engine->caches.end());
  return caches;
}

}  // namespace

std::span<const UserCache> user_caches() {
  static const std::vector<UserCache> caches = make_caches();
  return caches;
}

}  // namespace inductorfs::layout
