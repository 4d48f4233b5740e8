// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "channel.h"
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

 private:
  static void on_interrupt(fuse_req* request, void* data) noexcept;
  [[nodiscard]] bool claim() noexcept { return !claimed_.exchange(true); }
  [[nodiscard]] Reply take_reply() noexcept;

  std::shared_ptr<Channel> channel_;
  fuse_req* request_;  ///< belongs to who claims
  std::atomic<bool> armed_{false};
  std::atomic<bool> claimed_{false};
};

/// Whether a fatal signal waits for this thread; it cannot act on it while it waits for us.
[[nodiscard]] bool is_being_killed(pid_t thread) noexcept;

}  // namespace inductorfs::fuse
