// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/codec/digest.h"
#include "vfs/disk/local_tree.h"

namespace inductorfs::vfs {

/// What was found damaged on the disk: files of the view that are marked for it (kDamagedSeal), by any
/// thread, until the `janitor` has taken their names away. The mark lies on the inode, so that it outlives the process.
/// Safe for concurrent use.
class Damage {
 public:
  struct Found {
    std::vector<codec::Digest> blobs;  ///< everything goes that shows one of them
    std::set<std::string> parcels;     ///< their paths; their files are no blobs
    bool is_left = false;              ///< an earlier process has left a marked file
    [[nodiscard]] bool is_any() const { return is_left || !blobs.empty() || !parcels.empty(); }
  };

  explicit Damage(const LocalTree& disk) : disk_(disk) {}

  /// Marks the file of a blob, unless it is -1.
  void note(const codec::Digest& digest, int file) {
    // Where the disk takes no mark, it may take the name away.
    if (file >= 0 && is_stores(file).value_or(true)) (void)set_seal(file, kDamagedSeal);
    state_.notify_with([&](State& state) { state.found.blobs.push_back(digest); });
  }
  void note_parcel(const std::string& path) {
    state_.notify_with([&](State& state) { state.found.parcels.insert(path); });
  }
  void note_left() {
    state_.notify_with([](State& state) { state.found.is_left = true; });
  }
  /// Returns what was noted since the last call. The caller takes its names away and calls done().
  [[nodiscard]] Found take() {
    return state_.with([](State& state) {
      state.is_busy = state.found.is_any();
      return std::exchange(state.found, {});
    });
  }
  void done() {
    state_.notify_with([](State& state) { state.is_busy = false; });
  }
  /// Waits until nothing is left to be taken away; returns whether that is so.
  [[nodiscard]] bool wait(Deadline deadline) {
    const auto is_over = [](const State& state) { return !state.found.is_any() && !state.is_busy; };
    return state_.wait_until(deadline.at(), is_over, is_over);
  }

 private:
  struct State {
    Found found;
    bool is_busy = false;
  };
  const LocalTree& disk_;
  Guarded<State> state_;
};

}  // namespace inductorfs::vfs
