// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backoff.h"
#include "parts.h"

namespace inductorfs::catalog {

/// Follows the log of every scope: memory first, then listeners, then the database. Safe for concurrent use, except
/// that run() is called once.
class Tail {
 public:
  /// Scopes that are not followed any more but of which the disk keeps what is known, as long as all their entries
  /// together are not more than may be in memory.
  static constexpr size_t kScopesKept = 16;

  /// How long a read may take at first.
  static constexpr Milliseconds kReadPatience{2'000};

  Tail(Parts& parts, std::map<ScopeIndex, remote::Position> positions);

  /// The catalog-tail thread; returns when parts.stopping is set and stop() was called.
  void run();
  void stop();

  /// Takes what is no longer followed out of sight and out of memory, on the caller's thread: it must not wait for a
  /// cluster that does not answer. The rest is left to the catalog-tail thread, which is told at once.
  void follow(const std::vector<remote::ScopeId>& scopes);

  [[nodiscard]] bool wait_synced(Deadline deadline);
  [[nodiscard]] bool synced() const;
  /// How far memory is at least.
  [[nodiscard]] remote::Position position(ScopeIndex scope) const;

 private:
  /// Confined to the catalog-tail thread.
  struct Followed {
    remote::ScopeId id;
    ScopeIndex index = 0;
    remote::Position position;
    bool synced = false;
    bool failing = false;
    bool durable = true;    ///< false after a failed write: the position on disk must not move past what is missing
    bool whole = true;      ///< false when something was refused that another day might be accepted
    bool stale = true;      ///< there may be something to read
    bool named = false;     ///< the cluster has said so
    int named_in_vain = 0;  ///< how often in a row it had said so, and there was nothing
    Backoff backoff;
    SteadyTime due{};
    SteadyTime read_anyway{};
    Milliseconds patience{};
  };
  struct State {
    std::map<ScopeIndex, remote::Position> positions;
    std::optional<std::vector<FollowedScope>> wanted;  ///< until the thread has taken it
    uint64_t version = 0;                              ///< of what is wanted
    bool synced = false;
    bool stopping = false;
  };

  // ---- scopes that come and go (follow.cc)
  void take_up_wanted();
  [[nodiscard]] Followed begin(const FollowedScope& scope);
  void end(const Followed& scope);
  void forget_old_scopes();
  [[nodiscard]] Result<void> forget_beyond_limits();
  /// There is something more urgent than what the cluster has to say.
  [[nodiscard]] bool disturbed() const { return parts_.stopping || wanted_version_ != version_; }

  void read_to_end(Followed& scope);
  void failed(Followed& scope, const Error& error);
  void succeeded(Followed& scope);
  void rest();
  void pause_until(SteadyTime when);
  void note_synced();

  /// False when the scope is no longer followed.
  [[nodiscard]] bool apply(Followed& scope, remote::Delta delta);
  [[nodiscard]] std::vector<codec::Entry> acceptable(Followed& scope, std::vector<codec::Entry> entries);
  [[nodiscard]] std::vector<std::string> stale_after(const Followed& scope, const std::vector<codec::Entry>& snapshot);
  void remove_from_memory(ScopeIndex scope, const std::vector<std::string>& paths);
  /// False when the scope is no longer followed.
  [[nodiscard]] bool set_in_memory(Followed& scope, std::vector<codec::Entry>& entries);
  void write_down(Followed& scope, const remote::Delta& delta);
  [[nodiscard]] bool forget_on_disk(const remote::ScopeId& scope);
  void forget_dropped_marks();
  void tell(std::vector<std::string>& changed);

  Parts& parts_;
  CancellableRemote remote_;
  std::vector<Followed> followed_;     ///< confined to the catalog-tail thread
  std::atomic<uint64_t> version_ = 0;  ///< of `followed_`
  std::atomic<uint64_t> wanted_version_ = 0;
  bool untidy_ = true;  ///< confined to the catalog-tail thread
  bool hurry_ = false;  ///< likewise; no pause before the next wait
  Backoff wait_backoff_;
  Guarded<State> state_;
};

}  // namespace inductorfs::catalog
