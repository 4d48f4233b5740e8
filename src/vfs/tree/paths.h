// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "vfs/tree/local_tree.h"

/// What a path of the mount, or a set of names in a directory, says by itself. Everything here may be used
/// concurrently.
namespace inductorfs::vfs {

/// The directory part of a path; empty for a name in the root.
[[nodiscard]] std::string parent_path(const std::string& path);
[[nodiscard]] std::string last_component(const std::string& path);
/// Whether it is a file of a Triton key directory.
[[nodiscard]] bool is_kernel_file(const std::string& path);
/// Whether the compiler of a file is at work beside it: the directory that it works in is there
/// (layout::sealed_by_removal_of is the inverse).
[[nodiscard]] bool is_being_built(const std::string& directory, const std::string& name,
                                  const std::vector<LocalTree::Item>& siblings);
/// Whether these files of a Triton set, in this directory, are all that its group file names. Reads the group file.
[[nodiscard]] bool set_is_whole(const std::set<std::string>& files, const LocalTree& tree, const std::string& directory,
                                const std::string& key);
/// The group file first: without it the rest is no set.
void put_groups_first(std::vector<std::string>& names);
/// False for temporary names below triton/: their rename into a key directory shows the file to one process only
/// (KeyState), so the kernel must ask again when the name that it moved is used.
[[nodiscard]] bool kernel_may_keep(std::string_view path);
/// What is wrong when a path lies in a Triton key directory that is not at the place where Triton's family is (somebody
/// has set TRITON_CACHE_DIR to another directory of the mount); else empty.
[[nodiscard]] std::string misplaced_triton_directory(std::string_view path, const std::string& mountpoint);

}  // namespace inductorfs::vfs
