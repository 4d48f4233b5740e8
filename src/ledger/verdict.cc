// SPDX-License-Identifier: Apache-2.0
#include "verdict.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "report.h"

namespace inductorfs::ledger {

using config::Json;

namespace {

struct Reason {
  uint64_t count = 0;
  std::set<std::string> families;
  bool of_graphs = false;
  uint64_t asked = 0;  ///< of these misses: those that were asked about
  Json explained = Json::object();
};
using Reasons = std::map<std::string, Reason>;

void add(Reasons& reasons, const std::string& reason, layout::Family family, uint64_t count, uint64_t asked,
         const std::string& explained) {
  if (count == 0) return;
  Reason& one = reasons[reason];
  one.count += count;
  one.asked += std::min(asked, count);
  one.families.emplace(layout::rule_of(family).name);
  using enum layout::Family;
  one.of_graphs = one.of_graphs || layout::rule_of(family).holds_graphs || family == kAotAutograd;
  if (!explained.empty()) one.explained = config::from_text(explained);
}

}  // namespace

Json reasons_report(const JobAccount& job) {
  Reasons reasons;
  for (const auto& [family, tally] : job.tally.families) {
    for (const auto& [why, count] : tally.missed) {
      const auto known = job.found_out.find({family, why});
      const auto& found = known == job.found_out.end() ? std::map<std::string, JobAccount::Found>{} : known->second;
      uint64_t left = count;
      for (const auto& [reason, one] : found) {
        const uint64_t part = found.size() == 1 ? count : std::min(left, one.count);
        add(reasons, reason, family, part, one.count, one.explained);
        left -= part;
      }
      add(reasons, std::string(word_of(why)), family, left, 0, {});
    }
    for (const auto& [word, count] : tally.missed_otherwise) add(reasons, word, family, count, 0, {});
    add(reasons, std::string(word_of(vfs::UseKind::kRefused)), family, tally.refused, tally.refused, {});
  }
  std::vector<std::pair<std::string, Reason>> sorted(reasons.begin(), reasons.end());
  // Sources and kernels are asked for because a graph was not found.
  const auto weight = [](const auto& one) { return std::make_pair(one.second.of_graphs, one.second.count); };
  std::ranges::stable_sort(sorted, [&](const auto& one, const auto& two) { return weight(one) > weight(two); });
  Json report = Json::array();
  for (const auto& [reason, one] : sorted) {
    report.push_back({{"reason", reason},
                      {"count", one.count},
                      {"asked", one.asked},
                      {"families", one.families},
                      {"text", config::text_at(one.explained, "text")},
                      {"nearest", config::part_of(one.explained, "nearest")}});
  }
  return report;
}

Json misses_report(const JobAccount& job) {
  Json misses = Json::array();
  for (auto at = job.misses.rbegin(); at != job.misses.rend(); ++at) {
    const Json explained = at->explained.empty() ? Json::object() : config::from_text(at->explained);
    const std::string reason = config::text_at(explained, "reason");
    const std::string why = at->word.empty() ? std::string(word_of(at->why)) : at->word;
    misses.push_back({{"at", config::utc(at->at)},
                      {"family", layout::rule_of(at->family).name},
                      {"path", at->path},
                      {"place", at->place},
                      {"why", why},
                      {"reason", reason.empty() ? why : reason},
                      {"text", config::text_at(explained, "text")},
                      {"nearest", config::part_of(explained, "nearest")}});
  }
  return misses;
}

}  // namespace inductorfs::ledger
