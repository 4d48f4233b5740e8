// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "inductorfs/codec/digest.h"
#include "vfs/tree/paths.h"

/// What the files of the view say by themselves, on the disk: which of a Triton key directory are a set, and which are
/// sealed. Everything here blocks on the local disk only, and is safe for concurrent use.
namespace inductorfs::vfs {

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
/// Reads the group files among these files, which lie in this directory, of the key with this name.
[[nodiscard]] SetState state_of_set(const std::set<std::string>& files, const LocalTree& tree,
                                    const std::string& directory, const std::string& key);
/// Sorts group files to the front: without its group file the rest of a set is no set.
void put_groups_first(std::vector<std::string>& names);

/// Lists the Triton files that a directory of the view has on the disk, of its first kMostInSet names.
[[nodiscard]] std::vector<std::string> kernel_files(const LocalTree& tree, const std::string& path);
/// Lists those of them that are a set: the group files and what they name. With more than kMostInSet names it is no
/// whole set. read_set() says so where the disk does not tell it all.
[[nodiscard]] std::vector<std::string> local_set(const LocalTree& tree, const std::string& path);
[[nodiscard]] Result<std::vector<std::string>> read_set(const LocalTree& tree, const std::string& path);
/// Lists what a commit that was cut may have moved here already, of a set without a group file.
[[nodiscard]] std::vector<std::string> cut_set(const LocalTree& tree, const std::string& path);
[[nodiscard]] Result<bool> local_set_is_whole(const LocalTree& tree, const std::string& path);

/// Returns the digest in the seal of a file of the view, or in the mark of a parcel; empty when it has none.
[[nodiscard]] Result<std::string> read_seal(const LocalTree& tree, const std::string& path);
[[nodiscard]] std::string seal_on_disk(const LocalTree& tree, const std::string& path);
/// Returns what the seal of a sound file says: of a group file it is the digest of what the cluster has of it.
[[nodiscard]] Result<codec::Digest> digest_to_seal(int file, const std::string& path);

}  // namespace inductorfs::vfs
