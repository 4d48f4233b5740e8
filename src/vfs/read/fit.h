// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "vfs/nodes/notifier.h"
#include "vfs/read/fitting_blobs.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// Decides whether this host, and this release, can use what the cluster has under a name, and hides from this mount
/// what they cannot use. No other host is told, because it may be able to use it. Reads files of the store; never waits
/// for the cluster. Safe for concurrent use.
class Fit : Context {
 public:
  explicit Fit(const Context& context) : Context(context) {}

  /// Checks whether the bytes of the entry fit its name (Fetcher::Check).
  [[nodiscard]] Result<void> check(const codec::Entry& entry, std::optional<std::string_view> verified);
  /// Hides an entry whose bytes only a newer release can read.
  void needs_newer_release(const codec::Entry& entry, const std::string& why) { hide(entry, why, fitting_.age()); }
  /// Forgets all results, because the host's facts have changed.
  void judge_again();

 private:
  /// Whether the store has the bytes of this digest; wrong ones go.
  [[nodiscard]] Result<void> verify_stored(const codec::Entry& entry);
  void hide(const codec::Entry& entry, const std::string& why, uint64_t age);
  [[nodiscard]] std::vector<remote::ScopeId> scopes_of(const codec::Entry& entry) const;
  [[nodiscard]] std::vector<catalog::KnownEntry> set_of(const codec::Entry& entry) const;

  FittingBlobs fitting_;
  std::atomic<uint64_t> environments_made_{0};
};

}  // namespace inductorfs::vfs
