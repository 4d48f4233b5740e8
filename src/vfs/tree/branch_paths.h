// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

/// Where the branches of a cache root lie. A *branch* is what the programs of one environment have in a root: a
/// directory of the local disk in the root, which no program sees by its own name, and which is a root itself to all
/// that asks for paths. Everything here is pure and safe for concurrent use.
namespace inductorfs::vfs {

/// Of the programs whose environment could not be found out.
inline constexpr std::string_view kUnknownEnvironment = "unknown";

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

}  // namespace inductorfs::vfs
