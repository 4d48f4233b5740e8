// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/host/learn.h"
#include "inductorfs/host/package_watch.h"
#include "inductorfs/host/place_reader.h"

namespace inductorfs::host {

/// What is known about the facts of a mount, for `status`.
struct FactsNews {
  std::time_t learned = 0;  ///< when they were asked for the last time
  uint64_t probes = 0;      ///< times they were asked for again
  uint64_t changes = 0;
  std::time_t changed = 0;
  std::vector<std::string> last_change;  ///< one line for each facet
  std::vector<std::string> kept;         ///< facets whose value is an old one, with what the last probe says of them
  std::string problem;                   ///< why the last probe had no answer at all; empty when it had
};

struct HostWatchOptions {
  Milliseconds interval{300'000};      ///< between two looks; 0: only when asked or told
  Milliseconds settle{2'000};          ///< of quiet after a change of a package, because an installation takes a while
  Milliseconds confirm{10'000};        ///< between the probes that a facet must fail to be no longer known
  Milliseconds announce_again{1'000};  ///< doubles while the cluster does not listen
  bool from_file = false;              ///< the facts are in a file: read each time, and take what it says
  std::string known_traces;            ///< what they were when the facts were learned; empty: they are learned just now
  std::time_t learned = 0;             ///< when that was; 0: just now
  PlaceReader reader{};                ///< looks at the places of the facts
};

/// Notices that the facts of the host have changed, and tells. Looks when asked (SIGHUP), when a package is installed
/// (inotify), and by a timer: the timer first looks at traces and asks the device itself only when these have changed
/// or a facet is not known, because that makes a CUDA context of some hundred MiB for a moment.
///
/// A facet that was known and is not any more (the driver is being reloaded, torch is being installed, the host is too
/// busy to answer in time) keeps its value until it has failed kConfirmations probes in a row: half a minute of the old
/// scopes is no more than what may pass before any change is noticed, and a job that compiles meanwhile does not lose
/// its cache. Another known value counts at once. Safe for concurrent use.
class HostWatch {
 public:
  static constexpr unsigned kConfirmations = 3;

  struct Hooks {
    /// The facts of now; may take seconds.
    std::function<Result<fingerprint::Fingerprint>()> learn;
    /// Traces of these places; empty when they could not be looked at.
    std::function<std::string(const Places&)> traces;
    /// The facts are these from now on. `scopes`: some value is another one, which changes what is visible. Else only
    /// what follows from them is to be looked at anew (sources, problems, the host's libraries).
    std::function<void(const fingerprint::Fingerprint&, bool scopes)> apply;
    /// These are the facts and what the traces were then, at the beginning and after each probe.
    std::function<void(const fingerprint::Fingerprint&, const std::string& traces, std::time_t learned)> looked;
    /// Tells the cluster about the scopes; false: again later.
    std::function<bool()> announce;
  };

  HostWatch(const HostWatchOptions& options, Hooks hooks, fingerprint::Fingerprint facts, Counters& counters);
  ~HostWatch() { stop(); }
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;

  /// Returns when changes from now on are noticed; where places do not answer, after some seconds at most.
  void start();
  /// Waits for a probe that is under way, which then changes nothing any more. Idempotent.
  void stop();
  /// Looks now, whatever the traces say.
  void look();
  [[nodiscard]] FactsNews news() const;
  /// Whether stop() has been called.
  [[nodiscard]] bool stopping() const { return stopping_; }

 private:
  struct Schedule;
  void run();
  void await(Schedule& schedule);
  void look_around(Schedule& schedule);
  void probe(Schedule& schedule);
  void take(const fingerprint::Fingerprint& fresh, Schedule& schedule);
  void announce(Schedule& schedule);
  void look_at_places(Schedule& schedule);
  void tell_looked(const Schedule& schedule);

  HostWatchOptions options_;
  Hooks hooks_;
  fingerprint::Fingerprint facts_;  ///< confined to the thread
  Counter& probes_;
  Counter& changes_;
  Counter& failures_;
  Fd wake_;
  Guarded<FactsNews> news_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> asked_{false};
  Guarded<bool> looked_{false};  ///< at the places, for the first time
  std::jthread thread_;
};

}  // namespace inductorfs::host
