// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/also_state_json.h"

#include <exception>
#include <utility>

#include "inductorfs/config/also_json.h"

namespace inductorfs::places {

using config::Json;

Json state_to_json(const AlsoState& state) {
  Json json = config::also_to_json(state.also);
  json["kind"] = static_cast<int>(state.kind);
  json["why"] = state.why;
  json["made"] = state.made;
  json["mount"] = state.bound.mount;
  json["device"] = state.bound.device;
  return json;
}

std::optional<AlsoState> state_from_json(const Json& json) {
  auto also = config::also_from_json(json);
  if (!also) return std::nullopt;
  try {
    const int kind = json.at("kind").get<int>();
    if (kind < 0 || kind > static_cast<int>(AlsoState::Kind::kFailed)) return std::nullopt;
    return AlsoState{std::move(*also),
                     static_cast<AlsoState::Kind>(kind),
                     json.at("why").get<std::string>(),
                     json.at("made").get<std::vector<std::string>>(),
                     {json.at("mount").get<uint64_t>(), json.at("device").get<std::string>()}};
  } catch (const std::exception&) {
    return std::nullopt;  // a member is missing, or of another type
  }
}

Json states_to_json(const std::vector<AlsoState>& states) {
  Json json = Json::array();
  for (const AlsoState& state : states) json.push_back(state_to_json(state));
  return json;
}

std::optional<std::vector<AlsoState>> states_from_json(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  std::vector<AlsoState> states;
  for (const Json& one : json) {
    auto state = state_from_json(one);
    if (!state) return std::nullopt;
    states.push_back(std::move(*state));
  }
  return states;
}

}  // namespace inductorfs::places
