// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/remote/index.h"
#include "inductorfs/remote/options.h"

/// How long data in the cluster live without being used, and which host renews them.
///
/// A blob lives for RemoteOptions::blob_lifetime after its last use. The keys of a scope live for kScopeLifetimes times
/// as long after the last mount has followed the scope: an index is always further from its end than any blob, so that
/// a server that evicts what is nearest to its end (volatile-ttl) takes no index that is followed. The first host that
/// finds that a kRenewalsPerLifetime-th part of a blob's lifetime is over renews the blob; all others find it fresh.
namespace inductorfs::remote {

inline constexpr int kScopeLifetimes = 2;
inline constexpr int kRenewalsPerLifetime = 30;

/// A lifetime in milliseconds, as PEXPIRE takes it, and the remaining time below which a key is renewed. Immutable
/// value.
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

/// Knows which followed scopes this process has to touch, so that a server that evicts what was used least recently
/// takes no index while a mount follows it, and for which of them it has to check the lifetimes.
/// Safe for concurrent use.
class ScopeKeeper {
 public:
  static constexpr Milliseconds kTouchInterval{600'000};
  static constexpr size_t kLimit = 256;

  explicit ScopeKeeper(Milliseconds look_interval) : look_interval_(look_interval) {}

  struct Due {
    ScopeId scope;
    bool look = false;  ///< the lifetimes are to be checked too
  };
  /// Returns the scopes that are due now, and claims them: they are not due again before their interval has passed.
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
