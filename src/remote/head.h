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
#include "keys.h"

/// The end of a scope's history, as the server has it.
namespace inductorfs::remote {

struct Head {
  bool exists = false;
  Position position;
};

/// From the answer to HMGET <meta> gen nonce.
[[nodiscard]] Result<Head> head_of(const redis::Reply& reply);
[[nodiscard]] std::optional<uint64_t> to_generation(std::string_view text);

/// Where meta is gone and the index is not (an eviction took it), the head is that of the last record of the log, which
/// was written in one step with it. Where the log is gone too, nothing names the history: the head then is a position
/// that no record continues, so that the next publish has all followers read the index anew.
/// Asks for what head_without_meta() takes, in its order.
[[nodiscard]] std::vector<redis::Command> look_without_meta(const ScopeKeys& keys);
/// A head that does not exist: there is no index either.
[[nodiscard]] Result<Head> head_without_meta(const redis::Reply& entries, const redis::Reply& last_record);

/// Which positions were heads when they were last seen, and when all heads are to be looked at again: XREAD tells of
/// all that comes after a position, and nothing of a history that began anew below it. Safe for concurrent use.
class HeadWatch {
 public:
  explicit HeadWatch(Milliseconds interval) : interval_(interval) {}

  /// `has_meta`: false for a head that head_without_meta() has found. To say true of such a one costs one more look.
  void confirm(const ScopeId& scope, const Position& position, bool has_meta = true);
  [[nodiscard]] bool is_confirmed(const ScopeId& scope, const Position& position) const;
  /// False when its head was found without meta.
  [[nodiscard]] bool has_meta(const ScopeId& scope) const;
  /// Another connection may lead to another server.
  void forget();
  /// Of no other scopes anything is kept.
  void keep_only(const std::vector<std::pair<ScopeId, Position>>& scopes);
  [[nodiscard]] SteadyTime due() const;
  /// All `count` heads were looked at.
  void looked(size_t count);

 private:
  struct Confirmed {
    Position position;
    bool has_meta = true;
  };
  struct State {
    std::map<ScopeId, Confirmed> confirmed;
    SteadyTime due{};
    std::minstd_rand random{std::random_device{}()};
  };
  const Milliseconds interval_;
  Guarded<State> state_;
};

}  // namespace inductorfs::remote
