// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "families.h"

/// The families of names that serving engines and their kernel libraries make below a cache root: vLLM, FlashInfer,
/// DeepGEMM, TileLang, SGLang. The functions are pure; safe for concurrent use.
namespace inductorfs::layout {

/// Says whether the components from `begin` on may be a path that an engine makes in its cache directory, or lead to
/// one. Not what leads to a cache root of torch or Triton inside: that root is the inner one.
[[nodiscard]] bool is_of_an_engine(const PathParts& parts, size_t begin);
/// Returns the family of a path below a root; kOther when no engine makes it.
[[nodiscard]] Family engine_family_of(const PathParts& parts);
/// Says whether the path below a root is a directory in which the engines of all users make names.
[[nodiscard]] bool is_engine_directory(const PathParts& parts);
/// Says whether the path below a root is a directory that is one artefact, or lies in one.
[[nodiscard]] bool is_engine_artefact(const PathParts& parts);

/// Says whether the path below a root is a directory that an engine lists, to find what somebody has made in it
/// (SGLang: jit/<target>/<module>/build-<key>).
[[nodiscard]] bool is_listed_directory(const PathParts& parts);
/// Says whether the path is the directory of a compiled model of vLLM, which nobody makes before there is one.
[[nodiscard]] bool is_directory_of_model(const PathParts& parts);
/// Says whether vLLM gives a compiled artefact this name, in the directory of its index.
[[nodiscard]] bool is_indexed_artefact(std::string_view name);

}  // namespace inductorfs::layout
