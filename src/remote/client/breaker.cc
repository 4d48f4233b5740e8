// SPDX-License-Identifier: Apache-2.0
#include "remote/client/breaker.h"

#include <algorithm>

namespace inductorfs::remote {

Breaker::Ticket Breaker::admit(SteadyTime now, bool patient) {
  return state_.with([&](State& state) {
    const bool is_free = !state.open || (patient && state.hasty);
    if (!is_free && refuses(state, now)) return Ticket::kRefused;
    if (!state.open || state.probing) return Ticket::kNormal;
    state.probing = true;
    return Ticket::kProbe;
  });
}

void Breaker::succeeded(Ticket ticket) {
  state_.with([&](State& state) {
    // A call from before the failure that ends well proves nothing about now; only the probe may close.
    if (ticket == Ticket::kNormal && state.open) return;
    state.open = false;
    state.hasty = false;
    state.probing = false;
    state.delay = Milliseconds(0);
  });
}

bool Breaker::failed(Ticket ticket, SteadyTime now, Failure failure) {
  return state_.with([&](State& state) {
    // Calls that were under way together fail together: that is one failure.
    state.hasty = failure == Failure::kHasty && (state.hasty || !state.open);
    if (ticket == Ticket::kNormal && state.open) return false;
    state.open = true;
    state.probing = false;
    const Milliseconds most = failure == Failure::kRefused ? waits_.most_refused : waits_.most;
    state.delay = std::clamp(state.delay * 2, waits_.first, std::max(waits_.first, most));
    std::uniform_int_distribution<Milliseconds::rep> jitter(state.delay.count() / 2, state.delay.count());
    state.retry_at = now + Milliseconds(jitter(state.random));
    return true;
  });
}

void Breaker::abandoned(Ticket ticket) {
  if (ticket != Ticket::kProbe) return;
  state_.with([](State& state) { state.probing = false; });
}

}  // namespace inductorfs::remote
