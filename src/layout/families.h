// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "inductorfs/layout/layout.h"

/// The families of names in torch's cache directory, and of Triton's below it: what a path below a cache root is. The
/// functions are pure; safe for concurrent use. Which part of a path is its root is classify.cc's.
namespace inductorfs::layout {

/// More than a root and any family have together; deeper paths keep their first components and their last.
inline constexpr size_t kPartLimit = 24;
inline constexpr std::string_view kTriton = "triton";
inline constexpr std::string_view kDevices = "triton/@/";
inline constexpr std::string_view kBuildSuffix = "_CxxBuild";
inline constexpr std::string_view kPrecompiledHeaders = "precompiled_headers";

/// A path's components. Immutable after construction.
struct PathParts {
  std::array<std::string_view, kPartLimit> part;
  size_t count = 0;  ///< of all components, also those beyond kPartLimit
  std::string_view last;
  bool clean = false;

  [[nodiscard]] std::string_view operator[](size_t index) const { return part[index]; }
};

/// Takes a path apart; the components point into it. `clean` is false for one that no name of a family can have.
[[nodiscard]] PathParts split(std::string_view path);

/// Says whether the name is a device's index, as Triton's directories have it.
[[nodiscard]] bool is_index(std::string_view name);
[[nodiscard]] bool is_device_or_any(std::string_view name);
/// Says whether everything in a directory of this name is temporary, wherever it stands.
[[nodiscard]] bool is_temporary_directory(std::string_view part);
/// Says whether a file of this name is temporary, wherever it stands.
[[nodiscard]] bool is_temporary_file(std::string_view name);
[[nodiscard]] bool is_lock(std::string_view name);
/// Says whether the name is that of a cache of torch itself below `cache/`.
[[nodiscard]] bool is_on_disk_cache(std::string_view name);

/// Returns the family of a file of torch's code directories: `name` in `directory`.
[[nodiscard]] Family code_family(std::string_view directory, std::string_view name);
/// Returns the family of a path below a root.
[[nodiscard]] Family family_of(const PathParts& parts);
/// Says whether the directory of the first `depth` components below a root is common to all users
/// (is_common_directory).
[[nodiscard]] bool is_common(const PathParts& parts, size_t depth);

}  // namespace inductorfs::layout
