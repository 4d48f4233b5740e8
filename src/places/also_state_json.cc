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

}  // namespace inductorfs::places
