// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "vfs/overlay.h"

namespace inductorfs::vfs {

/// Puts an Overlay in the place of one of an earlier worker, whose nodes the kernel and the processes go on using.
/// Needs external synchronisation; finish() and finish_rename() run beside requests.
class Resume {
 public:
  explicit Resume(Overlay& overlay) : overlay_(overlay) {}
  /// Before the first request: nodes, names, sets that are not complete.
  [[nodiscard]] Result<void> take_over();
  /// The rest, while requests are served: which blobs local files are, what is to be sealed, and what the kernel may
  /// not have been told.
  void finish(const std::stop_token& stop);
  /// Of a rename request that comes again: if its effect is on the disk already, the rest of it.
  [[nodiscard]] std::optional<Result<void>> finish_rename(const Site& from, const Site& to, RenameMode mode);

 private:
  [[nodiscard]] NodePtr node_of(const NodeRecord& record);
  void restore_content(const NodePtr& node, const NodeRecord& record);
  [[nodiscard]] std::pair<std::string, uint64_t> noted_place(const NodePtr& node) const;
  [[nodiscard]] bool find_place(const NodePtr& node);
  static void ask_for_seal(const NodePtr& node);
  void lose_names(const NodePtr& node, const std::string& place);
  [[nodiscard]] uint64_t inode_at(const std::string& place, const Node& node) const;
  void restore_pending();
  [[nodiscard]] std::optional<SetOwner> owner_of_set(std::string_view text, const std::string& place) const;
  [[nodiscard]] bool restore_set(const NodePtr& directory, std::string_view owner, const std::string& place);
  void sweep_orphans();
  void look_below(const std::string& path, const std::stop_token& stop);
  void look_at_set(const std::string& path);
  void look_at_file(const std::string& directory, const std::string& name,
                    const std::vector<LocalTree::Item>& siblings);
  void refresh_kernel(const std::string& path, const NodePtr& directory, const std::stop_token& stop);
  void finish_exchange(const Site& from, const Site& to, const NodePtr& moved);

  Overlay& overlay_;
};

}  // namespace inductorfs::vfs
