// SPDX-License-Identifier: Apache-2.0
#include "node_record.h"

#include <algorithm>

namespace inductorfs::mount {
namespace {

constexpr Milliseconds kPatience{5'000};

}  // namespace

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

bool NodeCodecs::all_read(remote::Remote& cluster) {
  const SteadyTime now = std::chrono::steady_clock::now();
  const Answer known = answer_.with([](const Answer& answer) { return answer; });
  if (now < known.until) return known.all;
  const auto records = cluster.list_nodes(remote::kNodesLimit, Deadline::after(kPatience));
  if (!records) return false;
  const bool all = !records->empty() && std::ranges::all_of(*records, [this](const remote::NodeRecord& record) {
    const config::Json told = parse_node_record(record.text);
    const auto codec = told.is_object() ? told.find("codec") : told.end();
    return codec != told.end() && codec->is_number_unsigned() && codec->get<uint64_t>() >= codec_;
  });
  answer_.with([&](Answer& answer) { answer = {all, now + kHolds}; });
  return all;
}

}  // namespace inductorfs::mount
