// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/result.h"
#include "inductorfs/catalog/catalog.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/mount/layers.h"
#include "inductorfs/store/blob_store.h"
#include "inductorfs/vfs/report.h"

namespace inductorfs::mount {

/// What is told of a mount that only its disk knows, or that a lock guards which is held while somebody waits for the
/// disk. Immutable value.
struct StoreNews {
  std::string silence;                ///< why all else is that of before, in one sentence with the remedy; mostly empty
  std::vector<std::string> troubles;  ///< what ails the directory of --store or its disk (store_place.h)
  Result<void> usable;                ///< kNotFound or kReadOnly: what is written here is lost, or cannot be written
  store::StoreUsage usage;
  catalog::CatalogStatus catalog;
  vfs::FileSystemStatus files;
};

/// Looks at the store for those who must not wait for a disk that never answers, by a thread of its own, when they ask.
/// The settings and the layers must outlive it. Safe for concurrent use.
class StoreWatch {
 public:
  StoreWatch(const config::Settings& settings, const Layers& layers) : settings_(settings), layers_(layers) {}
  ~StoreWatch() { stop(); }
  StoreWatch(const StoreWatch&) = delete;
  StoreWatch& operator=(const StoreWatch&) = delete;

  void start();
  /// Ends the thread. Idempotent.
  void stop();
  /// Returns what a look finds that begins now, or the last one when that takes longer than kLookPatience.
  [[nodiscard]] StoreNews look();
  /// Fails with kTimedOut and StoreNews::silence when there is any.
  [[nodiscard]] Result<void> answers();

  /// Below what whoever asks the daemon has for an answer.
  static constexpr Milliseconds kLookPatience{4000};

 private:
  struct State {
    uint64_t asked = 0;  ///< looks that were asked for
    uint64_t begun = 0;  ///< `asked` as it was when the last one began; another number than `done` while that goes on
    uint64_t done = 0;   ///< the same of the last one that has ended
    SteadyTime began;
    std::time_t since = 0;      ///< `began` as a date
    bool disk_answers = false;  ///< the look that goes on has got from the disk what it asked
    bool stopping = false;
    StoreNews news;
  };
  void run();
  [[nodiscard]] StoreNews look_at_store();
  [[nodiscard]] StoreNews silent(const State& state) const;

  const config::Settings& settings_;
  const Layers& layers_;
  Guarded<State> state_;
  std::jthread thread_;
};

}  // namespace inductorfs::mount
