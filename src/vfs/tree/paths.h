// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/layout/layout.h"
#include "vfs/disk/local_tree.h"

/// What can be told from a path of the mount alone, or with the names beside it. Everything here is
/// safe for concurrent use.
namespace inductorfs::vfs {

/// Returns the directory part of a path; empty for a name in the root.
[[nodiscard]] std::string parent_path(const std::string& path);
[[nodiscard]] std::string last_component(const std::string& path);
/// Says whether the path is a file of a Triton key directory.
[[nodiscard]] bool is_kernel_file(const std::string& path);
/// Returns in which form the cluster has what stands under this name.
[[nodiscard]] layout::Form form_of(const std::string& path);
/// Returns the index that a file beside it may belong to, and every directory above it that is a parcel; empty for a
/// file that belongs to none.
[[nodiscard]] std::vector<std::string> parcels_of_member(const std::string& path);
/// Says whether what stands under this name, of this type (S_IFMT), is the directory or the index of a parcel.
[[nodiscard]] bool is_parcel(const std::string& path, mode_t type);
/// Says whether the file is of a shared family that is complete when nobody has written to it for the quiet time
/// (layout::SealSign::kQuiet).
[[nodiscard]] bool seals_when_quiet(const std::string& path);
/// Says whether the file is of a shared family that a compiler makes under its final name, complete when its build
/// directory goes (layout::SealSign::kBuildDirectory).
[[nodiscard]] bool seals_after_build(const std::string& path);
/// Says whether a compiler is still making such a file: its build directory is among the siblings (the inverse of
/// layout::sealed_by_removal_of()).
[[nodiscard]] bool is_being_built(const std::string& directory, const std::string& name,
                                  const std::vector<LocalTree::Item>& siblings);
/// Says whether the kernel may keep a name. It may not keep temporary names below triton/: their rename into a key
/// directory shows the file to one process only (KeyState), so the kernel must ask again when the name that it moved is
/// used.
[[nodiscard]] bool kernel_may_keep(std::string_view path);
/// Says whether the kernel may keep the absence of a name. It may not where the name stands in a root below the
/// mountpoint, is a Triton key without a device in any root, or would be in a root if a directory above it had another
/// name: nobody tells the kernel of a name in a root that it does not use (KnownRoots::local_paths_of()).
[[nodiscard]] bool absence_may_be_kept(const std::string& path, const layout::Name& entry);

}  // namespace inductorfs::vfs
