// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

/// Decides what a supervisor does and when. It makes no system call and allocates no memory, so that every case can be
/// tested.
namespace inductorfs::supervisor {

/// Milliseconds of CLOCK_MONOTONIC.
using Time = int64_t;

struct Limits {
  Time hang = 15'000;    ///< the longest without a sign of life; 0 disables
  Time start = 60'000;   ///< from a worker's start until it serves
  Time upgrade = 8'000;  ///< the same for a new program, which is given up after it
  Time drain = 10'000;   ///< for a worker that hands over
  unsigned crashes = 5;  ///< that many within a minute lead to safe mode; 0 disables
};
/// The largest value of `crashes`.
inline constexpr size_t kCrashLimit = 64;

/// The latest times that the current worker reported. 0 means that it has not reported yet.
struct Signs {
  Time beat = 0;
  Time serving = 0;
};

enum class Action {
  kNothing,
  kStart,    ///< start a worker, from the new program if trying_new(); then call started() or start_failed()
  kKill,     ///< kill the worker
  kHeld,     ///< the kernel does not let the killed worker end: is_held() from now on
  kAdopt,    ///< the new program serves: it is the program from now on
  kDiscard,  ///< give up the new program
  kGoBack,   ///< the new program has served and crashes: the earlier one is the program again
  kEnd,      ///< end the process, with exit_code()
};

/// How a worker ended, in the core's terms.
enum class Outcome { kEnded, kFirstFailed, kHandedOver, kNewFailed, kCrashed, kRefusedByHost };

/// The decisions of one supervisor. Its owner tells it what happened and does what next() says.
/// Needs external synchronisation.
class Core {
 public:
  explicit Core(const Limits& limits) : limits_(limits) {}

  // ---- what happened
  void started(Time now);
  void start_failed(Time now);
  /// `status` is that of wait(2). `ours` says that the process was a worker (it has said so) and not just any program.
  Outcome ended(Time now, int status, bool ours, const Signs& signs);
  /// Asks for an upgrade to a new program. Returns false when that is not possible now.
  [[nodiscard]] bool asked_to_upgrade(Time now, const Signs& signs);
  /// Notes a SIGTERM or SIGINT, which the worker gets as well.
  void asked_to_stop(Time now);
  /// Notes that the kernel has ended the session, as the responder observed.
  void session_ended();

  // ---- what to do
  /// Returns the next action; to be asked until it is kNothing.
  [[nodiscard]] Action next(Time now, const Signs& signs);
  /// Returns for how long no action can become due without an event.
  [[nodiscard]] Time rest(Time now) const;
  /// Returns for how long no worker is started.
  [[nodiscard]] Time rest_of_pause(Time now) const { return start_at_ > now ? start_at_ - now : 0; }

  [[nodiscard]] bool alive() const { return phase_ != Phase::kDown; }
  /// Says whether the worker was killed and has not ended since: it waits in the kernel, for a disk as a rule.
  [[nodiscard]] bool is_held() const { return alive() && held_; }
  [[nodiscard]] bool trying_new() const { return trying_new_; }
  /// Says whether no worker can start, so that the supervisor answers the kernel itself.
  [[nodiscard]] bool responding() const { return responding_; }
  [[nodiscard]] bool safe_mode() const { return safe_mode_; }
  [[nodiscard]] unsigned stops() const { return stops_; }
  [[nodiscard]] int exit_code() const { return exit_code_; }

  // ---- for the page
  [[nodiscard]] uint32_t restarts() const { return restarts_; }
  [[nodiscard]] uint32_t upgrades() const { return upgrades_; }
  [[nodiscard]] uint32_t upgrades_failed() const { return upgrades_failed_; }
  [[nodiscard]] uint32_t upgrades_taken_back() const { return upgrades_taken_back_; }
  [[nodiscard]] int last_status() const { return last_status_; }
  [[nodiscard]] bool last_was_hung() const { return last_was_hung_; }
  [[nodiscard]] Time last_crash() const { return last_crash_; }

  /// A worker that lived for this long after it began to serve is no part of a series of failures.
  static constexpr Time kHealthy = 100;
  static constexpr Time kFirstPause = 100;
  static constexpr Time kLongestPause = 5'000;
  static constexpr Time kCrashWindow = 60'000;
  /// This many crashes within kCrashWindow take an upgrade back; as many as lead to safe mode if that is fewer.
  static constexpr size_t kCrashesOfNew = 3;
  /// A program that begins to crash later than this after its upgrade does not crash because of the upgrade.
  static constexpr Time kProbation = 600'000;
  static constexpr Time kSafeModeLeast = 600'000;  ///< time without a crash after which a restart leaves safe mode
  static constexpr unsigned kFailuresUntilResponder = 3;
  static constexpr Time kRetryWhileResponding = 30'000;
  static constexpr Time kDeathPatience = 3'000;  ///< from the kill of a worker until it counts as held
  static constexpr Time kRetryOfHost = 2'000;    ///< after a worker that the host did not let take over
  /// The process that asked for the first start normally ends it; this limit is for the case that it does not.
  static constexpr Time kFirstStartGrace = 15'000;

 private:
  enum class Phase { kDown, kStarting, kServing };

  void look(Time now, const Signs& signs);
  [[nodiscard]] Action next_of_killed(Time now);
  void finish(int code);
  Outcome crashed(Time now, bool healthy);
  Outcome refused_by_host(Time now);
  void end_if_stopped(Time now);
  void note_crash(Time now);
  [[nodiscard]] bool is_fault_of_upgrade(Time now) const;
  void go_back(Time now);
  void discount_freeze(Time now, const Signs& signs);
  [[nodiscard]] Time beat_rest() const;

  Limits limits_;
  Phase phase_ = Phase::kDown;
  bool ended_ = false;
  int exit_code_ = 0;
  Time start_at_ = 0;
  Time deadline_ = 0;      ///< of the start, or of handing over; 0: none
  Time looked_at_ = 0;     ///< when the signs were last read
  Time silent_since_ = 0;  ///< the last sign of life, later by the time in which we did not run ourselves
  bool ever_served_ = false;
  bool killed_ = false;  ///< the supervisor has killed the current worker
  Time killed_at_ = 0;
  bool held_ = false;
  bool handing_over_ = false;
  bool trying_new_ = false;
  bool adopt_ = false;
  bool discard_ = false;
  bool go_back_ = false;
  bool has_earlier_ = false;  ///< another program served before the current one, which replaced it by an upgrade
  Time adopted_ = 0;          ///< when the current program began to serve
  bool responding_ = false;
  bool safe_mode_ = false;
  unsigned stops_ = 0;
  unsigned failures_ = 0;          ///< workers in a row that were not healthy
  unsigned refusals_ = 0;          ///< workers in a row that the host did not let take over
  unsigned failures_in_safe_ = 0;  ///< those of them that started in safe mode
  bool started_safe_ = false;

  std::array<Time, kCrashLimit> crashes_{};
  size_t crash_count_ = 0;
  uint32_t restarts_ = 0;
  uint32_t upgrades_ = 0;
  uint32_t upgrades_failed_ = 0;
  uint32_t upgrades_taken_back_ = 0;
  int last_status_ = 0;
  bool last_was_hung_ = false;
  Time last_crash_ = 0;
};

}  // namespace inductorfs::supervisor
