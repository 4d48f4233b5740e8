// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <memory>
#include <unordered_map>
#include <variant>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/store/blob_file.h"
#include "inductorfs/vfs/types.h"

namespace inductorfs::vfs {

/// Keeps files of the local disk open, by node; it closes the least recently used ones first. OPEN is answered with
/// ENOSYS, so there is no handle in which a descriptor could be kept. A descriptor that is in use stays open after it
/// was dropped here. Safe for concurrent use.
class DescriptorCache {
 public:
  explicit DescriptorCache(size_t limit) : limit_(limit) {}

  struct Descriptor {
    std::variant<Fd, store::BlobFile> open;  ///< a file of the local tree, or a blob
    bool writable = false;

    /// The descriptor of the file that holds the bytes.
    [[nodiscard]] int file() const;
    /// Reads as pread_full(), from byte `at` of the node.
    [[nodiscard]] Result<size_t> read(char* out, size_t size, uint64_t at) const;
  };
  using Pointer = std::shared_ptr<const Descriptor>;

  [[nodiscard]] Pointer find(NodeId node, bool writable);
  Pointer put(NodeId node, std::variant<Fd, store::BlobFile> open, bool writable);
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
