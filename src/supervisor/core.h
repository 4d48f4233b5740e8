// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

/// What a supervisor does when: no system call and no memory, so that every case can be tried.
namespace inductorfs::supervisor {

/// Milliseconds of CLOCK_MONOTONIC.
using Time = int64_t;

struct Limits {
  Time hang = 15'000;     ///< without a sign of life; 0: never
  Time start = 60'000;    ///< from a worker's start until it serves
  Time upgrade = 10'000;  ///< the same for a new program, which else is given up
  Time drain = 10'000;    ///< for a worker that hands over
  unsigned crashes = 5;   ///< within a minute: safe mode; 0: never
};
/// Most that `crashes` can be.
inline constexpr size_t kCrashLimit = 64;

/// How the worker of now says it is. 0: not yet.
struct Signs {
  Time beat = 0;
  Time serving = 0;
};

enum class Action {
  kNothing,
  kStart,    ///< a worker, from the new program when trying_new() says so; then started() or start_failed()
  kKill,     ///< the worker
  kAdopt,    ///< the new program serves: it is the program from now on
  kDiscard,  ///< the new program is given up
  kGoBack,   ///< the new program has served and crashes: the one before is the program again
  kEnd,      ///< the process, with exit_code()
};

/// How a worker ended, in the core's terms.
enum class Outcome { kEnded, kFirstFailed, kHandedOver, kNewFailed, kCrashed };

/// Decides. Needs external synchronisation.
class Core {
 public:
  explicit Core(const Limits& limits) : limits_(limits) {}

  // ---- what happened
  void started(Time now);
  void start_failed(Time now);
  /// `status`: as wait(2) gives it. `ours`: the process was a worker (it has said so), not just any program.
  Outcome ended(Time now, int status, bool ours, const Signs& signs);
  /// Somebody wants a new program. False: not now.
  [[nodiscard]] bool asked_to_upgrade(Time now, const Signs& signs);
  /// SIGTERM or SIGINT, which the worker gets as well.
  void asked_to_stop(Time now);
  /// The kernel has ended the session, as the responder saw.
  void session_ended();

  // ---- what to do
  /// The next thing to do; to be asked until it is nothing.
  [[nodiscard]] Action next(Time now, const Signs& signs);
  /// How long nothing can come up by itself.
  [[nodiscard]] Time rest(Time now) const;

  [[nodiscard]] bool alive() const { return phase_ != Phase::kDown; }
  [[nodiscard]] bool trying_new() const { return trying_new_; }
  /// No worker can start: the supervisor answers for them.
  [[nodiscard]] bool responding() const { return responding_; }
  [[nodiscard]] bool safe_mode() const { return safe_mode_; }
  [[nodiscard]] unsigned stops() const { return stops_; }
  /// A stop was asked for and no worker is left that could unmount.
  [[nodiscard]] bool leaves_mount() const { return leaves_mount_; }
  [[nodiscard]] int exit_code() const { return exit_code_; }

  // ---- for the page
  [[nodiscard]] uint32_t restarts() const { return restarts_; }
  [[nodiscard]] uint32_t upgrades() const { return upgrades_; }
  [[nodiscard]] uint32_t upgrades_failed() const { return upgrades_failed_; }
  [[nodiscard]] uint32_t upgrades_taken_back() const { return upgrades_taken_back_; }
  [[nodiscard]] int last_status() const { return last_status_; }
  [[nodiscard]] bool last_was_hung() const { return last_was_hung_; }
  [[nodiscard]] Time last_crash() const { return last_crash_; }

  /// A worker that lived so long after it began to serve is no part of a series of failures.
  static constexpr Time kHealthy = 100;
  static constexpr Time kFirstPause = 100;
  static constexpr Time kLongestPause = 5'000;
  static constexpr Time kCrashWindow = 60'000;
  /// Crashes within kCrashWindow that take an upgrade back, or as many as lead to safe mode when that is fewer.
  static constexpr size_t kCrashesOfNew = 3;
  /// What begins to crash later than this was no fault of the upgrade.
  static constexpr Time kProbation = 600'000;
  static constexpr Time kSafeModeLeast = 600'000;  ///< without a crash, before a restart leaves it
  static constexpr unsigned kFailuresUntilResponder = 3;
  static constexpr Time kRetryWhileResponding = 30'000;
  /// Whoever asked for the first start ends it itself; this is for the case that nobody does.
  static constexpr Time kFirstStartGrace = 15'000;

 private:
  enum class Phase { kDown, kStarting, kServing };

  void look(Time now, const Signs& signs);
  void finish(int code);
  Outcome crashed(Time now, int status, bool healthy);
  void note_crash(Time now);
  [[nodiscard]] bool is_fault_of_upgrade(Time now) const;
  void go_back(Time now);
  [[nodiscard]] bool is_hung(Time now, const Signs& signs);

  Limits limits_;
  Phase phase_ = Phase::kDown;
  bool ended_ = false;
  int exit_code_ = 0;
  Time start_at_ = 0;
  Time deadline_ = 0;   ///< of the start, or of handing over (0: none)
  Time looked_at_ = 0;  ///< when the signs were looked at last
  Time forgiven_ = 0;   ///< silence before this does not count
  bool ever_served_ = false;
  bool killed_ = false;  ///< the worker of now, by us
  bool handing_over_ = false;
  bool trying_new_ = false;
  bool adopt_ = false;
  bool discard_ = false;
  bool go_back_ = false;
  bool has_earlier_ = false;  ///< a program served before the one of now, and was replaced by an upgrade
  Time adopted_ = 0;          ///< when the one of now began to serve
  bool responding_ = false;
  bool safe_mode_ = false;
  bool leaves_mount_ = false;
  unsigned stops_ = 0;
  unsigned failures_ = 0;          ///< workers in a row that were not healthy
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
