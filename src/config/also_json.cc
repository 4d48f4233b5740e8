// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/config/also_json.h"

namespace inductorfs::config {

Json also_to_json(const Also& also) { return {{"name", also.name}, {"path", also.path}}; }

std::optional<Also> also_from_json(const Json& json) {
  const auto name = json.find("name");
  const auto path = json.find("path");
  const bool whole = name != json.end() && name->is_string() && path != json.end() && path->is_string();
  if (!whole) return std::nullopt;
  return Also{name->get<std::string>(), path->get<std::string>()};
}

}  // namespace inductorfs::config
