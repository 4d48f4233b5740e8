// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "channel.h"
#include "inductorfs/base/guarded.h"
#include "kernel_reply.h"

namespace inductorfs::fuse {

/// A request whose answer may come later, from any thread. A caller that is killed meanwhile gets EINTR at once
/// (otherwise its process would stay in state D until the answer); other signals do not cut a lookup short, as they
/// would not on a local disk. A directory that is being opened is open as soon as any signal comes: its caller waits
/// for what could be in it (FileSystem::open_directory), not for the directory. The first thread that claims the
/// request answers it. Safe for concurrent use.
class PendingRequest {
 public:
  PendingRequest(KernelReply reply, Operation operation) noexcept;
  /// Answers EIO if the file system has not answered.
  ~PendingRequest();
  PendingRequest(const PendingRequest&) = delete;
  PendingRequest& operator=(const PendingRequest&) = delete;

  /// Of a lookup.
  void answer(const vfs::LookupAnswer& answer) noexcept;
  /// Of a directory that is being opened.
  void opened() noexcept;
  /// Says whether the next worker would find the request while it waits. If not, its thread, whose slot has the
  /// request, must wait too, or answer.
  [[nodiscard]] bool is_detached() const noexcept { return detached_ != nullptr; }
  void wait() noexcept;
  /// Says whether a signal came so early that nothing was done for it.
  [[nodiscard]] bool was_interrupted() const noexcept { return interrupted_; }

 private:
  static void on_interrupt(fuse_req* request, void* data) noexcept;
  [[nodiscard]] bool claim() noexcept { return !claimed_.exchange(true); }
  [[nodiscard]] KernelReply take_reply() noexcept;
  void finish() noexcept;

  std::shared_ptr<Channel> channel_;
  const Operation operation_;
  fuse_req* request_;  ///< belongs to the thread that claims it
  std::atomic<bool> armed_{false};
  std::atomic<bool> interrupted_{false};
  std::atomic<bool> claimed_{false};
  takeover::Slot* const
      detached_;  ///< a copy of the request in the memory that outlives us; belongs to the claiming thread
  Guarded<bool> answered_{false};
};

/// Says whether a fatal signal is pending for this thread, which cannot act on it while it waits for us.
[[nodiscard]] bool is_being_killed(pid_t thread) noexcept;

}  // namespace inductorfs::fuse
