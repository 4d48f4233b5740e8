// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/vfs/types.h"
#include "job_finder.h"

namespace inductorfs::ledger {

/// Notes what each job asks for in each cache root, from its first request on until it ends or is quiet: one start. It
/// holds kMostStarts starts and kMostBytes of names; beyond that nothing more is noted until others have ended. Needs
/// external synchronisation.
class JobStarts {
 public:
  /// Receives a start; returns false when it is to be told again (FileSystem::note_start).
  using Told = std::function<bool(const vfs::JobStart&)>;

  JobStarts(Told told, const Clock& clock) : told_(std::move(told)), clock_(clock) {}

  void enter(const vfs::UseNotice& notice, const FoundJob& job);
  /// The job has ended: its starts are told at the next tell_ended().
  void end(const JobName& job);
  /// Tells the starts that have ended or are quiet.
  void tell_ended();

  static constexpr std::chrono::seconds kQuiet{60};  ///< a compile between two requests takes less, but for the largest
  static constexpr size_t kMostStarts = 256;
  static constexpr size_t kMostBytes = size_t{32} << 20;

 private:
  static constexpr size_t kFirstOfProcess = 2;
  static constexpr size_t kMostProcesses = 32;
  static constexpr std::chrono::seconds kTellFor{120};  ///< how long after its end a start is told again

  using Id = std::pair<JobName, std::string>;  ///< and the root
  struct Start {
    std::vector<std::string> order;
    std::unordered_map<std::string, bool> got;  ///< by key: a program found or made it
    std::vector<std::string> first;
    std::map<ProcessId, size_t> asked;  ///< how many of `first` are of this process
    SteadyTime last_use{};
    SteadyTime ended{};  ///< the job has ended, or has been quiet; a further request begins another start
    size_t bytes = 0;
  };

  void note_key(Start& start, const std::string& key, const ProcessId& process, bool is_graph);
  [[nodiscard]] static vfs::JobStart report(const std::string& root, const Start& start);

  const Told told_;
  const Clock& clock_;
  std::map<Id, Start> starts_;
  size_t bytes_ = 0;
};

}  // namespace inductorfs::ledger
