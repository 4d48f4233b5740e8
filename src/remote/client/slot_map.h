// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/redis/connection.h"
#include "inductorfs/redis/url.h"

/// Where a key lies in a Redis Cluster. Pure functions of bytes that a server has sent, and that may be hostile.
namespace inductorfs::remote {

inline constexpr size_t kSlots = 16384;
/// The masters that one map may name. The cluster specification recommends at most 1,000 nodes.
inline constexpr size_t kMastersLimit = 1000;

/// Returns the slot of a key: CRC16 of its hash tag, which is what stands between the first { and the next }, or of the
/// whole key when nothing stands there.
[[nodiscard]] uint16_t slot_of_key(std::string_view key);
/// Returns the slot of a command's first key. Empty for a command without keys, which any server can answer.
[[nodiscard]] std::optional<uint16_t> slot_of(const redis::Command& command);

/// Which master serves each slot. Immutable value.
struct SlotMap {
  static constexpr uint16_t kNobody = 0xffff;
  std::vector<redis::HostPort> masters;
  std::vector<uint16_t> owners = std::vector<uint16_t>(kSlots, kNobody);  ///< places in `masters`

  [[nodiscard]] size_t uncovered() const;
  bool operator==(const SlotMap&) const = default;
};

/// Reads the answer to CLUSTER SLOTS. `asked` is the node that answered: a node that does not know its own address
/// leaves it empty. kCorrupt: not the form of the answer, over a limit, or a slot has two masters.
[[nodiscard]] Result<SlotMap> parse_slots(const redis::Reply& reply, const redis::HostPort& asked);

/// Where a node of the cluster sends a client.
struct Redirect {
  enum class Kind { kMoved, kAsk };
  Kind kind = Kind::kMoved;
  uint16_t slot = 0;
  redis::HostPort to;
};
/// Reads "MOVED <slot> <host>:<port>" and "ASK ...". Empty when the text is neither, or names no usable address.
[[nodiscard]] std::optional<Redirect> parse_redirect(std::string_view error, const redis::HostPort& asked);

}  // namespace inductorfs::remote
