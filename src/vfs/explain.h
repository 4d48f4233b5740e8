// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "vfs/origin/origin.h"
#include "vfs/origin/refusals.h"
#include "vfs/read/cluster_sets.h"
#include "vfs/read/parcels.h"
#include "vfs/tree/context.h"
#include "vfs/write/in_place.h"
#include "vfs/write/seal_queue.h"

namespace inductorfs::vfs {

/// Explains a path: what is there, where it came from, and why it is shared or not (`inductorfs explain`). Changes
/// nothing. Blocks on the local disk only. Safe for concurrent use.
class Explainer final : public Inspection, Context {
 public:
  explicit Explainer(const Context& context) : Context(context) {}

  Explanation explain(std::string_view path) override;
  std::optional<OwnFile> newest_own(const std::string& directory, int depth, const std::string& name,
                                    uint64_t limit) override;
  bool lets_in(std::string_view path, uid_t user, std::span<const gid_t> groups) const override;
  FileSystemStatus status() const override;

 private:
  void explain_place(Explanation& result);
  void explain_local(Explanation& result, bool is_directory, const std::optional<catalog::KnownEntry>& known);
  void explain_entry(Explanation& result, const catalog::KnownEntry& known);
  void explain_without_entry(Explanation& result) const;
  [[nodiscard]] bool shows_directory(const std::string& path) const;
  [[nodiscard]] std::string missing_above(const std::string& path) const;
};

}  // namespace inductorfs::vfs
