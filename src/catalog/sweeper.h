// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <set>

#include "catalog/gatherer.h"
#include "catalog/parts.h"
#include "inductorfs/base/guarded.h"

namespace inductorfs::catalog {

/// Keeps house in the cluster: lets the indices of the followed scopes be swept (remote::Index::sweep), for which
/// every mount asks at times and which the cluster lets one of them do, and what this host has published be gathered
/// (Gatherer). Confined to the catalog-sweep thread, except want(), gather() and stop().
class Sweeper {
 public:
  explicit Sweeper(Parts& parts)
      : parts_(parts), index_(parts.index.index_until([this] { return parts_.stopping.load(); })), gatherer_(parts) {}

  /// Runs the catalog-sweep thread; returns when parts.stopping is set and stop() was called.
  void run();
  void stop();
  /// Asks for a sweep of a scope that a publish found full.
  void want(const remote::ScopeId& scope);
  /// Asks that the artefacts of a start be gathered. Of many starts at once the first kMostStarts are.
  void gather(Gatherer::Start start);

 private:
  static constexpr size_t kMostStarts = 64;
  struct State {
    bool stopping = false;
    std::set<remote::ScopeId> wanted;
    std::deque<Gatherer::Start> starts;
  };
  void sweep(const remote::ScopeId& scope, bool wanted);

  Parts& parts_;
  const std::shared_ptr<remote::Index> index_;
  Gatherer gatherer_;
  Guarded<State> state_;
};

}  // namespace inductorfs::catalog
