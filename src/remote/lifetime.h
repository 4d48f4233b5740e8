// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/remote/remote.h"

/// How long what lies in the cluster lives without being used, and who renews it.
///
/// A blob lives for RemoteOptions::blob_lifetime after its last use, the keys of a scope for kScopeLifetimes times that
/// after the last mount has followed it: an index is always further from its end than any blob, so that a server that
/// evicts what is nearest to its end (volatile-ttl) takes no index that is followed. Whoever finds that a
/// kRenewalsPerLifetime-th part of a blob's lifetime is over renews it; all others see that it is fresh.
namespace inductorfs::remote {

inline constexpr int kScopeLifetimes = 2;
inline constexpr int kRenewalsPerLifetime = 30;

/// Milliseconds, as PEXPIRE takes them, and below how many left a key is renewed. Immutable value.
struct Lifetime {
  std::string text;
  int64_t renew_below;
  std::string renew_below_text;

  [[nodiscard]] static Lifetime of_blobs(const RemoteOptions& options) { return {options, 1}; }
  [[nodiscard]] static Lifetime of_scopes(const RemoteOptions& options) { return {options, kScopeLifetimes}; }

 private:
  Lifetime(const RemoteOptions& options, int times) {
    const int64_t blobs = std::chrono::duration_cast<Milliseconds>(options.blob_lifetime).count();
    text = std::to_string(blobs * times);
    renew_below = blobs * times - blobs / kRenewalsPerLifetime;
    renew_below_text = std::to_string(renew_below);
  }
};

/// Which followed scopes this process has to touch, so that a server that evicts what was used least recently takes no
/// index while somebody follows it, and which of them it has to look at for their lifetime. Safe for concurrent use.
class ScopeKeeper {
 public:
  static constexpr Milliseconds kTouchInterval{600'000};
  static constexpr size_t kLimit = 256;

  explicit ScopeKeeper(Milliseconds look_interval) : look_interval_(look_interval) {}

  struct Due {
    ScopeId scope;
    bool look = false;  ///< at the lifetimes, too
  };
  /// What is due now. Claimed: it is not due again before its interval has passed.
  [[nodiscard]] std::vector<Due> due(const std::vector<ScopeId>& scopes, SteadyTime now);

 private:
  struct Times {
    SteadyTime touched{};
    SteadyTime looked{};
  };
  const Milliseconds look_interval_;
  Guarded<std::map<ScopeId, Times>> times_;
};

}  // namespace inductorfs::remote
