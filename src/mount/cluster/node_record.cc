// SPDX-License-Identifier: Apache-2.0
#include "mount/cluster/node_record.h"

#include "inductorfs/config/json.h"

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

}  // namespace inductorfs::mount
