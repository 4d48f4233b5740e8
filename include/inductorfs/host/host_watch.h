// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/host/learn.h"
#include "inductorfs/host/package_watch.h"
#include "inductorfs/host/place_reader.h"

namespace inductorfs::host {

/// What has become known about the facts of a mount, for `status`.
struct FactsNews {
  std::time_t learned = 0;  ///< when the host was last asked for them
  uint64_t probes = 0;      ///< how often the host was asked again
  uint64_t changes = 0;
  std::time_t changed = 0;
  std::vector<std::string> last_change;  ///< one line for each facet
  std::vector<std::string> kept;         ///< facets that keep an old value, with what the last probe says of them
  std::string problem;                   ///< why the last probe had no answer at all; empty when it had one
};

struct HostWatchOptions {
  Milliseconds interval{300'000};  ///< between two looks; 0 disables the timer
  Milliseconds settle{2'000};      ///< quiet time after a change of a package, because an installation takes a while
  Milliseconds confirm{10'000};    ///< between the probes in which a known facet must fail before it becomes unknown
  Milliseconds announce_again{1'000};  ///< retry of an announcement; doubles while the cluster does not answer
  bool from_file = false;              ///< the facts are in a file: read it each time, and believe it
  std::string known_traces;            ///< the traces when the facts were learned; empty: they were learned just now
  std::time_t learned = 0;             ///< when the facts were learned; 0: just now
  bool ask_at_once = false;            ///< they were not learned: nobody has answered
  PlaceReader reader{};                ///< looks at the places of the facts
};

/// Notices that the facts of the host have changed, and reports it. It owns the `host-watch` thread. The thread looks
/// when it is asked to (SIGHUP), when a package is installed (inotify), and by a timer. At the timer it first looks at
/// traces, and asks the device itself only when these have changed or a facet is not known, because that makes a CUDA
/// context of some hundred MiB for a moment.
///
/// A facet that was known and no longer is (the driver is being reloaded, torch is being installed, the host is too
/// busy to answer in time) keeps its value until it has failed kConfirmations probes in a row. That means half a minute
/// of the old scopes, which is no more than may pass before any change is noticed, and a job that compiles meanwhile
/// does not lose its cache. Another known value takes effect at once. Safe for concurrent use.
class HostWatch {
 public:
  static constexpr unsigned kConfirmations = 3;

  struct Hooks {
    /// Learns the current facts; may take seconds.
    std::function<Result<fingerprint::Fingerprint>()> learn;
    /// Returns the traces of these places; empty when they could not be looked at.
    std::function<std::string(const Places&)> traces;
    /// Puts these facts into force. `scopes` says that some value differs, which changes what is visible. Otherwise
    /// only what follows from the facts is to be examined again (sources, problems, the host's libraries).
    std::function<void(const fingerprint::Fingerprint&, bool scopes)> apply;
    /// Receives the facts, and the traces at that time, at the beginning and after each probe.
    std::function<void(const fingerprint::Fingerprint&, const std::string& traces, std::time_t learned)> looked;
    /// Tells the cluster about the scopes that it has not been told about; false means that it is to be tried again
    /// later. Called at the beginning, after a change, and at each turn of the timer.
    std::function<bool()> announce;
  };

  HostWatch(const HostWatchOptions& options, Hooks hooks, fingerprint::Fingerprint facts, Counters& counters);
  ~HostWatch() { stop(); }
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;

  /// Starts the thread, and returns when it notices any later change; if places do not answer, after some seconds at
  /// most.
  void start();
  /// Waits for a probe that is under way, which then changes nothing any more. Idempotent.
  void stop();
  /// Makes the thread look now, whatever the traces say.
  void look();
  /// Makes the thread call Hooks::announce now, because there are scopes that the cluster was not told of. Does not
  /// block.
  void announce_now();
  [[nodiscard]] FactsNews news() const;
  /// Says whether stop() has been called.
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
  fingerprint::Fingerprint facts_;  ///< confined to the host-watch thread
  Counter& probes_;
  Counter& changes_;
  Counter& failures_;
  Fd wake_;
  Guarded<FactsNews> news_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> asked_{false};
  std::atomic<bool> has_scopes_to_announce_{false};
  Guarded<bool> looked_{false};  ///< the thread has looked at the places for the first time
  std::jthread thread_;
};

}  // namespace inductorfs::host
