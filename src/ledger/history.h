// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

#include "books.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/result.h"

namespace inductorfs::ledger {

/// Keeps the books in a directory of the store, so that the next worker goes on with them: the file `totals`, and one
/// for each job, named by its number. What cannot be read is forgotten with one line of the log, and what cannot be
/// written is written later; neither does any other harm. Needs external synchronisation, but for trouble(); may block
/// on the local disk.
class History {
 public:
  History(std::string directory, const Clock& clock) : directory_(std::move(directory)), clock_(clock) {}

  void load_totals(Books& books);
  /// Those whose processes are of another boot have ended. To be called after load_totals().
  void load_jobs(Guarded<Books>& books);

  /// Writes what has changed: at once if a job has got a number, which must not be given again; else when the last time
  /// is long ago.
  void save(Guarded<Books>& books);
  void save_now(Guarded<Books>& books);
  /// Returns why the books could not be written when that was last tried; empty if they were. Safe for concurrent use,
  /// and never blocks.
  [[nodiscard]] std::string trouble() const {
    return trouble_.with([](const std::string& why) { return why; });
  }

  static constexpr Milliseconds kEvery{2'000};
  static constexpr Milliseconds kAfterFailure{30'000};

 private:
  [[nodiscard]] std::string path_of(uint64_t number) const { return directory_ + "/" + std::to_string(number); }
  [[nodiscard]] Result<void> write(Guarded<Books>& books);
  void forget(const std::set<uint64_t>& jobs);

  const std::string directory_;
  const Clock& clock_;
  bool same_boot_ = false;
  size_t unreadable_ = 0;
  std::set<uint64_t> files_;  ///< the jobs of which there is one
  uint64_t numbered_ = 0;     ///< Totals::last_number as it was written
  SteadyTime tried_{};
  Guarded<std::string> trouble_;
};

}  // namespace inductorfs::ledger
