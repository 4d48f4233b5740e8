// SPDX-License-Identifier: Apache-2.0
#include "mount/cluster/orders.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/text.h"
#include "inductorfs/mount/cluster_control.h"
#include "inductorfs/remote/operators.h"

namespace inductorfs::mount {

using config::Json;

namespace {

constexpr size_t kNamesLimit = 64;
constexpr size_t kHeardLimit = size_t{64} << 10;
/// The store's file. Version history: 1, first.
constexpr const char* kHeardFile = "orders";

std::string short_text(const Json& object, const char* name, size_t most = ClusterRequest::kTextLimit) {
  return config::text_at(object, name).substr(0, most);
}

/// Not negative.
int64_t time_at(const Json& object, const char* name) {
  return static_cast<int64_t>(std::min<uint64_t>(config::number_at(object, name), INT64_MAX));
}

FreezeOrder freeze_from(const Json& json) {
  FreezeOrder freeze;
  freeze.id = short_text(json, "id", remote::kNodeIdLimit);
  freeze.frozen = config::flag_at(json, "frozen");
  freeze.why = short_text(json, "why");
  freeze.by = short_text(json, "by");
  freeze.at = time_at(json, "at");
  return freeze;
}

Json to_json(const FreezeOrder& freeze) {
  return Json::object(
      {{"id", freeze.id}, {"frozen", freeze.frozen}, {"why", freeze.why}, {"by", freeze.by}, {"at", freeze.at}});
}

/// False when there is something else than a list of a few texts.
bool take_texts(const Json& object, const char* name, size_t most, std::vector<std::string>& texts) {
  const auto found = object.find(name);
  if (found == object.end()) return true;
  if (!found->is_array() || found->size() > most) return false;
  for (const Json& one : *found) {
    if (!one.is_string()) return false;
    texts.push_back(one.get<std::string>());
  }
  return true;
}

}  // namespace

Json to_json(const layout::Selection& selection) {
  Json json = Json::object();
  if (!selection.scopes.empty()) json["scopes"] = selection.scopes;
  if (!selection.families.empty()) json["families"] = selection.families;
  if (!selection.pattern.empty()) json["pattern"] = selection.pattern;
  if (selection.digest) json["digest"] = selection.digest->to_hex();
  if (selection.before_ns) json["before_ns"] = *selection.before_ns;
  return json;
}

/// A condition that cannot be read must not count as none: more would be purged than was meant.
std::optional<layout::Selection> selection_from(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  constexpr std::array<std::string_view, 5> kKnown{"scopes", "families", "pattern", "digest", "before_ns"};
  for (const auto& [name, value] : json.items()) {
    if (std::ranges::find(kKnown, name) == kKnown.end()) return std::nullopt;
  }
  layout::Selection selection;
  if (!take_texts(json, "scopes", layout::kSelectedScopesLimit, selection.scopes)) return std::nullopt;
  if (!take_texts(json, "families", kNamesLimit, selection.families)) return std::nullopt;
  if (const auto found = json.find("pattern"); found != json.end()) {
    if (!found->is_string() || found->get<std::string>().size() > codec::kPathLimit) return std::nullopt;
    selection.pattern = found->get<std::string>();
  }
  if (const auto found = json.find("digest"); found != json.end()) {
    if (!found->is_string()) return std::nullopt;
    selection.digest = codec::Digest::from_hex(found->get<std::string>());
    if (!selection.digest) return std::nullopt;
  }
  if (const auto found = json.find("before_ns"); found != json.end()) {
    if (!found->is_number_integer()) return std::nullopt;
    selection.before_ns = found->get<int64_t>();
  }
  return selection;
}

std::optional<Orders> parse_orders(std::string_view text) {
  const Json json = config::from_text(text);
  if (!json.is_object()) return std::nullopt;
  if (config::number_at(json, "v") != 1) return std::nullopt;
  Orders orders;
  const Json& freeze = config::part_of(json, "freeze");
  if (freeze.contains("frozen")) orders.freeze = freeze_from(freeze);
  orders.dropped = time_at(json, "dropped");
  for (const Json& one : config::part_of(json, "purges")) {
    if (orders.purges.size() == kPurgeOrders) break;
    if (!one.is_object() || !one.contains("selection")) break;
    auto selection = selection_from(one.at("selection"));
    const int64_t id = time_at(one, "id");
    const bool follows = orders.purges.empty() || orders.purges.back().id < id;
    // What comes behind an order that cannot be read would acknowledge that one, too.
    if (!selection || id <= 0 || !follows) break;
    orders.purges.push_back({id, std::move(*selection)});
  }
  return orders;
}

int64_t next_number(int64_t server_time, int64_t last) {
  return std::max(server_time, std::min(last, server_time + kMostAhead) + 1);
}

std::string encode_orders(Orders orders) {
  while (true) {
    Json purges = Json::array();
    for (const PurgeOrder& one : orders.purges) {
      purges.push_back(Json::object({{"id", one.id}, {"selection", to_json(one.selection)}}));
    }
    std::string text = config::to_line(Json::object(
        {{"v", 1}, {"freeze", to_json(orders.freeze)}, {"purges", std::move(purges)}, {"dropped", orders.dropped}}));
    const bool fits = text.size() <= remote::kOrdersLimit && orders.purges.size() <= kPurgeOrders;
    if (fits || orders.purges.empty()) return text;
    orders.dropped = std::max(orders.dropped, orders.purges.front().id);
    orders.purges.erase(orders.purges.begin());
  }
}

std::string cluster_id(const std::string& url, const std::string& prefix) {
  constexpr size_t kDigits = 32;
  return url.empty() ? std::string() : codec::digest_of(url + "\n" + prefix).to_hex().substr(0, kDigits);
}

HeardOrders read_heard(const std::string& store, const std::string& cluster) {
  const auto text = read_file(AT_FDCWD, store + "/" + kHeardFile, kHeardLimit);
  const Json json = text ? config::from_text(*text) : Json();
  HeardOrders heard;
  if (!json.is_object() || cluster.empty() || config::text_at(json, "cluster") != cluster) return heard;
  heard.freeze = freeze_from(config::part_of(json, "freeze"));
  // Of a clock that was ahead. A server that has lost this order may give a smaller number to the next one.
  heard.freeze.at = std::min(heard.freeze.at, system_clock().wall_now() / 1'000'000);
  heard.purged = time_at(json, "purged");
  return heard;
}

Result<void> write_heard(const std::string& store, const std::string& cluster, const HeardOrders& heard) {
  const Json json =
      Json::object({{"v", 1}, {"cluster", cluster}, {"freeze", to_json(heard.freeze)}, {"purged", heard.purged}});
  INDUCTORFS_TRY_ASSIGN(const auto directory, open_at(AT_FDCWD, store, O_RDONLY | O_DIRECTORY));
  return write_file_durably(directory.get(), kHeardFile, config::to_line(json) + "\n", 0600);
}

std::string frozen_text(const FreezeOrder& freeze) {
  if (!freeze.frozen) return {};
  const std::time_t seconds = freeze.at / 1000;
  std::tm parts{};
  std::array<char, 32> when{};
  if (::gmtime_r(&seconds, &parts) == nullptr ||
      std::strftime(when.data(), when.size(), "%Y-%m-%d %H:%M UTC", &parts) == 0) {
    when[0] = '?';
  }
  std::string text = std::string("the cluster is frozen since ") + when.data();
  if (!freeze.by.empty()) text += " by " + freeze.by;
  return freeze.why.empty() ? text : text + ": " + freeze.why;
}

}  // namespace inductorfs::mount
