// SPDX-License-Identifier: Apache-2.0
#include "core.h"

#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "inductorfs/supervisor/protocol.h"

namespace inductorfs::supervisor {
namespace {

/// While something may come soon that no descriptor tells of: that a worker serves.
constexpr Time kSoon = 100;
constexpr Time kLongest = 5'000;
constexpr int kSignalBase = 128;
/// Without safe mode as a step in between.
constexpr unsigned kFailuresUntilResponderAtOnce = 8;
/// A stop is not put off for ever by workers that cannot start.
constexpr unsigned kFailuresWhileStopping = 2;

}  // namespace

void Core::finish(int code) {
  ended_ = true;
  exit_code_ = code;
}

void Core::started(Time now) {
  phase_ = Phase::kStarting;
  killed_ = held_ = false;
  handing_over_ = false;
  const Time patience = trying_new_ ? limits_.upgrade : limits_.start + (ever_served_ ? 0 : kFirstStartGrace);
  deadline_ = now + patience;
  looked_at_ = now;
  silent_since_ = now;
}

void Core::start_failed(Time now) { start_at_ = now + kFirstPause; }

void Core::look(Time now, const Signs& signs) {
  if (phase_ != Phase::kStarting || signs.serving == 0) return;
  phase_ = Phase::kServing;
  deadline_ = 0;
  ever_served_ = true;
  responding_ = false;
  refusals_ = 0;
  if (!std::exchange(trying_new_, false)) return;
  adopt_ = has_earlier_ = true;
  adopted_ = now;
}

bool Core::asked_to_upgrade(Time now, const Signs& signs) {
  look(now, signs);
  if (phase_ != Phase::kServing || handing_over_ || trying_new_ || stops_ > 0) return false;
  handing_over_ = true;
  deadline_ = now + limits_.drain;
  return true;
}

void Core::asked_to_stop(Time now) {
  ++stops_;
  failures_ = 0;
  start_at_ = std::min(start_at_, now);
}

void Core::session_ended() { finish(0); }

Outcome Core::ended(Time now, int status, bool ours, const Signs& signs) {
  look(now, signs);  // it may have ended before anybody saw that it served
  const bool served = phase_ == Phase::kServing;
  const bool handed_over = handing_over_;
  phase_ = Phase::kDown;
  start_at_ = now;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && ours) {
    finish(0);
    return Outcome::kEnded;
  }
  if (!ever_served_) {
    finish(WIFSIGNALED(status) ? kSignalBase + WTERMSIG(status) : WEXITSTATUS(status));
    return Outcome::kFirstFailed;
  }
  if (handed_over) {
    // Also when it crashed on the way: the next one takes over either way, and it shall be the new program.
    handing_over_ = false;
    trying_new_ = true;
    ++upgrades_;
    safe_mode_ = false;
    failures_ = failures_in_safe_ = 0;
    crash_count_ = 0;
    return Outcome::kHandedOver;
  }
  if (trying_new_) {
    trying_new_ = false;
    discard_ = true;
    ++upgrades_failed_;
    return Outcome::kNewFailed;
  }
  ++restarts_;
  last_status_ = status;
  last_was_hung_ = killed_;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kExitHost) return refused_by_host(now);
  return crashed(now, served && now - signs.serving >= kHealthy);
}

/// No program is at fault, and the next one serves with the remote.
Outcome Core::refused_by_host(Time now) {
  ++refusals_;
  responding_ = responding_ || refusals_ >= kFailuresUntilResponder;
  start_at_ = now + (refusals_ == 1 ? 0 : kRetryOfHost);
  end_if_stopped(now);
  return Outcome::kRefusedByHost;
}

Outcome Core::crashed(Time now, bool healthy) {
  note_crash(now);
  if (is_fault_of_upgrade(now)) {
    go_back(now);
    return Outcome::kCrashed;
  }
  if (limits_.crashes > 0 && crash_count_ >= limits_.crashes) safe_mode_ = true;
  failures_ = healthy ? 0 : failures_ + 1;
  failures_in_safe_ = healthy || !started_safe_ ? 0 : failures_in_safe_ + 1;
  if (failures_ > 1) {
    const unsigned doublings = std::min(failures_ - 2, 16U);
    start_at_ = now + std::min(kFirstPause << doublings, kLongestPause);
  }
  const bool hopeless = failures_in_safe_ >= kFailuresUntilResponder ||
                        (limits_.crashes == 0 && failures_ >= kFailuresUntilResponderAtOnce);
  if (hopeless) {
    responding_ = true;
    start_at_ = now + kRetryWhileResponding;
  }
  end_if_stopped(now);
  return Outcome::kCrashed;
}

