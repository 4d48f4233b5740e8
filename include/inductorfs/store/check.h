// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"

/// Whether a store directory that nobody serves is sound (`inductorfs check`). It is a cache: what is damaged can go.
namespace inductorfs::store {

struct Finding {
  std::string path;       ///< relative to the store
  std::string what;       ///< what is wrong with it
  bool harmless = false;  ///< what a killed daemon leaves, and the next mount clears or mends
  std::string repair;     ///< what was done about it; empty: nothing
};

/// What was found, the first kLimit of each kind of harm. Needs external synchronisation.
class Findings {
 public:
  static constexpr size_t kLimit = 10'000;

  void add(Finding finding);
  [[nodiscard]] const std::vector<Finding>& all() const { return findings_; }
  /// Also counts what is not kept.
  [[nodiscard]] uint64_t harmful() const { return harmful_; }
  [[nodiscard]] uint64_t harmless() const { return harmless_; }
  [[nodiscard]] uint64_t repaired() const { return repaired_; }
  /// Nothing harmful is left.
  [[nodiscard]] bool sound() const { return harmful_ == repaired_; }

 private:
  std::vector<Finding> findings_;
  uint64_t harmful_ = 0;
  uint64_t harmless_ = 0;
  uint64_t repaired_ = 0;  ///< of the harmful
};

/// A store whose blobs have all been read. Nobody can open it while this object lives. Needs external synchronisation.
struct CheckedStore {
  Fd directory;
  Fd lock;
  uint64_t bytes = 0;
  std::unordered_map<codec::Digest, uint64_t> blobs;  ///< the sound ones, and their sizes
  std::unordered_map<ino_t, codec::Digest> inodes;    ///< of the sound ones

  [[nodiscard]] bool has(const codec::Digest& digest) const { return blobs.contains(digest); }
};

/// Reads every blob. `repair`: damaged blobs and what killed writers left are removed, files that are no blobs are
/// moved to `set-aside/` in the store. Errors: kBusy (a daemon has the store open; it is named), kInvalid (not a
/// store), kNotSupported (made by a newer version), or the disk's.
[[nodiscard]] Result<CheckedStore> check(const std::string& directory, bool repair, Findings& findings);

}  // namespace inductorfs::store
