// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "vfs/nodes/notifier.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// Finds out where the files of nodes really are, because an earlier worker may have been killed between a step on the
/// disk and its record in the journal. Blocks on the local disk only. Safe for concurrent use.
class NodePlaces : Context {
 public:
  explicit NodePlaces(const Context& context) : Context(context) {}

  /// Corrects the names of a node, and where its bytes are. Returns false when its file is at none of the known places.
  bool find_place(const NodePtr& node);
  /// Returns the inode number of the file at `place` if that is the node's file; else 0.
  [[nodiscard]] uint64_t inode_at(const std::string& place, const Node& node) const;

 private:
  [[nodiscard]] std::pair<std::string, uint64_t> noted_place(const NodePtr& node) const;
  void lose_names(const NodePtr& node, const std::string& place);
};

}  // namespace inductorfs::vfs
