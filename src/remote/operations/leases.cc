// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/remote/leases.h"

#include <algorithm>
#include <utility>

#include "remote/formats/keys.h"
#include "remote/formats/scripts.h"
#include "remote/operations/redis_operations.h"

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

Result<std::vector<Lease>> RedisRemote::hold_leases(std::span<const LeaseName> names, const std::string& holder,
                                                    Milliseconds lifetime, Deadline deadline) {
  if (session_.options().read_only) return read_only();
  INDUCTORFS_TRY(check_leases(names, holder));
  const std::string text = std::to_string(lifetime.count());
  std::vector<std::string> keys;
  std::vector<redis::Command> commands;
  keys.reserve(names.size());  // the commands refer to them
  for (const LeaseName& one : names) {
    keys.push_back(ScopeKeys(session_.options().prefix, one.scope).lease(one.name));
    commands.push_back({"EVAL", hold_lease_script(), "1", keys.back(), holder, text});
  }
  std::vector<Lease> leases;
  INDUCTORFS_TRY(session_.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    leases.clear();
    INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all(commands));
    const bool none = std::ranges::all_of(replies, [](const redis::Reply& reply) { return reply.is_error(); });
    if (none && !replies.empty()) return fail(redis::to_error(replies.front()));
    for (redis::Reply& reply : replies) {
      Lease lease;
      if (reply.kind == redis::Reply::Kind::kString && reply.text.size() <= kLeaseHolderLimit) {
        lease = {reply.text == holder, std::move(reply.text)};
      }
      leases.push_back(std::move(lease));
    }
    return {};
  }));
  return leases;
}

}  // namespace inductorfs::remote