void Core::end_if_stopped(Time now) {
  if (stops_ == 0) return;
  start_at_ = now;
  if (failures_ + refusals_ < kFailuresWhileStopping) return;
  finish(1);
}

void Core::note_crash(Time now) {
  last_crash_ = now;
  const auto old = [&](Time at) { return now - at >= kCrashWindow; };
  auto* const end = std::remove_if(crashes_.begin(), crashes_.begin() + crash_count_, old);
  crash_count_ = static_cast<size_t>(end - crashes_.begin());
  if (crash_count_ < crashes_.size()) crashes_[crash_count_++] = now;
}

bool Core::is_fault_of_upgrade(Time now) const {
  const size_t most = limits_.crashes > 0 ? std::min<size_t>(kCrashesOfNew, limits_.crashes) : kCrashesOfNew;
  return has_earlier_ && stops_ == 0 && now - adopted_ < kProbation && crash_count_ >= most;
}

/// The earlier program begins as a fresh one does: the crashes were not its own.
void Core::go_back(Time now) {
  go_back_ = true;
  has_earlier_ = false;
  ++upgrades_taken_back_;
  crash_count_ = 0;
  failures_ = failures_in_safe_ = 0;
  responding_ = false;
  start_at_ = now;
}

/// A host or a container that was frozen stood still for the worker, too: the time of a look that is late by more than
/// a rest counts neither as silence nor for a deadline.
void Core::discount_freeze(Time now, const Signs& signs) {
  silent_since_ = std::max({silent_since_, signs.beat, signs.serving});
  const Time frozen = now - looked_at_ > 2 * beat_rest() ? now - looked_at_ : 0;
  looked_at_ = now;
  silent_since_ = std::min(silent_since_ + frozen, now);
  if (deadline_ != 0) deadline_ += frozen;
}

Action Core::next(Time now, const Signs& signs) {
  if (phase_ != Phase::kDown) discount_freeze(now, signs);
  look(now, signs);
  if (adopt_ || discard_) {
    const bool adopt = adopt_;
    adopt_ = discard_ = false;
    return adopt ? Action::kAdopt : Action::kDiscard;
  }
  if (std::exchange(go_back_, false)) return Action::kGoBack;
  if (phase_ == Phase::kDown) {
    if (ended_) return Action::kEnd;
    if (now < start_at_) return Action::kNothing;
    if (safe_mode_ && now - last_crash_ >= kSafeModeLeast) {
      safe_mode_ = false;
      crash_count_ = 0;
    }
    started_safe_ = safe_mode_;
    return Action::kStart;
  }
  if (killed_) return next_of_killed(now);
  const bool late = ended_ || (deadline_ != 0 && now >= deadline_);
  const bool is_hung = phase_ == Phase::kServing && limits_.hang != 0 && now - silent_since_ > limits_.hang;
  if (!late && !is_hung) return Action::kNothing;
  killed_ = true;
  killed_at_ = now;
  return Action::kKill;
}

/// It may take a while: a process in the kernel's hands dies when they let go. The mount's end waits for it no longer
/// than anybody else.
Action Core::next_of_killed(Time now) {
  if (now - killed_at_ < kDeathPatience) return Action::kNothing;
  if (!std::exchange(held_, true)) return Action::kHeld;
  if (!ended_ && stops_ == 0) return Action::kNothing;
  if (!ended_) finish(1);
  return Action::kEnd;
}

Time Core::beat_rest() const { return limits_.hang == 0 ? kLongest : std::clamp<Time>(limits_.hang / 4, 1, kLongest); }

Time Core::rest(Time now) const {
  if (phase_ == Phase::kDown) return std::clamp<Time>(start_at_ - now, 0, kLongest);
  if (killed_) return held_ ? kLongest : std::clamp<Time>(killed_at_ + kDeathPatience - now, 0, kLongest);
  if (phase_ == Phase::kStarting) return kSoon;
  return deadline_ == 0 ? beat_rest() : std::clamp<Time>(deadline_ - now, 0, beat_rest());
}

}  // namespace inductorfs::supervisor
