// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <set>
#include <string>
#include <thread>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/vfs/types.h"

namespace inductorfs::vfs {

/// Tells the kernel what changed behind its back, from a thread of its own: the kernel takes the directory's lock for
/// it, which an operation that waits for us may hold (libfuse doc/README.notifications). Adding never blocks on the
/// kernel; when kLimit notices wait, an adder waits for room (the catalog's threads only). Safe for concurrent use.
class Notifier {
 public:
  static constexpr size_t kLimit = 200'000;

  void start(KernelCache& kernel);
  void stop();
  void forget_name(NodeId parent, std::string name);
  /// Never waits: dropped when the queue is full. For wishes (an eviction would like the name to be let go), which come
  /// from threads that serve the kernel too.
  void wish_forgotten(NodeId parent, std::string name);
  void forget_content(NodeId node);
  /// As wish_forgotten, for a listing.
  void wish_content_forgotten(NodeId node);

 private:
  struct Notice {
    NodeId node;
    std::string name;  ///< empty: the node's content
    auto operator<=>(const Notice&) const = default;
  };
  struct State {
    std::deque<Notice> queue;
    std::set<Notice> queued;
    bool stopped = true;
  };
  [[nodiscard]] bool try_add(const Notice& notice);
  void add(const Notice& notice);
  void run(const std::stop_token& stop, KernelCache& kernel);

  Guarded<State> state_;
  std::jthread thread_;
};

}  // namespace inductorfs::vfs
