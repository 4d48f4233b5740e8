// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/config/json_forward.h"
#include "inductorfs/layout/selection.h"

/// What an operator has ordered for all mounts of a cluster (Operators::replace_orders), and what a mount has heard of
/// it. docs/formats.md has both as JSON. Whatever the JSON holds, these functions give bounded and printable values.
namespace inductorfs::mount {

/// The latest freeze, or its end. While it is in force, no mount shows what the cluster has, and none publishes.
struct FreezeOrder {
  std::string id;  ///< hexadecimal digits; empty: there was none
  bool frozen = false;
  std::string why;
  std::string by;
  int64_t at = 0;  ///< grows from order to order, as PurgeOrder::id: a replica that took over may have an earlier one
};

/// A purge that each mount applies once to what it has on its own disk.
struct PurgeOrder {
  int64_t id = 0;  ///< grows from order to order: milliseconds since 1970, by the server's clock
  layout::Selection selection;
};

struct Orders {
  FreezeOrder freeze;
  std::vector<PurgeOrder> purges;  ///< by id; at most kPurgeOrders
  int64_t dropped = 0;             ///< id of the latest purge that gave way to later ones
};
/// A mount that was away for longer than these last, or never heard of any, purges all that it has.
inline constexpr size_t kPurgeOrders = 16;

/// How far the number of an order, in milliseconds, may be ahead of the clock of who reads it.
inline constexpr int64_t kMostAhead = 24LL * 3600 * 1000;
/// Returns the number of a new order: the server's time, or one more than `last`, the largest number that any mount has
/// heard or may hear. The server's clock may have been ahead then; what no clock says is nobody's number.
[[nodiscard]] int64_t next_number(int64_t server_time, int64_t last);

/// Empty unless the text is an object of this version. A purge that cannot be read is left out, with all that follow.
[[nodiscard]] std::optional<Orders> parse_orders(std::string_view text);
/// Encodes orders; drops the oldest purges that are too many, or for which there is no room.
[[nodiscard]] std::string encode_orders(Orders orders);

[[nodiscard]] config::Json to_json(const layout::Selection& selection);
[[nodiscard]] std::optional<layout::Selection> selection_from(const config::Json& json);

/// What a mount has heard, in a file of its store: it holds after a restart without a server, too.
struct HeardOrders {
  FreezeOrder freeze;
  int64_t purged = 0;  ///< id of the last purge that was applied
};
/// Names the cluster behind a URL without secrets, and a prefix: the orders of one are nothing to a mount of another.
/// Empty without a URL.
[[nodiscard]] std::string cluster_id(const std::string& url, const std::string& prefix);
[[nodiscard]] HeardOrders read_heard(const std::string& store, const std::string& cluster);
[[nodiscard]] Result<void> write_heard(const std::string& store, const std::string& cluster, const HeardOrders& heard);

/// "the cluster is frozen since 2026-11-24 15:40 UTC by root@host: why"; empty when it is not.
[[nodiscard]] std::string frozen_text(const FreezeOrder& freeze);

}  // namespace inductorfs::mount
