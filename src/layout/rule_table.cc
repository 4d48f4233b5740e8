// SPDX-License-Identifier: Apache-2.0
#include "rule_table.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <utility>

#include "inductorfs/layout/glob.h"
#include "name_shapes.h"

namespace inductorfs::layout {
namespace {

constexpr size_t kNameLimit = 64;

/// Written once, before any other thread uses the module (change_rules), and never freed: rules are referred to for as
/// long as the process lives.
std::atomic<const RuleTable*> table_in_force{nullptr};

tl::unexpected<Error> refuse(const RuleChange& change, std::string_view why) {
  return fail(ErrorCode::kInvalid, "family \"" + change.family + "\": " + std::string(why));
}

struct NeverShared {
  Family family;
  std::string_view why;
};

/// Why a family's files can never leave the host.
constexpr NeverShared kNeverShared[] = {
    {Family::kLock, "a lock is between the processes of one host: it cannot be shared"},
    {Family::kTemporary, "temporary names repeat between hosts, and two would write one file: they cannot be shared"},
    {Family::kParcelMember, "it is shared with the directory or the index that it belongs to"},
    {Family::kTool, "tool chains and logs that are appended to cannot be shared"},
    {Family::kOther, "what is not known cannot be shared as a whole: name a family of your own with a pattern"},
};

constexpr std::string_view kSigns[] = {"rename", "build directory", "quiet", "none"};
constexpr std::string_view kForms[] = {"file", "directory", "index"};
constexpr std::string_view kContests[] = {"none", "first", "candidates", "merge", "first of path"};

bool is_family_name(std::string_view name) {
  const auto fits = [](char c) { return c == '_' || is_in(c, kDigit) || (c >= 'a' && c <= 'z'); };
  return !name.empty() && name.size() <= kNameLimit && std::all_of(name.begin(), name.end(), fits);
}

}  // namespace

RuleTable::RuleTable() : rules_(built_in_rules().begin(), built_in_rules().end()) {}

Result<std::unique_ptr<const RuleTable>> RuleTable::make(const std::vector<RuleChange>& changes) {
  std::unique_ptr<RuleTable> table(new RuleTable());
  for (const RuleChange& change : changes) INDUCTORFS_TRY(table->apply(change));
  return table;
}

std::string_view RuleTable::keep(std::string text) { return texts_.emplace_back(std::move(text)); }

Result<void> RuleTable::apply(const RuleChange& change) {
  if (std::find(changed_.begin(), changed_.end(), change.family) != changed_.end()) {
    return refuse(change, "is changed twice: put both changes into one");
  }
  changed_.push_back(keep(change.family));
  const auto rule =
      std::find_if(rules_.begin(), rules_.end(), [&change](const Rule& known) { return known.name == change.family; });
  if (!change.pattern.empty()) {
    return rule == rules_.end() ? add(change)
                                : refuse(change, "is built in and has its own paths: give a pattern another name");
  }
  if (rule == rules_.end()) {
    return refuse(change,
                  "is not known: `inductorfs fingerprint --families` lists them; a family of your own needs a "
                  "pattern");
  }
  return change_built_in(*rule, change);
}

Result<void> RuleTable::change_built_in(Rule& rule, const RuleChange& change) {
  const bool shared = change.shared.value_or(rule.shared);
  const auto* const never = std::ranges::find(kNeverShared, rule.family, &NeverShared::family);
  if (never != std::end(kNeverShared) && (shared || change.facets)) return refuse(change, never->why);
  if (change.facets) {
    INDUCTORFS_TRY_ASSIGN(const auto facets, facets_of(change));
    rule.facets = facets;
  }
  if (shared && rule.facets.empty()) return refuse(change, "needs facets: name the facts that it depends on");
  if (shared != rule.shared) {
    rule.why = keep((shared ? "shared by the configuration; built in it is not: "
                            : "not shared, by the configuration; built in it is: ") +
                    std::string(rule.why));
  } else if (change.facets) {
    rule.why = keep("facets of the configuration; built in: " + std::string(rule.why));
  }
  rule.shared = shared;
  return {};
}

Result<void> RuleTable::add(const RuleChange& change) {
  if (!is_family_name(change.family)) return refuse(change, "a name is 1 to 64 of a-z, 0-9 and _");
  if (const std::string problem = glob_problem(change.pattern); !problem.empty()) return refuse(change, problem);
  if (rules_.size() - built_in_rules().size() == kConfiguredFamilyLimit) {
    return refuse(change, "there are " + std::to_string(kConfiguredFamilyLimit) + " families of your own already");
  }
  Rule rule;
  rule.family = static_cast<Family>(rules_.size());
  rule.name = keep(change.family);
  rule.shared = change.shared.value_or(true);
  // Nothing is known of how these files are written: only a rename shows that one is whole.
  rule.seal = SealSign::kRename;
  rule.contest = Contest::kNone;
  if (change.facets) {
    INDUCTORFS_TRY_ASSIGN(const auto facets, facets_of(change));
    rule.facets = facets;
  }
  if (rule.shared && rule.facets.empty()) {
    return refuse(change, "a pattern needs facets: name the facts that its files depend on");
  }
  rule.why = "a family of the configuration";
  rule.source = "the configuration";
  rule.pattern = keep(change.pattern);
  rules_.push_back(rule);
  return {};
}

Result<std::span<const fingerprint::Facet>> RuleTable::facets_of(const RuleChange& change) {
  const std::vector<fingerprint::Facet>& facets = facets_.emplace_back(*change.facets);
  for (size_t i = 0; i < facets.size(); ++i) {
    if (std::count(facets.begin(), facets.end(), facets[i]) != 1) {
      return refuse(change, "names facet " + std::string(fingerprint::to_string(facets[i])) + " twice");
    }
  }
  if (facets.empty()) return refuse(change, "an empty list of facets would share it with everyone: name some");
  return std::span<const fingerprint::Facet>(facets);
}

std::optional<Family> RuleTable::configured_family(std::string_view path) const {
  for (size_t i = built_in_rules().size(); i < rules_.size(); ++i) {
    if (glob_matches(rules_[i].pattern, path)) return rules_[i].family;
  }
  return std::nullopt;
}

const RuleTable& rules_in_force() {
  static const auto built_in = RuleTable::make({}).value();
  const RuleTable* const changed = table_in_force.load(std::memory_order_acquire);
  return changed == nullptr ? *built_in : *changed;
}

Result<void> change_rules(const std::vector<RuleChange>& changes) {
  if (changes.empty()) return {};
  INDUCTORFS_TRY_ASSIGN(auto table, RuleTable::make(changes));
  const RuleTable* none = nullptr;
  if (!table_in_force.compare_exchange_strong(none, table.get(), std::memory_order_release)) {
    return fail(ErrorCode::kInvalid, "the rules have been changed already: start anew to change them");
  }
  (void)table.release();  // lives as long as the process
  return {};
}

const Rule& rule_of(Family family) {
  const auto rules = all_rules();
  const auto index = static_cast<size_t>(family);
  INDUCTORFS_CHECK(index < rules.size());
  return rules[index];
}

std::span<const Rule> all_rules() { return rules_in_force().rules(); }

std::string_view to_string(SealSign sign) { return kSigns[static_cast<size_t>(sign)]; }
std::string_view to_string(Form form) { return kForms[static_cast<size_t>(form)]; }
std::string_view to_string(Contest contest) { return kContests[static_cast<size_t>(contest)]; }

}  // namespace inductorfs::layout
