// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "parts.h"

namespace inductorfs::catalog {

/// Lets the indices of the followed scopes be swept (remote::Remote::sweep). Every mount asks now and then; the cluster
/// lets one of them do it. Confined to the catalog-sweep thread, except want() and stop().
class Sweeper {
 public:
  explicit Sweeper(Parts& parts) : parts_(parts), remote_(parts.remote, [this] { return parts_.stopping.load(); }) {}

  /// Runs the catalog-sweep thread; returns when parts.stopping is set and stop() was called.
  void run();
  void stop();
  /// Asks for a sweep of a scope that a publish found full.
  void want(const remote::ScopeId& scope);

 private:
  struct State {
    bool stopping = false;
    std::set<remote::ScopeId> wanted;
  };
  void sweep(const remote::ScopeId& scope, bool wanted);

  Parts& parts_;
  CancellableRemote remote_;
  Guarded<State> state_;
};

}  // namespace inductorfs::catalog
