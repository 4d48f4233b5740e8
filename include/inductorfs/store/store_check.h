// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"

/// Checks whether a store directory that no daemon serves is sound (`inductorfs check`). A store is a cache: what is
/// damaged can be removed.
namespace inductorfs::store {

struct Finding {
  std::string path;       ///< relative to the store
  std::string what;       ///< what is wrong with it
  bool harmless = false;  ///< a killed daemon leaves such things, and the next mount clears or mends them
  std::string repair;     ///< what was done about it; empty: nothing was done
};

/// The problems that were found: the first kLimit harmful ones and the first kLimit harmless ones.
/// Needs external synchronisation.
class Findings {
 public:
  static constexpr size_t kLimit = 10'000;

  void add(Finding finding);
  [[nodiscard]] const std::vector<Finding>& all() const { return findings_; }
  /// The three counts include findings that are not kept.
  [[nodiscard]] uint64_t harmful() const { return harmful_; }
  [[nodiscard]] uint64_t harmless() const { return harmless_; }
  [[nodiscard]] uint64_t repaired() const { return repaired_; }
  /// True when no harmful finding is left unrepaired.
  [[nodiscard]] bool sound() const { return harmful_ == repaired_; }

 private:
  std::vector<Finding> findings_;
  uint64_t harmful_ = 0;
  uint64_t harmless_ = 0;
  uint64_t repaired_ = 0;  ///< repaired ones among the harmful
};

/// A store whose blobs have all been read. No daemon can open the store while this object lives.
/// Needs external synchronisation.
struct CheckedStore {
  Fd directory;
  Fd lock;
  uint64_t bytes = 0;
  std::unordered_map<codec::Digest, uint64_t> blobs;  ///< the sound blobs and their sizes in bytes
  std::unordered_map<ino_t, codec::Digest> inodes;    ///< the inodes of the sound blobs

  [[nodiscard]] bool has(const codec::Digest& digest) const { return blobs.contains(digest); }
};

/// Reads every blob. With `repair`, damaged blobs and the files that killed writers left are removed, and files that
/// are no blobs are moved to `set-aside/` in the store. Errors: kBusy (a daemon has the store open; the text names it),
/// kInvalid (not a store), kNotSupported (made by a newer version), or the disk's.
[[nodiscard]] Result<CheckedStore> check(const std::string& directory, bool repair, Findings& findings);

}  // namespace inductorfs::store
