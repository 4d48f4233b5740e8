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
#include "inductorfs/remote/index.h"
#include "remote/formats/keys.h"

/// The end of a scope's history on the server.
namespace inductorfs::remote {

struct Head {
  bool exists = false;
  Position position;
};

/// Reads the head from the answer to HMGET <meta> gen nonce. It does not exist when its generation is no number.
[[nodiscard]] Result<Head> head_of(const redis::Reply& reply);
[[nodiscard]] std::optional<uint64_t> to_generation(std::string_view text);

/// Returns the commands whose answers head_without_meta() takes, in its order. They are for a scope whose meta is gone
/// and whose index is not, because an eviction took meta. The head then is that of the last record of the log, which
/// was written in one step with it. If the log is gone too, nothing names the history: the head then is a position that
/// no record continues, so that the next publish makes all followers read the index anew.
[[nodiscard]] std::vector<redis::Command> look_without_meta(const ScopeKeys& keys);
/// Returns the head without meta; it does not exist when there is no index either.
[[nodiscard]] Result<Head> head_without_meta(const redis::Reply& entries, const redis::Reply& last_record);

/// Remembers which positions were heads when they were last read, and when all heads are to be read again: XREAD
/// reports everything that comes after a position, and nothing about a history that began anew below it.
/// Safe for concurrent use.
class HeadWatch {
 public:
  explicit HeadWatch(Milliseconds interval) : interval_(interval) {}

  /// `has_meta` is false for a head that head_without_meta() has found. To pass true for such a head costs one more
  /// look.
  void confirm(const ScopeId& scope, const Position& position, bool has_meta = true);
  [[nodiscard]] bool is_confirmed(const ScopeId& scope, const Position& position) const;
  /// Returns false when the scope's head was found without meta.
  [[nodiscard]] bool has_meta(const ScopeId& scope) const;
  /// Forgets all positions, because another connection may lead to another server.
  void forget();
  /// Forgets all other scopes.
  void keep_only(const std::vector<std::pair<ScopeId, Position>>& scopes);
  [[nodiscard]] SteadyTime due() const;
  /// Notes that all `count` heads were read.
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
