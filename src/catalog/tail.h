// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "catalog/backoff.h"
#include "catalog/disk_writer.h"
#include "catalog/parts.h"

namespace inductorfs::catalog {

/// Follows the log of every scope. Each change goes first to memory, then to the listeners, then to the database; a
/// snapshot goes there from memory, after all scopes were read, so that no scope waits for the disk of another. run()
/// blocks on the cluster and the local disk and is called once; everything else is safe for concurrent use.
class Tail {
 public:
  /// The longest that a read may take at first.
  static constexpr Milliseconds kReadPatience{15'000};

  Tail(Parts& parts, std::map<ScopeIndex, remote::Position> positions);

  /// Runs the catalog-tail thread; returns when parts.stopping is set and stop() was called.
  void run();
  void stop();

  /// Removes scopes that are no longer followed from sight and, but for what is still to be written down, from memory,
  /// on the caller's thread, which must not wait for a cluster that does not answer. The rest is left to the
  /// catalog-tail thread, which is told at once.
  void follow(const std::vector<remote::ScopeId>& scopes);

  /// Takes up what follow() has noted: confined to the catalog-tail thread, or to the time before there is one.
  void take_up_wanted();

  [[nodiscard]] bool wait_synced(Deadline deadline);
  [[nodiscard]] bool synced() const;
  /// Catalog::lost_tails()
  [[nodiscard]] uint64_t lost_tails() const;
  /// As in Catalog.
  uint64_t read_again();
  [[nodiscard]] Result<void> wait_read_again(uint64_t ticket, Deadline deadline);
  /// CatalogStatus::unread.
  [[nodiscard]] std::map<remote::ScopeId, std::string> unread() const {
    return state_.with([](const State& state) { return state.unread; });
  }
  /// Returns a position that memory has reached at least.
  [[nodiscard]] remote::Position position(ScopeIndex scope) const;

 private:
  /// Confined to the catalog-tail thread.
  struct Followed : FollowedScope {
    explicit Followed(const FollowedScope& scope) : FollowedScope(scope) {}

    remote::Position position;
    bool synced = false;
    bool failing = false;
    bool is_away = false;    ///< it failed because the server did not answer
    bool unwritten = false;  ///< a snapshot and what came after it are in memory alone
    bool whole = true;       ///< false when an entry was refused that may be accepted another day
    bool stale = true;       ///< there may be something to read
    bool named = false;      ///< the cluster has said that there is something to read
    int named_in_vain = 0;   ///< how often in a row the cluster said so, and there was nothing
    Backoff backoff;
    SteadyTime due{};
    SteadyTime read_anyway{};
    Milliseconds patience = kReadPatience;
  };
  struct State {
    std::map<ScopeIndex, remote::Position> positions;
    std::optional<std::vector<FollowedScope>> wanted;  ///< until the thread has taken it
    uint64_t version = 0;                              ///< of `wanted`
    bool synced = false;
    bool stopping = false;
    uint64_t asked = 0;                             ///< how often read_again() was called
    uint64_t answered = 0;                          ///< the last of these calls after which all was read
    uint64_t resets = 0;                            ///< histories that began anew below what was known
    std::map<remote::ScopeId, std::string> unread;  ///< why followed scopes cannot be read, although the server answers
    std::set<ScopeIndex> unwritten;  ///< those whose snapshots are in memory alone, or on their way there
    std::set<ScopeIndex> left;       ///< no longer followed, but unwritten: the thread removes them from memory then
  };

  // ---- scopes that come and go (follow.cc)
  [[nodiscard]] Followed begin(const FollowedScope& scope);
  void end(Followed& scope);
  void forget_old_scopes();
  /// Says that something is more urgent than what the cluster has to say.
  [[nodiscard]] bool disturbed() const {
    return parts_.stopping || wanted_version_ != version_ || parts_.index.server_changes() != server_;
  }
  [[nodiscard]] bool is_asked() const {
    return state_.with([this](const State& state) { return state.asked != asked_; });
  }
  /// Has all read again, for read_again().
  void take_up_asked();
  void note_answered();
  /// Has all read anew after another server has taken the place of the last one.
  void take_up_server();

  void read_to_end(Followed& scope);
  void note_loss();
  void note_end(Followed& scope);
  /// Ends Durable::awaits_echo.
  void note_read_back();
  [[nodiscard]] static bool doubts(Followed& scope, const std::set<std::string>& own);
  void failed(Followed& scope, const Error& error);
  void succeeded(Followed& scope);
  void rest();
  void pause_until(SteadyTime when);
  void note_synced();

  // ---- deltas
  /// Applies a delta, first in memory and then on the disk; `ended` says that nothing comes after it. A snapshot, and
  /// what comes after it, waits for write_snapshots(). Returns false when it was not taken in: see set_in_memory().
  [[nodiscard]] bool apply(Followed& scope, remote::Delta delta, bool ended);
  /// Writes down from memory what only memory has, for no snapshot is held beside it. All scopes are read first.
  void write_snapshots();
  void refuse(Followed& scope, size_t entries);
  [[nodiscard]] std::vector<std::string> stale_after(const Followed& scope, const std::deque<codec::Entry>& snapshot);
  /// Tells the listeners what went from sight, unless they know it.
  void remove_from_memory(ScopeIndex scope, const std::vector<std::string>& paths, bool is_told = false);
  /// Takes the entries into memory, from the front; those that it did not refuse go on to `taken`, if there is one.
  /// Returns false when the scope is no longer followed, or when what is still to be removed may have been in its way:
  /// then it is read again after that.
  [[nodiscard]] bool set_in_memory(Followed& scope, std::deque<codec::Entry> entries, std::vector<codec::Entry>* taken);
  void note_applied(Followed& scope, const remote::Position& position, bool ended);
  /// Returns false when it was cancelled: the scope then stays unwritten.
  [[nodiscard]] bool write_snapshot(Followed& scope, const std::function<bool()>& cancelled);
  /// Ends State::unwritten of a scope.
  void note_written(ScopeIndex scope);

  Parts& parts_;
  DiskWriter disk_;
  const std::shared_ptr<remote::Index> index_;
  uint64_t asked_ = 0;                 ///< State::asked that was taken up; confined as followed_
  std::vector<Followed> followed_;     ///< confined to the catalog-tail thread
  std::atomic<uint64_t> version_ = 0;  ///< of `followed_`
  std::atomic<uint64_t> wanted_version_ = 0;
  std::atomic<uint64_t> server_ = 0;  ///< Index::server_changes() that were taken up
  bool untidy_ = true;                ///< confined to the catalog-tail thread
  bool hurry_ = false;                ///< confined to the catalog-tail thread; true: no pause before the next wait
  Backoff wait_backoff_;
  Guarded<State> state_;
};

}  // namespace inductorfs::catalog
