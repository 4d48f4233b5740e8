// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace inductorfs::layout {

/// The name of the index that vLLM keeps of its artifacts (vllm/compilation/backends.py: CompilerManager).
inline constexpr std::string_view kVllmIndexName = "vllm_compile_cache.py";

}  // namespace inductorfs::layout
