// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Where the branches of a cache root lie. A *branch* is what the programs of one environment have in a root: a
/// directory of the local disk in the root, which no program sees by its own name, and which is a root itself to all
/// that asks for paths. Everything here is pure and safe for concurrent use.
namespace inductorfs::vfs {

/// Begins the name of what the programs of one user have whose environment could not be found out.
inline constexpr std::string_view kUnknownEnvironment = "unknown";
/// Returns that name.
[[nodiscard]] std::string unknown_environment(uid_t user);

/// Returns the name of a branch's directory in its root.
[[nodiscard]] std::string branch_name(std::string_view environment);
[[nodiscard]] bool is_branch_name(std::string_view name);
/// Returns the environment of the branch that a path lies in, or is; empty when it is in none.
[[nodiscard]] std::string_view environment_in(std::string_view path);
/// Returns the path as programs see it: without the directory of its branch.
[[nodiscard]] std::string shown_path(std::string_view path);
/// Returns the root that a branch's path belongs to; every other path as it is.
[[nodiscard]] std::string root_of_branch(std::string_view path);
/// Says whether a name is one of the layout of torch or Triton that stands directly in a cache root, this directory:
/// each environment has its own there.
[[nodiscard]] bool is_first_name(const std::string& directory, std::string_view name);

/// A directory that all environments see as one, and in which each has names of its own: a cache root, or a directory
/// below one that is in no branch, because a program without an environment has made it. Immutable value.
struct CommonDirectory {
  std::string root;
  std::string below;  ///< its path in the root; empty for the root itself

  /// Returns the directory of a branch of the root that stands for this one.
  [[nodiscard]] std::string in(const std::string& branch) const;
  /// Returns the path in the root of a name in this directory.
  [[nodiscard]] std::string path_of(std::string_view name) const;
};
/// Returns the common directory that this directory is to a program that asks for this name in it; nothing where no
/// environment has names of its own.
[[nodiscard]] std::optional<CommonDirectory> common_directory(const std::string& directory, std::string_view name);
/// Returns what a directory may be: which names it has tells a root from a directory of the layout.
[[nodiscard]] std::vector<CommonDirectory> common_readings(const std::string& directory);

}  // namespace inductorfs::vfs
