// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
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
  /// Hides for a while an entry whose bytes only a newer release can read. Bits that flip on the way look the same.
  void needs_newer_release(const codec::Entry& entry, const std::string& why);
  /// Shows what was hidden for that reason and, as nobody tells them apart, for any other, once it is time to ask
  /// again.
  void ask_again_if_due();
  /// Forgets all results, because the host's facts have changed.
  void judge_again();

 private:
  /// Whether the store has the bytes of this digest; wrong ones go.
  [[nodiscard]] Result<void> verify_stored(const codec::Entry& entry);
  void hide(const codec::Entry& entry, const std::string& why, uint64_t age);
  [[nodiscard]] std::vector<remote::ScopeId> scopes_of(const codec::Entry& entry) const;
  [[nodiscard]] std::vector<catalog::KnownEntry> set_of(const codec::Entry& entry) const;

  struct Hidden {
    SteadyTime until = SteadyTime::max();  ///< max: nothing is
    Milliseconds pause{5'000};             ///< doubles, up to an hour: in a cluster of two releases it stays so
  };
  FittingBlobs fitting_;
  std::atomic<uint64_t> environments_made_{0};
  Guarded<Hidden> hidden_;
};

}  // namespace inductorfs::vfs
