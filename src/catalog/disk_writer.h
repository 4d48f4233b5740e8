// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "catalog/parts.h"

namespace inductorfs::catalog {

/// Writes down what the cluster has, piece by piece, so that an enqueue gets its turn in between. A scope that lacks a
/// piece keeps the position that the disk has until write_all(). Confined to the catalog-tail thread.
class DiskWriter {
 public:
  /// The number of scopes that are no longer followed but whose entries the disk keeps, as long as all kept entries
  /// together are not more than may be in memory.
  static constexpr size_t kScopesKept = 256;

  explicit DiskWriter(Parts& parts) : parts_(parts) {}

  /// Writes changes; the disk then has the scope up to this position.
  void write(const FollowedScope& scope, std::span<const codec::Entry> set, std::span<const std::string> removed,
             const remote::Position& position);
  /// Writes all that memory has of a scope in place of what the disk has. Returns false when it was cancelled: the disk
  /// then has no position for the scope, or what it had before.
  [[nodiscard]] bool write_all(const FollowedScope& scope, const remote::Position& position,
                               const std::function<bool()>& cancelled);
  /// Forgets the oldest scopes that are not among the followed. Returns false when it was cancelled.
  [[nodiscard]] Result<bool> forget_beyond_limits(const std::vector<remote::ScopeId>& followed,
                                                  const std::function<bool()>& cancelled);
  /// The scope's following has ended.
  void end(ScopeIndex scope) { lacking_.erase(scope); }

 private:
  /// Returns false when there is no time for the next piece.
  [[nodiscard]] bool write_piece(const FollowedScope& scope, std::span<const codec::Entry> set,
                                 std::span<const std::string> removed, const remote::Position* position);
  [[nodiscard]] bool forget(const remote::ScopeId& scope);

  Parts& parts_;
  std::set<ScopeIndex> lacking_;  ///< a piece: the position on disk must not move past what is missing
};

}  // namespace inductorfs::catalog
