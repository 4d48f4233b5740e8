// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "channel.h"
#include "inductorfs/base/guarded.h"
#include "kernel_reply.h"

namespace inductorfs::fuse {

/// A lookup whose answer may come later, from any thread. A caller that is killed meanwhile gets EINTR at once
/// (otherwise its process would stay in state D until the answer); other signals do not cut a lookup short, as they
/// would not on a local disk. The first thread that claims the lookup answers it. Safe for concurrent use.
class PendingLookup {
 public:
  explicit PendingLookup(KernelReply reply) noexcept;
  /// Answers EIO if the file system has not answered.
  ~PendingLookup();
  PendingLookup(const PendingLookup&) = delete;
  PendingLookup& operator=(const PendingLookup&) = delete;

  void answer(const vfs::LookupAnswer& answer) noexcept;
  /// Says whether the next worker would find the lookup while it waits. If not, its thread, whose slot has the request,
  /// must wait too.
  [[nodiscard]] bool is_detached() const noexcept { return detached_ != nullptr; }
  void wait() noexcept;

 private:
  static void on_interrupt(fuse_req* request, void* data) noexcept;
  [[nodiscard]] bool claim() noexcept { return !claimed_.exchange(true); }
  [[nodiscard]] KernelReply take_reply() noexcept;
  void finish() noexcept;

  std::shared_ptr<Channel> channel_;
  fuse_req* request_;  ///< belongs to the thread that claims the lookup
  std::atomic<bool> armed_{false};
  std::atomic<bool> claimed_{false};
  takeover::Slot* const
      detached_;  ///< a copy of the request in the memory that outlives us; belongs to the claiming thread
  Guarded<bool> answered_{false};
};

/// Says whether a fatal signal is pending for this thread, which cannot act on it while it waits for us.
[[nodiscard]] bool is_being_killed(pid_t thread) noexcept;

}  // namespace inductorfs::fuse
