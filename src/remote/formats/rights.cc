// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/remote/rights.h"

#include <algorithm>
#include <initializer_list>

namespace inductorfs::remote {
namespace {

struct Grant {
  std::initializer_list<Role> roles;
  std::string_view rules;  ///< in the server's words; $ is the prefix
};

using enum Role;

// Commands in scripts need the right, too. What is in parentheses is for these keys alone.
constexpr Grant kGrants[] = {
    {{kConsumer, kPublisher, kSweeper, kOperator},
     "%R~$:* +exists +get +getrange +hexists +hlen +hmget +hscan +pttl +xread +xrevrange +zrange "
     "+client|setname +info +ping +role +select +time "
     "&$:{*}:meta +asking +cluster|slots +ssubscribe +sunsubscribe"},
    {{kPublisher, kSweeper, kOperator},
     "~$:{*}:meta ~$:{*}:idx ~$:{*}:cnt ~$:{*}:own ~$:{*}:log "
     "+del +eval +hdel +hget +hincrby +hset +pexpire +set +spublish +unlink +xadd"},
    {{kPublisher, kSweeper},
     "~$:{*}:sig ~$:{*}:st:* ~$:{*}:about ~$:{*}:lease:* ~$:{*}:sending:* ~$:b:* ~$:gathering:* ~$:scopes "
     "~$:{nodes}:node:* ~$:{nodes}:registry ~$:{nodes}:seen "
     "+touch +zadd +zrem +zremrangebyrank +zremrangebyscore +zscore"},
    {{kSweeper}, "~$:{*}:sweep (~$:{nodes}:orders +pexpire)"},
    {{kOperator}, "~$:{*}:purge:* ~$:{nodes}:orders (~$:b:* +unlink)"},
};

}  // namespace

bool is_good_prefix(std::string_view prefix) {
  constexpr size_t kMost = 64;
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !prefix.empty() && prefix.size() <= kMost && prefix.find_first_not_of(kPlain) == std::string_view::npos;
}

std::string acl_line(Role role, std::string_view prefix, std::string_view user) {
  std::string line = "ACL SETUSER " + std::string(user) + " on resetkeys resetchannels clearselectors -@all";
  for (const Grant& grant : kGrants) {
    if (std::ranges::find(grant.roles, role) == grant.roles.end()) continue;
    line += ' ';
    for (const char c : grant.rules) line += c == '$' ? std::string(prefix) : std::string(1, c);
  }
  return line;
}

}  // namespace inductorfs::remote
