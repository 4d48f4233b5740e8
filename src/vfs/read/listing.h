// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "vfs/nodes/notifier.h"
#include "vfs/read/branches.h"
#include "vfs/read/root_scopes.h"
#include "vfs/read/shown_names.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// Lists directories: the names of the local disk and those of the cluster. Blocks on the local disk only. Safe for
/// concurrent use.
class Listings : Context {
 public:
  explicit Listings(const Context& context) : Context(context) {}

  /// FileSystem::read_directory.
  [[nodiscard]] Result<void> read_directory(NodeId directory, uint64_t cookie, const Caller& caller,
                                            const std::function<bool(const DirectoryItem&)>& take);

  /// Returns for which programs a listing of this directory is that this one reads (Listing::made_for).
  [[nodiscard]] std::string made_for(const std::string& path, const Caller& caller);

 private:
  using Items = std::map<std::string, Listing::Item>;
  [[nodiscard]] std::vector<std::string> branches_shown(const std::string& path, const Caller& caller);
  [[nodiscard]] Result<void> renew_listing(const NodePtr& node, const std::string& path,
                                           const std::vector<std::string>& branches);
  [[nodiscard]] Result<void> add_names(Items& items, const NodePtr& node, const std::string& path);
};

}  // namespace inductorfs::vfs
