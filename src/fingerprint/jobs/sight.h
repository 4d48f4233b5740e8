// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "fingerprint/common/background.h"
#include "fingerprint/processes/look.h"
#include "fingerprint/processes/looker.h"
#include "fingerprint/processes/writers_packages.h"
#include "fingerprint/processes/writers_process.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/fingerprint/writers.h"

namespace inductorfs::fingerprint {

/// From the linker to the job there are a driver, sometimes a shell and a wrapper such as ccache.
inline constexpr int kAncestorLimit = 16;

/// What was observed of processes. Examining a process may block for ever, so threads that nobody joins do it; they
/// share this object with the Writers that began it. Safe for concurrent use.
class Sight : public std::enable_shared_from_this<Sight> {
 public:
  /// An examination that takes longer than `wait` is late.
  Sight(const WritersOptions& options, Milliseconds wait);

  [[nodiscard]] const ProcReader& reader() const { return reader_; }
  /// As ProcReader::stat_of(), recognised. Does not block, nor does the next one.
  [[nodiscard]] std::optional<ProcessStat> stat_of(pid_t pid);
  /// The same, and where that does not show the program asks who may see it. Blocks as Looker::identity_of().
  void find_out(pid_t pid, ProcessStat& stat);
  /// Has the identity show the program where this process has no right to see it (proc_pid_stat(5)), and the program is
  /// the one that was looked at. Else it stays as it is: whoever asks has it looked at.
  void recognise(pid_t pid, ProcessStat& stat);
  [[nodiscard]] Packages& packages() { return packages_; }

  /// Returns the process that a thread belongs to; 0 when that cannot be told. Does not block.
  [[nodiscard]] pid_t process_of(pid_t tid, const ProcessIdentity& identity);
  /// Returns the writer that a process is taken for if all of it was examined recently. Empty when it has to be
  /// examined. Does not block.
  [[nodiscard]] std::optional<Look::Found> recall(pid_t pid, const ProcessStat& stat);
  /// Returns the process itself as it was observed last, however long ago; nullptr when it was not. Does not block.
  [[nodiscard]] std::shared_ptr<const Writer> last_seen(pid_t pid, const ProcessIdentity& identity);
  /// Begins an examination, or finds the one that is under way. nullptr when too much of this user waits already.
  /// With `anew`, the process's environment is read again, however recently it was read.
  [[nodiscard]] std::shared_ptr<Look> look_at(pid_t pid, const ProcessStat& stat, bool anew = false);
  /// Waits for the result of an examination. Empty when it does not come in time, or when examinations of the same
  /// user's processes are late already: one user's trouble costs the other users one wait, and not one for each
  /// request.
  [[nodiscard]] std::optional<Look::Found> result_of(Look& look, uid_t owner);

  [[nodiscard]] uint64_t scanned() const { return scanned_; }
  [[nodiscard]] uint64_t start_only() const { return start_only_; }
  [[nodiscard]] size_t remembered() const;

 private:
  /// A process as it was last observed. Immutable value.
  struct Seen {
    ProcessIdentity identity;
    std::shared_ptr<const Process> process;  ///< nullptr: it cannot be examined
    std::shared_ptr<const Writer> writer;
    SteadyTime environment_at;
    SteadyTime maps_at;
    uint64_t size = 0;  ///< ProcessStat::size, before it was looked at
    uint64_t used = 0;
  };
  struct Thread {
    uint64_t start = 0;
    pid_t pid = 0;
    uint64_t used = 0;
  };
  struct Pending {
    ProcessIdentity identity;
    uid_t owner = 0;
    std::shared_ptr<Look> look;
  };
  struct State {
    std::map<pid_t, Seen> processes;
    std::map<pid_t, Thread> threads;
    std::map<pid_t, Pending> looks;
    uint64_t ticks = 0;
  };
  /// Each user gets two threads: one that is stuck leaves one for the user's other processes.
  static constexpr size_t kLookers = 32;
  static constexpr size_t kLookersOfOne = 2;

  [[nodiscard]] bool is_fresh(const Seen& seen, const ProcessIdentity& identity) const;
  [[nodiscard]] Seen seen_of(pid_t pid);
  // `is_late` is set where nobody can tell now.
  [[nodiscard]] Look::Found look_through(pid_t pid, ProcessStat stat, bool anew, bool& is_late);
  [[nodiscard]] std::shared_ptr<const Writer> look_once(pid_t pid, const ProcessStat& stat, bool anew, bool& is_late);
  void read_while_it_lives(const Process& process);
  /// Reads the process's environment, and looks at the files that it names. nullptr when it cannot be read.
  [[nodiscard]] std::shared_ptr<const Writer> with_environment(const std::shared_ptr<const Process>& process,
                                                               bool& is_late);
  [[nodiscard]] bool needs_look(const Seen& seen, const ProcessStat& stat, bool anew) const;
  [[nodiscard]] Seen looked_at(pid_t pid, const ProcessStat& stat, bool& is_late);
  [[nodiscard]] Seen refreshed(Seen seen, pid_t pid, const ProcessStat& stat, bool anew, bool& is_late);

  const WritersOptions options_;
  const Milliseconds wait_;
  const ProcReader reader_;
  const std::shared_ptr<Looker> looker_;
  const size_t kept_;  ///< processes that are remembered here, each with a descriptor
  Packages packages_;
  std::atomic<uint64_t> scanned_{0};
  std::atomic<uint64_t> start_only_{0};
  Guarded<State> state_;
  Background lookers_{"writer-look", kLookers, kLookersOfOne};
};

/// Does what open_writers() does; `wait` is that of Sight.
[[nodiscard]] std::unique_ptr<Writers> open_writers_that_wait(const WritersOptions& options, Counters& counters,
                                                              Milliseconds wait);

}  // namespace inductorfs::fingerprint
