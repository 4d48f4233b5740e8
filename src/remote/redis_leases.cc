// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "keys.h"
#include "redis_operations.h"
#include "scripts.h"

namespace inductorfs::remote {

Result<std::vector<Lease>> hold_leases_at(RedisClient& session, std::span<const LeaseName> names,
                                          const std::string& holder, Milliseconds lifetime, Deadline deadline) {
  const std::string text = std::to_string(lifetime.count());
  std::vector<std::string> keys;
  std::vector<redis::Command> commands;
  keys.reserve(names.size());  // the commands refer to them
  for (const LeaseName& one : names) {
    keys.push_back(ScopeKeys(session.options().prefix, one.scope).lease(one.name));
    commands.push_back({"EVAL", hold_lease_script(), "1", keys.back(), holder, text});
  }
  std::vector<Lease> leases;
  INDUCTORFS_TRY(session.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
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
