// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "inductorfs/base/result.h"
#include "inductorfs/layout/selection.h"
#include "inductorfs/remote/blobs.h"
#include "inductorfs/remote/index.h"
#include "inductorfs/store/blob_store.h"

/// Files that hold artefacts of a cluster, for another cluster (`inductorfs export`, `inductorfs import`).
/// docs/formats.md describes the file. Its reader trusts nothing in it: every size and count has a limit, every name is
/// checked, and every digest is computed.
namespace inductorfs::archive {

inline constexpr size_t kMostEntries = 200'000;
inline constexpr size_t kManifestLimit = size_t{96} << 20;

/// What an export takes.
struct Excerpt {
  layout::Selection selection;
  std::string torch;  ///< only scopes of this version (layout::is_of_torch); empty excludes none
};

/// With whom what an import publishes may be shared. Jobs run it, so nobody gets it unasked.
struct Audience {
  bool all = false;
  /// Values of the trust facet (fingerprint::Trust): "user=NAME", "group=NAME", or kEverybody.
  std::set<std::string> named;
};
inline constexpr std::string_view kEverybody = "everybody";

/// What an export or an import did. The counts are entries.
struct Report {
  uint64_t scopes = 0;
  uint64_t done = 0;  ///< written, or published
  uint64_t had = 0;   ///< import: the cluster has them, or others under their keys
  uint64_t blobs = 0;
  uint64_t bytes = 0;
  std::map<std::string, uint64_t> refused;  ///< by reason
  std::set<std::string> audience;           ///< import: with whom it is shared, as in Audience
  [[nodiscard]] uint64_t refusals() const;
};

/// Is called now and then with what was done so far.
using OnProgress = std::function<void(const Report&)>;

/// Writes what the cluster has of the excerpt. `spool` holds a few blobs at a time. Blocks on the network and both
/// disks; kInvalid when the excerpt names what is not there. What has been written before an error is no archive.
[[nodiscard]] Result<Report> write_archive(remote::Blobs& blobs, remote::Index& index, store::BlobStore& spool,
                                           const Excerpt& excerpt, int fd, const OnProgress& progress);

/// Publishes what an archive has and the cluster lacks. `spool` takes all blobs of the archive before the first one is
/// published, so that nothing of a damaged file is. kInvalid: the file is no archive, a damaged one, or one of a
/// newer version; through a pipe that is kCorrupt or kNotSupported. After another error the import can be repeated.
/// Leaves out what is for nobody of `audience`. kNoSpace, before anything is unpacked: the disk has less than `room`
/// bytes, which the blobs may take.
[[nodiscard]] Result<Report> read_archive(remote::Index& index, store::BlobStore& spool, int fd,
                                          const Audience& audience, uint64_t room, const OnProgress& progress);

}  // namespace inductorfs::archive
