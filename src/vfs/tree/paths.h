// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/codec/digest.h"
#include "inductorfs/layout/layout.h"
#include "vfs/disk/local_tree.h"

/// What can be told from a path of the mount, or from a set of names in a directory, alone. Everything here is
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
/// The most files of a Triton set, which is looked at as a whole under locks. A group file names 256 children at most.
inline constexpr size_t kMostInSet = 1024;
/// The most bytes of a group file that are read.
inline constexpr uint64_t kGroupFileLimit = 1 << 20;
/// What the group files among the files of a Triton key say of the others.
enum class SetState {
  kNoGroup,
  kLacksChildren,
  kUnknown,  ///< a group file is in a form that this release does not know
  kUnread,   ///< the disk does not give a group file
  kWhole,    ///< there is all that they name
};
/// Reads a group file; once more where the disk fails, because a set without its group file is taken for no set.
[[nodiscard]] Result<std::string> read_group_file(const LocalTree& tree, const std::string& place);
/// Reads the group files among these files, which lie in this directory, of the key with this name.
[[nodiscard]] SetState state_of_set(const std::set<std::string>& files, const LocalTree& tree,
                                    const std::string& directory, const std::string& key);
/// Returns what the seal of a sound file says: of a group file it is the digest of what the cluster has of it.
[[nodiscard]] Result<codec::Digest> digest_to_seal(int file, const std::string& path);
/// Sorts group files to the front: without its group file the rest of a set is no set.
void put_groups_first(std::vector<std::string>& names);
/// Says whether the kernel may keep a name. It may not keep temporary names below triton/: their rename into a key
/// directory shows the file to one process only (KeyState), so the kernel must ask again when the name that it moved is
/// used.
[[nodiscard]] bool kernel_may_keep(std::string_view path);
/// Says whether the kernel may keep the absence of a name. It may not where the name stands in a root below the
/// mountpoint, is a Triton key without a device in any root, or would be in a root if a directory above it had another
/// name: nobody tells the kernel of a name in a root that it does not use (RootTree::local_paths_of()).
[[nodiscard]] bool absence_may_be_kept(const std::string& path, const layout::Name& entry);

}  // namespace inductorfs::vfs
