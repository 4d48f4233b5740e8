// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <deque>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/vfs/types.h"

namespace inductorfs::vfs {

/// Tells the kernel what has changed behind its back, from a thread of its own: for that the kernel takes the
/// directory's lock, which may be held by an operation that waits for this mount (libfuse doc/README.notifications).
/// Adding never blocks on the kernel; only forget_all() waits for room while kLimit notices wait. Safe for concurrent
/// use.
class Notifier {
 public:
  static constexpr size_t kLimit = 200'000;
  struct Notice {
    NodeId node;
    std::string name;  ///< empty: the node's content
    auto operator<=>(const Notice&) const = default;
  };

  void start(KernelCache& kernel);
  void stop();
  void forget_name(NodeId parent, std::string name);
  /// Tells all of these, in this order. A thread that adds many one by one wakes the other for each. For the catalog's
  /// threads: a thread that serves the kernel must not wait here.
  void forget_all(const std::vector<Notice>& notices);
  /// The same without the wait, beyond the limit too. What the kernel does not know needs no notice, so that there are
  /// never more than the names that it may know.
  void forget_at_once(const std::vector<Notice>& notices);
  /// Asks for a name to be forgotten, and never waits: the notice is dropped when the queue is full. For wishes (an
  /// eviction would like the kernel to let go of the name), which also come from threads that serve the kernel.
  void wish_forgotten(NodeId parent, std::string name);
  void forget_content(NodeId node);
  /// Asks in the same way for a directory's listing to be forgotten.
  void wish_content_forgotten(NodeId node);
  /// Has a directory's listing forgotten before this returns. For that the kernel takes no lock that an operation may
  /// hold, unlike for a name, so that a thread that serves the kernel may do it (fs/fuse/inode.c:
  /// fuse_reverse_inval_inode). Nothing happens before start() and after stop().
  void forget_listing_now(NodeId directory) const;

 private:
  struct State {
    std::deque<Notice> queue;
    std::set<Notice> queued;
    bool stopped = true;
  };
  /// Adds them while fewer than `most` wait; returns how many.
  [[nodiscard]] size_t try_add(std::span<const Notice> notices, size_t most = kLimit);
  void run(const std::stop_token& stop, KernelCache& kernel);

  std::atomic<KernelCache*> kernel_ = nullptr;
  Guarded<State> state_;
  std::jthread thread_;
};

}  // namespace inductorfs::vfs
