// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <memory>
#include <unordered_map>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/vfs/types.h"

namespace inductorfs::vfs {

/// Keeps files of the local disk open, by node; it closes the least recently used ones first. OPEN is answered with
/// ENOSYS, so there is no handle in which a descriptor could be kept. A descriptor that is in use stays open after it
/// was dropped here. Safe for concurrent use.
class DescriptorCache {
 public:
  explicit DescriptorCache(size_t limit) : limit_(limit) {}

  struct Descriptor {
    Fd fd;
    bool writable = false;
  };
  using Pointer = std::shared_ptr<const Descriptor>;

  [[nodiscard]] Pointer find(NodeId node, bool writable);
  Pointer put(NodeId node, Fd fd, bool writable);
  void drop(NodeId node);

 private:
  struct Cached {
    Pointer descriptor;
    std::list<NodeId>::iterator place;
  };
  struct State {
    std::list<NodeId> order;  ///< most recently used first
    std::unordered_map<uint64_t, Cached> slots;
  };

  const size_t limit_;
  Guarded<State> state_;
};

}  // namespace inductorfs::vfs
