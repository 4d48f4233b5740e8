// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "vfs/disk/early_copy.h"
#include "vfs/origin/origin.h"
#include "vfs/read/fetcher.h"
#include "vfs/tree/context.h"
#include "vfs/write/in_place.h"
#include "vfs/write/seal_queue.h"

namespace inductorfs::vfs {

/// Reads and writes the bytes of files. A file whose bytes the store has too gets bytes of its own before the first
/// write. Blocks on the local disk; a read of a blob that was damaged fetches it once more. Safe for concurrent use.
class Data final : public DataOperations, Context {
 public:
  explicit Data(const Context& context) : Context(context) {}

  Result<size_t> read(NodeId node, char* out, size_t size, uint64_t offset) override;
  Result<void> write(NodeId node, std::string_view bytes, uint64_t offset, const Caller& caller) override;
  Result<void> allocate(NodeId node, int mode, uint64_t offset, uint64_t length, const Caller& caller) override;
  Result<size_t> copy_range(NodeId from, uint64_t from_offset, NodeId to, uint64_t to_offset, size_t length,
                            const Caller& caller) override;
  Result<void> sync_file(NodeId node, bool data_only) override;

  /// A descriptor to write through; the file is not sealed until end_write(). `keep_bytes`: a truncation follows, so a
  /// copy needs no more than that. `end`: the file has at least so many bytes then. Requires: no lock is held.
  [[nodiscard]] Result<DescriptorCache::Pointer> begin_write(const NodePtr& node, std::optional<uint64_t> keep_bytes,
                                                             uint64_t end, const Caller& caller);
  /// Follows each begin_write() that succeeded.
  void end_write(const NodePtr& node, const DescriptorCache::Pointer& file, bool changed);
  /// Copies the bytes of a large file that make_private() is about to need, while no lock is held. `sealed_too`: those
  /// of a sealed file of this host, not only those of an entry. Evicts when the disk has no room for the copy. Waits
  /// for another copy of the same file. Requires: no lock is held.
  [[nodiscard]] Result<EarlyCopy> copy_early(const NodePtr& node, bool sealed_too, std::optional<uint64_t> keep = {});
  /// Says whether the caller may give it another name. What only the cluster has counts for nobody and gets bytes of
  /// its own for that, which would count for the owner of its root: others have to copy it (kCrossDevice).
  [[nodiscard]] static Result<void> may_name(const Content& content, const std::string& path, const Caller& caller);
  /// Gives the node bytes of its own, if the store has them. Requires: the content's lock, and moves().
  [[nodiscard]] Result<void> make_private(const NodePtr& node, Content& content, EarlyCopy& early);

 private:
  /// What a user may make of a file that is another one's and yet open to him.
  static constexpr uint64_t kMostOfOthers = uint64_t{64} << 10;
  [[nodiscard]] Result<void> may_grow(const NodePtr& node, int file, uint64_t end, const Caller& caller) const;
  [[nodiscard]] bool fetch_again(const codec::Entry& entry);
  [[nodiscard]] Result<DescriptorCache::Pointer> reading(const NodePtr& node,
                                                         std::shared_ptr<const std::string>& rendered);
  [[nodiscard]] Result<void> copy_entry_to_view(const NodePtr& node, Content& content, EarlyCopy& early);
  [[nodiscard]] Result<void> take_name(const NodePtr& view);
  [[nodiscard]] Result<void> sync_names(const Node& directory);
};

}  // namespace inductorfs::vfs
