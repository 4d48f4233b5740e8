// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/result.h"

namespace inductorfs::remote {

/// What is known of a server that answers and refuses writes, from the outcomes of this mount's own writes: the remote
/// tells it, and the mount shows it. Safe for concurrent use.
class WriteCondition {
 public:
  /// The writes that are repeated as long as they are refused. A success says nothing about the other one: the user of
  /// the server may have the right to one of them alone.
  enum class Write { kPublish, kRecord };
  /// A refusal that was not repeated for this long is over: the queue was emptied by something else than the server.
  /// It is longer than the longest pause between two attempts of the publisher.
  static constexpr std::chrono::minutes kRepeated{5};

  struct Refusal {
    std::string why;    ///< what the server says, with the remedy; empty while it takes writes
    int64_t since = 0;  ///< seconds since 1970
  };

  void refused(Write write, const Error& why, SteadyTime now = std::chrono::steady_clock::now());
  void taken(Write write);
  /// Returns the refusal of the publish, if there is one, else that of the record.
  [[nodiscard]] Refusal refusal(SteadyTime now = std::chrono::steady_clock::now()) const;

 private:
  struct Noted {
    Refusal refusal;
    SteadyTime repeated{};  ///< when a write was refused last
  };
  Guarded<std::array<Noted, 2>> noted_;
};

}  // namespace inductorfs::remote
