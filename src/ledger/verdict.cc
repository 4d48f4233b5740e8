// SPDX-License-Identifier: Apache-2.0
#include "verdict.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
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
  Json explained = Json::object();
};
using Reasons = std::map<std::string, Reason>;

/// What was found out of the misses of one family that look alike, by the reason.
std::map<std::string, Json> found_out(const JobAccount& job, layout::Family family, vfs::UseKind why) {
  std::map<std::string, Json> reasons;
  for (const Miss& miss : job.misses) {
    if (miss.family != family || miss.why != why || !miss.word.empty() || miss.explained.empty()) continue;
    Json explained = config::from_text(miss.explained);
    const std::string reason = config::text_at(explained, "reason");
    if (!reason.empty()) reasons[reason] = std::move(explained);
  }
  return reasons;
}

void add(Reasons& reasons, const std::string& reason, layout::Family family, uint64_t count, const Json& explained) {
  if (count == 0) return;
  Reason& one = reasons[reason];
  one.count += count;
  one.families.emplace(layout::rule_of(family).name);
  if (!explained.empty()) one.explained = explained;
}

}  // namespace

Json reasons_report(const JobAccount& job) {
  Reasons reasons;
  for (const auto& [family, tally] : job.tally.families) {
    for (const auto& [why, count] : tally.missed) {
      const auto found = found_out(job, family, why);
      const bool is_one = found.size() == 1;
      const uint64_t asked = is_one ? count : std::min<uint64_t>(count, found.size());
      for (const auto& [reason, explained] : found) add(reasons, reason, family, is_one ? count : 1, explained);
      add(reasons, std::string(word_of(why)), family, count - asked, {});
    }
    for (const auto& [word, count] : tally.missed_otherwise) add(reasons, word, family, count, {});
    add(reasons, std::string(word_of(vfs::UseKind::kRefused)), family, tally.refused, {});
  }
  std::vector<std::pair<std::string, Reason>> sorted(reasons.begin(), reasons.end());
  std::ranges::stable_sort(sorted,
                           [](const auto& one, const auto& two) { return one.second.count > two.second.count; });
  Json report = Json::array();
  for (const auto& [reason, one] : sorted) {
    report.push_back({{"reason", reason},
                      {"count", one.count},
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
