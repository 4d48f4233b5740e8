// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <memory>
#include <unordered_map>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/vfs/types.h"

namespace inductorfs::vfs {

/// Open files of the local disk by node, least recently used closed first: with OPEN answered ENOSYS there is no handle
/// to keep a descriptor in. A descriptor that is in use lives on after it was dropped here. Safe for concurrent use.
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
  struct Slot {
    Pointer descriptor;
    std::list<NodeId>::iterator place;
  };
  struct State {
    std::list<NodeId> order;  // most recently used first
    std::unordered_map<uint64_t, Slot> slots;
  };

  const size_t limit_;
  Guarded<State> state_;
};

}  // namespace inductorfs::vfs
