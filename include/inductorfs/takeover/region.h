// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"

/// What outlives a worker: memory that the supervisor keeps, in which one worker leaves what the next one needs to go
/// on serving the same mount (docs/decisions/0019). Nothing here survives the host: the mount does not either.
namespace inductorfs::takeover {

/// Supervisor and worker tell each other here how things stand. One writer for each field, plain atomics, no lock: a
/// worker may be killed between any two instructions. Times are CLOCK_MONOTONIC nanoseconds.
struct Page {
  // ---- the supervisor writes
  std::atomic<uint32_t> restarts{0};       ///< workers that ended without being asked to
  std::atomic<uint32_t> upgrades{0};       ///< takeovers that were asked for
  std::atomic<int32_t> last_status{0};     ///< as wait(2) gave it, of the last worker that crashed
  std::atomic<uint32_t> last_was_hung{0};  ///< that one was killed because its heart stopped
  std::atomic<int64_t> last_restart{0};
  std::atomic<uint32_t> safe_mode{0};       ///< too many crashes: local only, the remote is off
  std::atomic<int32_t> supervisor{0};       ///< its pid
  std::atomic<uint32_t> upgrade_failed{0};  ///< the new program did not serve in time; the old one was started again

  // ---- the worker writes
  std::atomic<int64_t> beat{0};     ///< the last sign of life; 0 while it starts
  std::atomic<int64_t> serving{0};  ///< since when it answers requests; 0 while it does not
  std::atomic<int32_t> worker{0};   ///< its pid
  /// The kernel's first message (FUSE_INIT) and how long it is; 0: the session has not begun. Every later worker's
  /// session is begun with the same one.
  static constexpr size_t kInitLimit = 256;
  std::atomic<uint32_t> init_size{0};
  char init[kInitLimit] = {};

  // ---- the supervisor writes, since the fields above were laid out
  std::atomic<uint32_t> upgrade_taken_back{0};  ///< the new program served, crashed, and was replaced by the old one
};

/// One memfd: the page, the slots of requests (request_slots.h) and the log of nodes (node_log.h). Not copied, mapped
/// where it is shared. Safe for concurrent use.
class Region {
 public:
  static constexpr size_t kThreadLimit = 256;
  /// Threads that a session may have beside its own for a while; fewer where both are more than kThreadLimit.
  static constexpr size_t kSpares = 56;
  /// Makes the memory. `threads`: how many requests are read at once; `most_spares`: how many more at times.
  /// kNoSpace, kNotSupported.
  [[nodiscard]] static Result<Region> create(size_t threads, size_t most_spares = 0);
  /// Maps what another process made. kInvalid when it is nothing of this program's, or of another layout: an upgrade
  /// across layouts needs a remount.
  [[nodiscard]] static Result<Region> attach(Fd memory);
  Region(Region&& other) noexcept;
  Region& operator=(Region&&) = delete;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region();

  /// To be handed to another process; close-on-exec.
  [[nodiscard]] int fd() const { return memory_.get(); }
  [[nodiscard]] Page& page() const;
  /// Threads that have a slot, the spare ones last.
  [[nodiscard]] size_t threads() const;
  /// How many of them are spare.
  [[nodiscard]] size_t spares() const;
  /// For RequestSlots and NodeLog.
  [[nodiscard]] std::span<char> slots() const;
  [[nodiscard]] std::span<char> log() const;

 private:
  Region(Fd memory, char* start, size_t size) : memory_(std::move(memory)), start_(start), size_(size) {}
  Fd memory_;
  char* start_ = nullptr;
  size_t size_ = 0;
};

}  // namespace inductorfs::takeover
