// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"

/// Leases: names that one mount of the cluster has at a time, for as long as it renews them. They only spare work:
/// nothing may rely on one, because a mount whose lease has expired unnoticed goes on. So they need no fencing tokens.
namespace inductorfs::remote {

/// A name in a scope (Leases::hold_leases).
struct LeaseName {
  std::string scope;  ///< ScopeId
  std::string name;   ///< 1 .. kLeaseNameLimit bytes
  bool operator==(const LeaseName&) const = default;
};
inline constexpr size_t kLeaseNameLimit = 1024;
inline constexpr size_t kLeaseHolderLimit = 256;  ///< bytes of the holder's name

/// Who has a lease now.
struct Lease {
  bool is_ours = false;
  std::string holder;  ///< empty: nobody, or it could not be found out
};

/// Says whether these may be asked for.
[[nodiscard]] Result<void> check_leases(std::span<const LeaseName> names, const std::string& holder);

/// The leases of a cluster. Calls block and fail as those of a Remote. Safe for concurrent use.
class Leases {
 public:
  virtual ~Leases() = default;

  /// Takes each of these leases that nobody has, and begins the lifetime of those anew that `holder` has, in one round
  /// trip; a lifetime of 0 gives those up. Returns who has each of them now, in order. kNotPermitted: this user may
  /// only read.
  [[nodiscard]] virtual Result<std::vector<Lease>> hold_leases(std::span<const LeaseName> /*names*/,
                                                               const std::string& /*holder*/, Milliseconds /*lifetime*/,
                                                               Deadline /*deadline*/) {
    return fail(ErrorCode::kNotSupported);
  }
};

}  // namespace inductorfs::remote
