// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/remote/index.h"

namespace inductorfs::remote {

/// Which scopes a follower has to read anew, because it skipped a record of their log that only another release reads.
/// Such records may come as fast as newer mounts publish, and an index may hold millions of entries: a scope is read
/// anew at most once per interval. Safe for concurrent use.
class Rereads {
 public:
  static constexpr Milliseconds kInterval{60'000};

  /// A record of the scope was skipped, or the scope could not be read anew.
  void owe(const ScopeId& scope) {
    state_.with([&](State& state) {
      if (state.size() >= kLimit && !state.contains(scope)) state.clear();  // a mount follows some tens of scopes
      state[scope].owed = true;
    });
  }
  /// Whether the scope is to be read anew now. The caller does so, or calls owe() again.
  [[nodiscard]] bool claim(const ScopeId& scope, SteadyTime now) {
    return state_.with([&](State& state) {
      const auto known = state.find(scope);
      if (known == state.end() || !known->second.owed || now < known->second.next) return false;
      known->second = {false, now + kInterval};
      return true;
    });
  }

 private:
  static constexpr size_t kLimit = 256;
  struct Reread {
    bool owed = false;
    SteadyTime next{};
  };
  using State = std::map<ScopeId, Reread>;
  Guarded<State> state_;
};

}  // namespace inductorfs::remote
