// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "channel.h"
#include "inductorfs/base/guarded.h"
#include "reply.h"

namespace inductorfs::fuse {

/// A lookup whose answer may come later, from any thread. A caller that is killed meanwhile is let go at once with
/// EINTR (its process would stay in state D until the answer otherwise); other signals do not cut a lookup short, as
/// they would not on a local disk. Whoever claims it first answers. Safe for concurrent use.
class PendingLookup {
 public:
  explicit PendingLookup(Reply reply) noexcept;
  /// Not answered by the file system: EIO.
  ~PendingLookup();
  PendingLookup(const PendingLookup&) = delete;
  PendingLookup& operator=(const PendingLookup&) = delete;

  void answer(const vfs::LookupAnswer& answer) noexcept;
  /// Whether the next worker would find the lookup while it waits; if not, its thread, whose slot has it, must wait
  /// too.
  [[nodiscard]] bool is_parked() const noexcept { return parked_ != nullptr; }
  void wait() noexcept;

 private:
  static void on_interrupt(fuse_req* request, void* data) noexcept;
  [[nodiscard]] bool claim() noexcept { return !claimed_.exchange(true); }
  [[nodiscard]] Reply take_reply() noexcept;
  void finish() noexcept;

  std::shared_ptr<Channel> channel_;
  fuse_req* request_;  ///< belongs to who claims
  std::atomic<bool> armed_{false};
  std::atomic<bool> claimed_{false};
  takeover::Slot* const parked_;  ///< a copy of the request in the memory that outlives us; belongs to who claims
  Guarded<bool> answered_{false};
};

/// Whether a fatal signal waits for this thread; it cannot act on it while it waits for us.
[[nodiscard]] bool is_being_killed(pid_t thread) noexcept;

}  // namespace inductorfs::fuse
