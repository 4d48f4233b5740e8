// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/takeover/region.h"

/// Requests of the kernel that a worker has taken and not answered yet. The buffer into which a request is read from
/// the device lies in the region, so that the request is here from the moment it has left the kernel's queue; the next
/// worker finishes what it finds. Why this needs no FUSE_NOTIFY_RESEND: docs/decisions/0019.
namespace inductorfs::takeover {

/// One request. It is here when its first four bytes, the length (fuse_in_header), are not zero. Confined to the thread
/// that serves it, but for what the next worker reads and for `served`.
struct Slot {
  enum Phase : uint32_t {
    kTaken = 0,    ///< nothing of it has been done, or all of it may be done again
    kBegun = 1,    ///< checked: its effect was not there before, so what is found of it is its own
    kAnswered = 2  ///< `reply` holds the whole answer, which may have been given
  };
  static constexpr size_t kReplyLimit = 440;

  std::atomic<uint32_t> phase{kTaken};
  uint32_t reply_size = 0;
  /// Of a request with effects: what tells its effect from another's (a rename: the inode number that moves).
  std::atomic<uint64_t> witness{0};
  /// Of a request with many parts (BATCH_FORGET): how many have been begun.
  std::atomic<uint64_t> progress{0};
  char reply[kReplyLimit] = {};
  uint64_t request_size = 0;  ///< room for the request
  uint64_t request_offset = 0;
  /// Unique number of the request that a thread serves; 0: none. For who watches the threads: the kernel writes the
  /// request itself at any moment.
  std::atomic<uint64_t> served{0};
  /// Parts of a long request that are done (note_progress); 0: it has no parts. A watcher sees by it that the request
  /// is not stuck.
  std::atomic<uint64_t> steps{0};
  std::atomic<int32_t> thread{0};  ///< kernel id of the thread that serves the request
  /// Workers that crashed or hung while they served this very request.
  std::atomic<uint32_t> deaths{0};
  std::atomic<int64_t> began{0};  ///< CLOCK_MONOTONIC_COARSE nanoseconds, since when it is served; set before `served`

  [[nodiscard]] char* request() noexcept { return reinterpret_cast<char*>(this) + request_offset; }
  [[nodiscard]] uint32_t length() const noexcept;
  /// The request is done with: makes room for the next one.
  void free() noexcept;
  /// Stores an answer; too long a one is not kept (only requests that may be done again have such).
  void keep_reply(std::string_view reply_bytes) noexcept;
  /// Whether a worker has begun to serve this request. Then the read(2) that brought it had returned, so the request is
  /// whole.
  [[nodiscard]] bool was_served() const noexcept;
};

/// All slots of a region: one for each thread, in which requests are read and served, and smaller ones to which a
/// lookup moves that waits for the cluster. The region must outlive it. Safe for concurrent use.
class RequestSlots {
 public:
  explicit RequestSlots(const Region& region);

  /// Of the fuse thread with this number. Its request buffer takes one message of the largest size.
  [[nodiscard]] Slot& of_thread(size_t thread) const;
  /// All that have a slot, the spare ones last.
  [[nodiscard]] size_t threads() const { return threads_; }
  [[nodiscard]] size_t spares() const { return spares_; }
  /// How many threads have been at one request for so long, of each user as the kernel names them. Some may begin and
  /// end meanwhile; what takes no time is none that was answered and whose thread has not got on.
  [[nodiscard]] std::map<uint32_t, size_t> served_by_user(Milliseconds at_least) const;

  /// Gives the slot of a spare thread the memory that the others' have always. False: the host has none.
  [[nodiscard]] bool prepare(size_t spare_thread) const;
  /// Gives it back, but for the start of the slot. Requires: its request is done with.
  void give_back(size_t spare_thread) const;

  /// Copies a request into a slot of its own, so that its thread may serve another one; the copy stays until free().
  /// nullptr when all such slots are taken, or the request is too long.
  [[nodiscard]] Slot* detach(const Slot& from);

  /// What an earlier worker has left, detached ones last and none twice. Requires: no thread serves yet.
  [[nodiscard]] std::vector<Slot*> left_over() const;
  /// The same without memory of its own: the first of `room` that the answer counts.
  [[nodiscard]] size_t left_over(std::span<Slot*> room) const;

  static constexpr size_t kRequestRoom = (1U << 20) + 8192;  ///< a WRITE of 1 MiB with its headers
  static constexpr size_t kDetached = 1024;
  /// Slots of any region.
  static constexpr size_t kMost = Region::kThreadLimit + kDetached;
  static constexpr size_t kDetachedRoom = 512;  ///< a LOOKUP: header and a name of 255 bytes
  [[nodiscard]] static size_t bytes_for(size_t threads);
  static void lay_out(std::span<char> memory, size_t threads);
  /// Memory for all slots; of spare threads, for their start.
  [[nodiscard]] static Result<void> reserve(const Region& region);

 private:
  [[nodiscard]] Slot& detached(size_t index) const;
  [[nodiscard]] std::span<char> of_spare(size_t thread) const;
  int fd_;
  std::span<char> memory_;
  size_t threads_;
  size_t spares_;
  std::atomic<size_t> next_{0};
};

/// The request that this thread serves, for as long as the object lives: what is below speaks of it. `resumed`: an
/// earlier worker was killed while it served it. Confined to the serving thread.
class Serving {
 public:
  Serving(Slot& slot, bool resumed) noexcept;
  ~Serving();
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;
};
/// The slot of this thread's request; nullptr outside of one.
[[nodiscard]] Slot* serving_slot() noexcept;

/// A request that takes long has done another part of its work. Whoever watches the threads then knows that it is not
/// stuck. Nothing happens outside of a request.
void note_progress() noexcept;

/// An operation that must not be done twice says so when it has checked that its effect is not there, right before it
/// makes it. `witness`: see Slot. The kernel holds the lock of the directory meanwhile, so that nobody else makes the
/// same effect in between. Nothing happens outside of a request.
void begin_effect(uint64_t witness = 1) noexcept;
/// The witness, when an earlier worker was killed after it had begun the effect of this very request: it may be there.
[[nodiscard]] std::optional<uint64_t> begun_effect() noexcept;

}  // namespace inductorfs::takeover
