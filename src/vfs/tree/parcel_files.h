// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/codec/frame.h"
#include "inductorfs/codec/parcel.h"
#include "vfs/tree/local_tree.h"

namespace inductorfs::vfs {

/// The files of the local disk that make a parcel. Needs external synchronisation.
struct ParcelFiles {
  Fd directory;                          ///< the items' paths are relative to it
  std::vector<codec::ParcelItem> items;  ///< in the order of the parcel
  std::vector<uid_t> owners;             ///< of the items
  std::string head;                      ///< codec::encode_parcel_head()
  [[nodiscard]] uint64_t size() const;
};

/// Collects everything below a directory. kNotSupported, with the reason, for what no parcel can hold: a link, a device,
/// an empty directory alone, too many files. No link is followed. Blocks on the local disk.
[[nodiscard]] Result<ParcelFiles> files_of_directory(Fd directory);
/// Collects these files of a directory. kNotSupported names the first that is not there, or is no file.
[[nodiscard]] Result<ParcelFiles> files_named(Fd directory, const std::vector<std::string>& names);
/// Gives the bytes of the parcel to `sink` and returns their digest. kBusy when a file has changed since it was
/// collected.
[[nodiscard]] Result<codec::Digest> pack(const ParcelFiles& files, const codec::ByteSink& sink);

/// Collects the files of the parcel whose directory, or index, is at this path of the view. kNotFound when it is not
/// there. The caller holds moves().
[[nodiscard]] Result<ParcelFiles> parcel_files(const LocalTree& tree, const std::string& path);

/// Reads the head of a parcel from the file that holds it.
[[nodiscard]] Result<codec::ParcelHead> read_parcel_head(int file);

/// The most bytes of an index; a larger one names more than a parcel holds.
inline constexpr uint64_t kIndexLimit = uint64_t{4} << 20;

}  // namespace inductorfs::vfs
