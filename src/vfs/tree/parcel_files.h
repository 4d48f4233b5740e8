// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/codec/frame.h"
#include "inductorfs/codec/parcel.h"
#include "inductorfs/store/blob_file.h"
#include "vfs/disk/local_tree.h"

namespace inductorfs::vfs {

/// The files of the local disk that make a parcel. Needs external synchronisation.
struct ParcelFiles {
  Fd directory;                          ///< the items' paths are relative to it
  std::vector<codec::ParcelItem> items;  ///< in the order of the parcel
  std::vector<int64_t> times;  ///< of the items, in ns: a parcel has no times, which any user of a file may set
  std::string head;            ///< codec::encode_parcel_head()
  /// What the cluster has of the index, which names no directory of this host: its bytes, instead of the file's.
  std::string index;
  std::string index_name;
  uint64_t index_size = 0;  ///< of the file
  [[nodiscard]] uint64_t size() const;
};

/// Collects everything below a directory. kNotSupported, with the reason, for what no parcel can hold: a link, a
/// device, an empty directory alone, too many files. No link is followed. Blocks on the local disk.
[[nodiscard]] Result<ParcelFiles> files_of_directory(Fd directory);
/// Collects an index, of which the cluster is to have these bytes, and these files beside it. kNotSupported names the
/// first that is not there, or is no file.
[[nodiscard]] Result<ParcelFiles> files_named(Fd directory, const std::vector<std::string>& names,
                                              const std::string& index_name, std::string index);
/// Gives the bytes of the parcel to `sink` and returns their digest. kBusy when a file has changed since it was
/// collected.
[[nodiscard]] Result<codec::Digest> pack(const ParcelFiles& files, const codec::ByteSink& sink);

/// Collects the files of the parcel whose directory, or index, is at this path of the view. kNotFound when it is not
/// there. The caller holds moves().
[[nodiscard]] Result<ParcelFiles> parcel_files(const LocalTree& tree, const std::string& path);

/// Says whether a cut index (layout::is_cut_index) is at this path of the view. False for one that cannot be read. The
/// caller holds moves().
[[nodiscard]] bool is_cut_index(const LocalTree& tree, const std::string& path);

/// Returns what a host shows of the index of a parcel, whose bytes are `canonical`: the paths in it are those of the
/// directory as the asking process sees it.
[[nodiscard]] Result<std::string> shown_index(const std::string& path, std::string_view canonical,
                                              const std::string& directory);

/// Reads the head of a parcel from the file that holds it.
[[nodiscard]] Result<codec::ParcelHead> read_parcel_head(const store::BlobFile& blob);

/// The most bytes of an index; a larger one names more than a parcel holds.
inline constexpr uint64_t kIndexLimit = uint64_t{8} << 20;

}  // namespace inductorfs::vfs
