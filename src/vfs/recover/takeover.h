// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "vfs/read/cluster_sets.h"
#include "vfs/read/group_views.h"
#include "vfs/read/lookup.h"
#include "vfs/tree/context.h"
#include "vfs/write/key_sets.h"
#include "vfs/write/node_places.h"
#include "vfs/write/stale.h"

namespace inductorfs::vfs {

/// Puts this file system in the place of an earlier worker's, whose nodes the kernel and the processes go on using.
/// Operations that the earlier worker had begun are finished by their requests, which come again
/// (takeover::RequestSlots), and by FollowUp. Blocks on the local disk. Confined to the thread that opens the file
/// system.
class Takeover : Context {
 public:
  explicit Takeover(const Context& context) : Context(context) {}

  /// Restores nodes, names, and incomplete sets, before the first request.
  [[nodiscard]] Result<void> run();

 private:
  [[nodiscard]] NodePtr node_of(const LeftNode& record);
  void restore_content(const NodePtr& node, const LeftNode& record);
  void restore_group(Content& content, const LeftNode& record, const std::string& path);
  void restore_pending();
  [[nodiscard]] std::optional<SetOwner> owner_of_set(std::string_view text) const;
  [[nodiscard]] bool restore_set(const NodePtr& directory, std::string_view owner, const std::string& place);
  void sweep_orphans();
};

}  // namespace inductorfs::vfs
