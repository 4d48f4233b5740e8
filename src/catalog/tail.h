// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backoff.h"
#include "parts.h"

namespace inductorfs::catalog {

/// Follows the log of every scope: memory first, then listeners, then the database. Safe for concurrent use, except
/// that run() is called once.
class Tail {
 public:
  Tail(Parts& parts, std::map<remote::ScopeId, remote::Position> positions);

  /// The catalog-tail thread; returns when parts.stopping is set and stop() was called.
  void run();
  void stop();

  [[nodiscard]] bool wait_synced(Deadline deadline);
  [[nodiscard]] bool synced() const;
  /// How far memory is at least.
  [[nodiscard]] remote::Position position(const remote::ScopeId& scope) const;

 private:
  /// Confined to the catalog-tail thread.
  struct Followed {
    remote::ScopeId id;
    Tree::ScopeIndex index = 0;
    remote::Position position;
    bool synced = false;
    bool failing = false;
    bool durable = true;  ///< false after a failed write: the position on disk must not move past what is missing
    Backoff backoff;
    SteadyTime due{};
    Milliseconds patience{};
  };
  struct State {
    std::map<remote::ScopeId, remote::Position> positions;
    bool synced = false;
    bool stopping = false;
  };

  void read_to_end(Followed& scope);
  void failed(Followed& scope, const Error& error);
  void succeeded(Followed& scope);
  void rest();
  void pause_until(SteadyTime when);
  void note_synced();

  void apply(Followed& scope, remote::Delta delta);
  [[nodiscard]] std::vector<codec::Entry> acceptable(const Followed& scope, std::vector<codec::Entry> entries);
  [[nodiscard]] std::vector<std::string> stale_after(const Followed& scope, const std::vector<codec::Entry>& snapshot);
  void remove_from_memory(const Followed& scope, const std::vector<std::string>& paths);
  void set_in_memory(const Followed& scope, std::vector<codec::Entry>& entries);
  void write_down(Followed& scope, const remote::Delta& delta);
  [[nodiscard]] bool forget_on_disk(const Followed& scope);
  void forget_dropped_marks();
  void tell(std::vector<std::string>& changed);

  Parts& parts_;
  std::vector<Followed> followed_;
  Backoff wait_backoff_;
  Guarded<State> state_;
};

}  // namespace inductorfs::catalog
