// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

/// Which rights on the server those have who use it.
namespace inductorfs::remote {

enum class Role {
  kConsumer,   ///< a mount with --read-only
  kPublisher,  ///< a mount that leaves sweeping to others
  kSweeper,    ///< a mount that also sweeps; a cluster needs one
  kOperator,   ///< freeze, purge and nodes with --remote
};

/// Says whether this can begin every key (`--prefix`): 1 to 64 letters, digits, and - _ . which are nothing special in
/// a pattern of the server.
[[nodiscard]] bool is_good_prefix(std::string_view prefix);

/// The ACL SETUSER command, in one line without a newline, that gives `user` of a Redis server from 7.0 on the commands
/// and keys that a role needs with this prefix, and takes all others from it. Passwords stay as they are: a new user
/// has none and cannot log in. Both names are as is_good_prefix() takes them.
[[nodiscard]] std::string acl_line(Role role, std::string_view prefix, std::string_view user);

}  // namespace inductorfs::remote
