// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <random>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"

namespace inductorfs::remote {

/// Keeps callers from waiting for a server that has just failed. A failure opens the breaker for a time that doubles
/// with each further failure, with jitter so that a cluster's mounts do not come back in step. Then one caller is let
/// through as the probe, and its outcome decides. Safe for concurrent use.
class Breaker {
 public:
  struct Waits {
    Milliseconds first{100};
    Milliseconds most{10000};
    /// The longest time after refusals, which cost neither side anything, so that the server is probed more often.
    Milliseconds most_refused{2000};
  };
  /// How a call failed: the server (or its host) refused it, the caller waited in vain, or did so for a moment only.
  enum class Failure { kRefused, kSilent, kHasty };
  enum class Ticket { kRefused, kNormal, kProbe };

  explicit Breaker(Waits waits) : waits_(waits), state_(State{}) {}

  /// Lets a caller through, or refuses. A ticket that is not refused must be given back by exactly one of the three
  /// below. `patient`: a busy server that answers too late for the hasty may answer him, so their failures do not make
  /// him wait. Else lookups, of which there are always some, would keep all publishes from it.
  [[nodiscard]] Ticket admit(SteadyTime now, bool patient = false);
  void succeeded(Ticket ticket);
  /// Returns true when this opened the breaker, or kept it open.
  bool failed(Ticket ticket, SteadyTime now, Failure failure = Failure::kSilent);
  /// Gives a ticket back for a call that says nothing about the server.
  void abandoned(Ticket ticket);

  /// Says whether a caller would be refused now.
  [[nodiscard]] bool refuses(SteadyTime now) const {
    return state_.with([&](const State& state) { return refuses(state, now); });
  }
  [[nodiscard]] bool open() const {
    return state_.with([](const State& state) { return state.open; });
  }

 private:
  struct State {
    bool open = false;
    bool hasty = false;  ///< only hasty callers have failed since it was closed
    bool probing = false;
    SteadyTime retry_at{};
    Milliseconds delay{0};
    std::minstd_rand random{std::random_device{}()};
  };
  static bool refuses(const State& state, SteadyTime now) {
    return state.open && (state.probing || now < state.retry_at);
  }
  const Waits waits_;
  Guarded<State> state_;
};

}  // namespace inductorfs::remote
