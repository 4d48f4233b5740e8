// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "vfs/nodes/node.h"

namespace inductorfs::vfs {

/// A file or a set that stands under its final name and is to be made an immutable blob with an entry.
struct SealItem {
  NodePtr node;  ///< the file, or the key directory of a group; pinned while it is queued
  std::string path;
  bool group = false;
  bool is_again = false;   ///< it was sealed before, and nobody has made it anew
  bool was_quiet = false;  ///< it waited until it was quiet; a write since then makes it wait anew
  /// It was made in place, and nothing will show that it is complete: it is looked at when it has been quiet, so that
  /// somebody is told. A sign that comes all the same adds another item.
  bool has_no_sign = false;
  SteadyTime waits_since{};  ///< since when it has been waiting to be quiet
};

enum class SealOutcome {
  kDone,      ///< it is sealed, or never will be (refused, replaced, private)
  kLater,     ///< it is being written to right now
  kUnjudged,  ///< what its writers have loaded is still being read, which must not delay files of other writers
  kNoRoom,    ///< the store is full of blobs in use; there may be room after some quiet times
};

/// The queue of items that are to be sealed, and the `seal` thread that seals them. The thread takes turns between the
/// users whose files wait, because it hashes bytes, and one user may have many. A job never waits for it. A crash loses
/// nothing, because the scan at the next start finds files without a seal. Safe for concurrent use.
class SealQueue {
 public:
  using Seal = std::function<SealOutcome(const SealItem&)>;
  using Unpin = std::function<void(const NodePtr&)>;
  static constexpr int kRestlessTimes = 5;

  SealQueue(Seal seal, Unpin unpin, Milliseconds quiet_time);
  ~SealQueue();
  void start();
  /// Ends the thread; what is queued is left for the next start. Idempotent.
  void stop();

  /// Queues an item at once, and pins its node until it is done.
  void add(SealItem item);
  /// Queues an item when nothing has been written to it for the quiet time; a further call begins the wait anew.
  void add_quiet(SealItem item);
  [[nodiscard]] size_t waiting() const;
  /// Waits until nothing is left to seal, quiet files included, except items that wait for room and those of
  /// still_written(). Returns false at the deadline.
  [[nodiscard]] bool drain(Deadline deadline);
  /// Tries what waits for room at once, one item after another, until one finds none. Returns false at the deadline.
  [[nodiscard]] bool try_for_room(Deadline deadline);
  /// Returns files that were written to for kRestlessTimes quiet times without a pause of one: nothing tells when they
  /// will be complete.
  [[nodiscard]] std::vector<std::string> still_written(size_t limit) const;
  [[nodiscard]] std::vector<std::string> waiting_paths(size_t limit) const;
  [[nodiscard]] std::vector<std::string> paths_without_room(size_t limit) const;

 private:
  struct State {
    std::map<uid_t, std::deque<SealItem>> ready;     ///< by the owner of the file; none is empty
    std::map<NodeId, std::set<std::string>> queued;  ///< the names of each node in `ready`, but for `has_no_sign`
    uid_t served = 0;                                ///< the user whose turn it was last
    using Timed = std::map<NodeId, std::pair<SteadyTime, SealItem>>;  ///< due time
    Timed quiet;
    Timed no_room;
    /// As `quiet`; all items wait equally long, so the first one is due first.
    std::deque<std::pair<SteadyTime, SealItem>> unjudged;
    uint64_t quiet_added = 0;  ///< lets the thread see that it has to wait for another due time
    bool working = false;
    std::optional<std::string> retried;  ///< the item of `no_room` that is being tried; drain() waits for none of them
    bool skips_retries = false;          ///< the last turn was one's of `no_room`
    bool wants_retry = false;            ///< the next one of `no_room` is tried before it is due
    uint64_t retries = 0;                ///< how many tries have ended
    bool found_room = false;             ///< the last of them
    bool stopped = false;
  };
  void run(const std::stop_token& stop);
  [[nodiscard]] SteadyTime restless_at(const SealItem& item) const;
  [[nodiscard]] bool is_restless(const std::pair<SteadyTime, SealItem>& timed, SteadyTime now) const;
  [[nodiscard]] bool is_idle(const State& state) const;
  [[nodiscard]] SteadyTime next_restless(const State& state, SteadyTime latest) const;
  [[nodiscard]] static bool take_due(State& state, SteadyTime now, SealItem& item);
  [[nodiscard]] static bool take_retry(State& state, SteadyTime now, SealItem& item);
  [[nodiscard]] static SealItem take_ready(State& state);
  static void add_due(State& state, SteadyTime now);
  static void add_ready(State& state, SealItem item);
  void add_quiet(State& state, SealItem item) const;
  [[nodiscard]] static bool has_sign(const State& state, NodeId node);
  static void join(SealItem& waits, const SealItem& item);
  static void add_paths(const State::Timed& from, size_t limit, std::vector<std::string>& to);
  static void forget_wait(State::Timed& waits, NodeId node);
  static void put_off(State::Timed& to, SealItem item, Milliseconds wait);
  static void end_retry(State& state, SealOutcome outcome);
  [[nodiscard]] static SteadyTime next_due(const State& state);
  void take_back(State& state, SealItem item, SealOutcome outcome) const;

  const Seal seal_;
  const Unpin unpin_;
  const Milliseconds quiet_time_;
  Guarded<State> state_;
  std::jthread thread_;
};

}  // namespace inductorfs::vfs
