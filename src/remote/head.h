// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/redis/connection.h"
#include "inductorfs/remote/remote.h"

/// The end of a scope's history, as the server has it.
namespace inductorfs::remote {

struct Head {
  bool exists = false;
  Position position;
};

/// From the answer to HMGET <meta> gen nonce.
[[nodiscard]] Result<Head> head_of(const redis::Reply& reply);
[[nodiscard]] std::optional<uint64_t> to_generation(std::string_view text);

/// Which positions were heads when they were last seen, and when all heads are to be looked at again: XREAD tells of
/// all that comes after a position, and nothing of a history that began anew below it. Safe for concurrent use.
class HeadWatch {
 public:
  explicit HeadWatch(Milliseconds interval) : interval_(interval) {}

  void confirm(const ScopeId& scope, const Position& position);
  [[nodiscard]] bool is_confirmed(const ScopeId& scope, const Position& position) const;
  /// Another connection may lead to another server.
  void forget();
  /// Of no other scopes anything is kept.
  void keep_only(const std::vector<std::pair<ScopeId, Position>>& scopes);
  [[nodiscard]] SteadyTime due() const;
  /// All `count` heads were looked at.
  void looked(size_t count);

 private:
  struct State {
    std::map<ScopeId, Position> confirmed;
    SteadyTime due{};
    std::minstd_rand random{std::random_device{}()};
  };
  const Milliseconds interval_;
  Guarded<State> state_;
};

}  // namespace inductorfs::remote
