// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "inductorfs/codec/digest.h"
#include "vfs/disk/local_tree.h"

namespace inductorfs::vfs {

/// What the directory, or the index, of a parcel says of itself in an extended attribute: of which parcel it is, and
/// whether the cluster's was unpacked here. Unlike a seal it says nothing of an inode of the store: the files of a
/// parcel are this host's own, and may be written to. The mark holds as long as the directory, or the index, has not
/// changed since.
struct ParcelMark {
  codec::Digest digest;
  bool fetched = false;
  bool operator==(const ParcelMark&) const = default;
};

/// Returns the mark of what is at `place`, below the file system's directory; nothing if there is none, or if what is
/// there has changed since. Blocks on the local disk.
[[nodiscard]] std::optional<ParcelMark> parcel_mark_of(const LocalTree& tree, const std::string& place);
/// Sets the mark, best effort. What is there changes after it only by a change that ends it.
void set_parcel_mark(const LocalTree& tree, const std::string& place, const ParcelMark& mark);
/// Says whether this was a parcel and has changed since, so that nothing tells whether it is whole: it stays here as
/// it is until it gets its name anew, or the index its bytes.
[[nodiscard]] bool is_changed_parcel(const LocalTree& tree, const std::string& place);
/// Ends the mark of what a file belongs to that is written to, replaced or removed. Nothing where there was never a
/// parcel.
void end_parcel_mark(const LocalTree& tree, const std::string& place);
/// Forgets that it was one: it gets its name, or the index its bytes, anew.
void forget_parcel_mark(const LocalTree& tree, const std::string& place);
/// Marks a file that comes with an index of the cluster: where that is gone the file is in nobody's way.
void mark_member(const LocalTree& tree, const std::string& place);
[[nodiscard]] bool is_left_member(const LocalTree& tree, const std::string& place);
/// Removes a file, or a directory with all below it. What cannot be removed is met again at the next start.
void remove_parcel(const LocalTree& tree, const std::string& place);
/// The same for a path of the view; an index takes with it what it names, which would be in the way of another one.
void remove_from_view(const LocalTree& tree, const std::string& path);

}  // namespace inductorfs::vfs
