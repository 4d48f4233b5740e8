// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/fingerprint/writers.h"
#include "sight.h"

namespace inductorfs::fingerprint {

/// Learns the environments of processes, and remembers the first answer for as long as the process lives
/// (Writers::job_of). learn() blocks while packages are read; the threads of one process wait for one answer. Safe for
/// concurrent use.
class Jobs {
 public:
  /// Remembers at most `limit` processes; those that have ended go first.
  Jobs(std::shared_ptr<Sight> sight, size_t limit) : sight_(std::move(sight)), limit_(limit) {}

  /// Returns the answer that this process has already; empty when it has none. Does not block.
  [[nodiscard]] std::optional<JobFacts> recall(pid_t pid, const ProcessStat& stat);
  /// Returns the environment of the process that `writer` observed, or of a process that could not be observed, and
  /// remembers it for that process. `pid` and `stat` are the process that made the request. Waits until `until` at
  /// most.
  [[nodiscard]] JobFacts learn(pid_t pid, const ProcessStat& stat, const std::shared_ptr<const Writer>& writer,
                               SteadyTime until);
  [[nodiscard]] size_t remembered() const;

 private:
  using Answer = std::shared_ptr<const JobFacts>;
  /// A process that was asked about. Immutable value.
  struct Entry {
    ProcessIdentity identity;
    std::shared_ptr<const Process> process;  ///< as it was when it was asked about first; nullptr: it was not observed
    Answer answer;                           ///< nullptr: it is being learned
    uint64_t used = 0;
  };
  struct State {
    std::map<pid_t, Entry> entries;
    uint64_t ticks = 0;
  };

  [[nodiscard]] Answer keep(pid_t pid, const ProcessIdentity& identity, JobFacts facts);
  [[nodiscard]] Answer learn_observed(const std::shared_ptr<const Writer>& writer, SteadyTime until);
  [[nodiscard]] std::optional<Entry> nearest_ancestor(pid_t pid);
  [[nodiscard]] Answer inherited(const Writer& writer, SteadyTime until);
  [[nodiscard]] JobFacts facts_of(const Writer& writer, SteadyTime until);
  [[nodiscard]] std::shared_ptr<const Writer> observe_anew(const Process& process);
  void make_room();

  const std::shared_ptr<Sight> sight_;
  const size_t limit_;
  Guarded<State> state_;
};

}  // namespace inductorfs::fingerprint
