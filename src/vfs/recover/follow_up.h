// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "vfs/origin/marks.h"
#include "vfs/read/cluster_changes.h"
#include "vfs/read/lookup.h"
#include "vfs/tree/context.h"
#include "vfs/write/in_place.h"
#include "vfs/write/seal_queue.h"
#include "vfs/write/sealing.h"

namespace inductorfs::vfs {

/// Does the rest of a takeover while requests are served: it finds out which blobs local files are, what is to be
/// sealed, and what the kernel may not have been told. Blocks on the local disk. Confined to the `janitor` thread.
class FollowUp : Context {
 public:
  explicit FollowUp(const Context& context) : Context(context) {}

  void run(const std::stop_token& stop);

 private:
  void refresh_kernel(const std::string& path, const NodePtr& directory, const std::stop_token& stop);
  void look_below(const std::string& path, const std::stop_token& stop);
  void look_at_parcel(const std::string& path);
  [[nodiscard]] bool pins_parcel(const std::string& path);
  void look_at_set(const std::string& path);
  void look_at_file(const std::string& directory, const std::string& name,
                    const std::vector<LocalTree::Item>& siblings);
};

}  // namespace inductorfs::vfs
