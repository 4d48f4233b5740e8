// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/remote/leases.h"

namespace inductorfs::remote {

Result<void> check_leases(std::span<const LeaseName> names, const std::string& holder) {
  if (holder.empty() || holder.size() > kLeaseHolderLimit) return fail(ErrorCode::kInvalid, "no holder of a lease");
  for (const LeaseName& one : names) {
    if (one.scope.empty() || one.name.empty() || one.name.size() > kLeaseNameLimit) {
      return fail(ErrorCode::kInvalid, "no name of a lease");
    }
  }
  return {};
}

}  // namespace inductorfs::remote
