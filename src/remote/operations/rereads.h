// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/remote/index.h"

namespace inductorfs::remote {

/// Which scopes a follower has to read anew, because it skipped a record of their log that only another release reads,
/// or could not read an entry of their index. Such records may come as fast as newer mounts publish, and an index may
/// hold millions of entries: a scope is read anew at most once per interval. Safe for concurrent use.
class Rereads {
 public:
  static constexpr Milliseconds kInterval{60'000};

  /// A record of the scope was skipped, or the scope could not be read anew.
  void owe(const ScopeId& scope) {
    state_.with([&](State& state) { of(state, scope).owed = true; });
  }
  /// The whole index was read. `unreadable` tells the entries that could not be from others; 0: none. A bit that
  /// flipped on the way looks like damage, or like a newer release's entry: what the reading before did not find is
  /// asked for once more. Returns whether it found the same `damaged` ones among them; newer ones come and go.
  bool note_whole(const ScopeId& scope, uint64_t unreadable, uint64_t damaged) {
    return state_.with([&](State& state) {
      if (unreadable == 0 && !state.contains(scope)) return true;
      Reread& one = of(state, scope);
      const bool is_same = std::exchange(one.unreadable, unreadable) == unreadable;
      one.owed = one.owed || (!is_same && unreadable != 0);
      return std::exchange(one.damaged, damaged) == damaged;
    });
  }
  /// Whether the scope is to be read anew now. The caller does so, or calls owe() again.
  [[nodiscard]] bool claim(const ScopeId& scope, SteadyTime now) {
    return state_.with([&](State& state) {
      const auto known = state.find(scope);
      if (known == state.end() || !known->second.owed || now < known->second.next) return false;
      known->second.owed = false;
      known->second.next = now + kInterval;
      return true;
    });
  }

 private:
  static constexpr size_t kLimit = 256;
  struct Reread {
    bool owed = false;
    SteadyTime next{};
    uint64_t unreadable = 0;
    uint64_t damaged = 0;
  };
  using State = std::map<ScopeId, Reread>;
  static Reread& of(State& state, const ScopeId& scope) {
    if (state.size() >= kLimit && !state.contains(scope)) state.clear();  // a mount follows some tens of scopes
    return state[scope];
  }

  Guarded<State> state_;
};

}  // namespace inductorfs::remote
