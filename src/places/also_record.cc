// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/also_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "inductorfs/base/encoding.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/config/json.h"
#include "inductorfs/places/also_state_json.h"

namespace inductorfs::places {

using config::Json;

namespace {

constexpr uint64_t kRecordLimit = 1ULL << 20;
constexpr std::string_view kSocketSuffix = ".sock";
constexpr std::string_view kRecordSuffix = ".also";

// A path may have any byte, JSON only UTF-8.
std::string bytes_of(const Json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end() || !at->is_string()) return {};
  return from_hex(at->get<std::string>()).value_or("");
}

/// Applies `convert` to the members of a place that may have any byte.
template <typename Convert>
void convert_texts(Json& item, Convert convert) {
  for (const char* name : {"name", "path", "why"}) {
    if (item.contains(name)) item[name] = convert(item[name]);
  }
  if (!item.contains("made") || !item["made"].is_array()) return;
  for (Json& directory : item["made"]) directory = convert(directory);
}

Json to_json(const AlsoState& state) {
  Json item = state_to_json(state);
  convert_texts(item, [](const Json& text) { return to_hex(text.get<std::string>()); });
  return item;
}

std::optional<AlsoState> from_json(Json item) {
  convert_texts(item, [](const Json& text) {
    return text.is_string() ? from_hex(text.get<std::string>()).value_or("") : std::string();
  });
  std::optional<AlsoState> state = state_from_json(item);
  if (!state || state->also.path.empty() || state->also.path.front() != '/') return std::nullopt;
  std::erase_if(state->made, [](const std::string& path) { return path.empty() || path.front() != '/'; });
  return state;
}

}  // namespace

std::string also_record_path(const std::string& socket) {
  const size_t suffix = socket.size() - std::min(socket.size(), kSocketSuffix.size());
  const bool is_socket = std::string_view(socket).substr(suffix) == kSocketSuffix;
  return (is_socket ? socket.substr(0, suffix) : socket) + std::string(kRecordSuffix);
}

Result<void> write_also_record(const std::string& path, const AlsoRecord& record) {
  Json places = Json::array();
  for (const AlsoState& state : record.places) {
    const bool shown = state.kind == AlsoState::Kind::kBound || state.kind == AlsoState::Kind::kLinked;
    if (shown || !state.made.empty()) places.push_back(to_json(state));
  }
  if (places.empty()) {
    (void)::unlink(path.c_str());  // mostly there was none
    return {};
  }
  const Json whole = {{"mountpoint", to_hex(record.mountpoint)}, {"places", std::move(places)}};
  return write_file_atomically(AT_FDCWD, path, config::to_line(whole) + "\n", 0600);
}

std::optional<AlsoRecord> read_also_record(const std::string& path) {
  const Result<std::string> text = read_file(AT_FDCWD, path, kRecordLimit);
  if (!text) return std::nullopt;
  const Json whole = Json::parse(*text, nullptr, false);
  if (!whole.is_object()) return std::nullopt;
  AlsoRecord record;
  record.mountpoint = bytes_of(whole, "mountpoint");
  const auto places = whole.find("places");
  if (record.mountpoint.empty() || places == whole.end() || !places->is_array()) return std::nullopt;
  for (const Json& item : *places) {
    if (!item.is_object()) continue;
    if (auto state = from_json(item)) record.places.push_back(std::move(*state));
  }
  return record;
}

void take_back_recorded(const std::string& path) {
  if (const std::optional<AlsoRecord> record = read_also_record(path)) {
    for (auto state = record->places.rbegin(); state != record->places.rend(); ++state) {
      take_away_place(record->mountpoint, *state);
    }
  }
  (void)::unlink(path.c_str());  // there may be none
}

}  // namespace inductorfs::places
