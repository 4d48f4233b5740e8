// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fingerprint/jobs/job_records.h"
#include "fingerprint/jobs/sight.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/fingerprint/writers.h"

namespace inductorfs::fingerprint {

/// How long a request may wait for the answer of Jobs. Immutable value; what it refers to outlives it.
struct JobWait {
  SteadyTime until;
  const JobQuestion& question;

  /// Calls `attempt` with ever later times, to which it blocks at most, until it finds something or the time is over.
  template <typename Attempt>
  [[nodiscard]] auto in_steps(Attempt&& attempt) const {
    constexpr Milliseconds kStep{250};
    while (true) {
      const SteadyTime step = std::min<SteadyTime>(until, system_clock().now() + kStep);
      auto found = attempt(step);
      if (found || step >= until) return found;
      question.goes_on();
    }
  }
};

/// Learns the environments of processes, and remembers the answer for as long as the process lives (Writers::job_of).
/// learn() blocks while packages are read; the threads of one process wait for one answer. Safe for concurrent use.
class Jobs {
 public:
  /// Remembers at most WritersOptions::process_limit processes; those that have ended go first.
  Jobs(std::shared_ptr<Sight> sight, const WritersOptions& options);

  /// Returns the answer that this process has already; empty when it has none, or may get another one. Does not block.
  [[nodiscard]] std::optional<JobFacts> recall(pid_t pid, const ProcessStat& stat);
  /// Returns until when requests wait for what this key names. All that wait for it wait together, from the first on:
  /// the kernel asks one after another for processes that look for the same name, or make something in the same
  /// directory, so that waits of their own would add up. A minute later they wait once more.
  [[nodiscard]] SteadyTime deadline_of(const std::string& key, const JobQuestion& question);
  /// Says that what the key names has come.
  void has_come(const std::string& key);
  /// Returns the environment of the process that `writer` observed, or of a process that could not be observed, and
  /// remembers it for that process. `pid` and `stat` are the process that made the request. Does not wait for packages
  /// without `waits`.
  [[nodiscard]] JobFacts learn(pid_t pid, const ProcessStat& stat, const std::shared_ptr<const Writer>& writer,
                               const JobQuestion& question, bool waits);
  [[nodiscard]] std::vector<UnknownJobs> unknown() const;
  [[nodiscard]] JobEnvironments::InUse in_use() const;

 private:
  using Answer = std::shared_ptr<const JobFacts>;
  /// A process that was asked about. Immutable value.
  struct Entry {
    ProcessIdentity identity;
    uid_t owner = 0;
    std::shared_ptr<const Process> process{};  ///< as it was asked about first; nullptr: it was not observed by us
    Answer answer{};                           ///< nullptr: there is none yet
    std::string environment{};                 ///< the name of the answer, if it has one
    std::string why{};                         ///< why there is no answer yet
    bool is_learning = false;                  ///< a thread looks for an answer
    bool is_restored = false;                  ///< earlier Writers gave the answer
    uint64_t used = 0;
    [[nodiscard]] bool lacks_torch() const;
    [[nodiscard]] bool is_of(const Process& one) const;
  };
  struct Waiting {
    SteadyTime look{};  ///< until when lookups wait
    SteadyTime make{};  ///< until when those wait that make something
  };
  struct State {
    std::map<pid_t, Entry> entries;
    std::map<std::string, Waiting> waiting;
    uint64_t ticks = 0;
  };
  struct Turn {
    Answer answer{};
    bool learns = false;
  };
  struct Asked {
    pid_t pid = 0;
    ProcessIdentity identity;
    uid_t owner = 0;
  };

  [[nodiscard]] static Entry& entry_of(State& state, const Asked& asked);
  void restore(const JobRecord& record);
  [[nodiscard]] Answer settle(const Asked& asked, JobFacts facts);
  [[nodiscard]] JobFacts without_answer(const Asked& asked, std::string why, bool makes);
  [[nodiscard]] JobFacts learn_observed(const std::shared_ptr<const Writer>& writer, const JobWait& wait);
  [[nodiscard]] Turn take_turn(const Process& process);
  [[nodiscard]] JobFacts find_out(const Writer& writer, const JobWait& wait);
  [[nodiscard]] JobFacts await_other(const Asked& asked, const JobWait& wait);
  [[nodiscard]] std::optional<std::pair<pid_t, Entry>> nearest_ancestor(pid_t pid);
  [[nodiscard]] Answer inherited(const Writer& writer, const JobWait& wait);
  [[nodiscard]] JobFacts facts_of(const Writer& writer, const JobWait& wait);
  [[nodiscard]] std::shared_ptr<const Writer> observe_anew(pid_t pid, const ProcessIdentity& identity);
  static void forget_one(std::map<pid_t, Entry>& entries);
  void make_room();

  const std::shared_ptr<Sight> sight_;
  const size_t limit_;
  JobEnvironments* const environments_;
  JobRecords records_;
  Guarded<State> state_;
};

}  // namespace inductorfs::fingerprint
