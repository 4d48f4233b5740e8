// SPDX-License-Identifier: Apache-2.0
#include "mount/cluster/node_record.h"

#include "inductorfs/config/json.h"
#include "inductorfs/config/paths.h"

namespace inductorfs::mount {

config::Json parse_node_record(const std::string& text) {
  using config::Json;
  constexpr int kDeepest = 3;
  constexpr int kMostParts = 256;
  int parts = 0;
  bool is_fine = true;
  const auto look = [&](int depth, Json::parse_event_t, Json&) {
    is_fine = is_fine && depth <= kDeepest && ++parts <= kMostParts;
    return is_fine;
  };
  Json parsed = Json::parse(text, look, false);
  return is_fine ? parsed : Json();
}

std::string shown_mountpoint(const std::string& mountpoint) {
  constexpr size_t kPathShown = 512;
  return config::printable(mountpoint.substr(0, kPathShown));
}

std::string node_name(const std::string& host, const std::string& mountpoint) {
  return config::to_line(config::Json::array({host, shown_mountpoint(mountpoint)}));
}

config::Json parse_node_name(const std::string& name) {
  const config::Json parts = parse_node_record(name);
  const bool is_name = parts.is_array() && parts.size() == 2 && parts[0].is_string() && parts[1].is_string();
  return is_name ? config::Json::object({{"host", parts[0]}, {"mountpoint", parts[1]}}) : config::Json();
}

}  // namespace inductorfs::mount
