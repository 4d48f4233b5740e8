// SPDX-License-Identifier: Apache-2.0
#include "rule_table.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "sample_names.h"

namespace inductorfs::layout {
namespace {

using fingerprint::Facet;

RuleChange share(const std::string& family, std::vector<Facet> facets) {
  RuleChange change;
  change.family = family;
  change.shared = true;
  change.facets = std::move(facets);
  return change;
}

RuleChange keep_private(const std::string& family) {
  RuleChange change;
  change.family = family;
  change.shared = false;
  return change;
}

RuleChange pattern(const std::string& family, const std::string& glob, std::vector<Facet> facets) {
  RuleChange change;
  change.family = family;
  change.pattern = glob;
  change.facets = std::move(facets);
  return change;
}

const Rule& rule_in(const RuleTable& table, std::string_view name) {
  for (const Rule& rule : table.rules()) {
    if (rule.name == name) return rule;
  }
  ADD_FAILURE() << "no rule " << name;
  return table.rules().front();
}

std::vector<Facet> facets_in(const RuleTable& table, std::string_view name) {
  const auto facets = rule_in(table, name).facets;
  return {facets.begin(), facets.end()};
}

std::string problem(const std::vector<RuleChange>& changes) {
  const auto table = RuleTable::make(changes);
  if (table) return {};
  EXPECT_EQ(table.error().code(), ErrorCode::kInvalid);
  return table.error().what();
}

TEST(RuleTable, IsTheBuiltInOneWithoutChanges) {
  const auto table = RuleTable::make({});
  ASSERT_TRUE(table.has_value());
  ASSERT_EQ((*table)->rules().size(), built_in_rules().size());
  EXPECT_EQ((*table)->configured_family("anything"), std::nullopt);
}

TEST(RuleTable, TightensAndLoosens) {
  RuleChange tighter;
  tighter.family = "generated_code";
  tighter.facets = {{Facet::kTorch, Facet::kTriton, Facet::kPython}};
  const auto table =
      RuleTable::make({keep_private("fxgraph"), tighter, share("triton_launcher", {Facet::kTriton, Facet::kPython})});

  ASSERT_TRUE(table.has_value()) << table.error().to_string();
  EXPECT_FALSE(rule_in(**table, "fxgraph").shared);
  EXPECT_NE(rule_in(**table, "fxgraph").why.find("by the configuration"), std::string::npos);
  EXPECT_TRUE(rule_in(**table, "generated_code").shared);
  EXPECT_EQ(facets_in(**table, "generated_code"), (std::vector{Facet::kTorch, Facet::kTriton, Facet::kPython}));
  EXPECT_EQ(facets_in(**table, "triton_launcher"), (std::vector{Facet::kTriton, Facet::kPython}));
  EXPECT_TRUE(rule_in(**table, "aotautograd").shared) << "what is not named stays";
}

TEST(RuleTable, SharesWhatTheProjectKeepsPrivate) {
  const auto table = RuleTable::make({share("object_cache", {Facet::kGpu, Facet::kPython})});
  ASSERT_TRUE(table.has_value()) << table.error().to_string();
  EXPECT_TRUE(rule_in(**table, "object_cache").shared);
  EXPECT_NE(problem({[] {
              RuleChange change;
              change.family = "object_cache";
              change.shared = true;
              return change;
            }()})
                .find("needs facets"),
            std::string::npos);
}

TEST(RuleTable, RefusesWhatCanNeverBeShared) {
  for (const char* name : {"lock", "temporary", "tool", "other"}) {
    EXPECT_NE(problem({share(name, {Facet::kTorch})}).find("cannot be shared"), std::string::npos) << name;
    RuleChange facets;
    facets.family = name;
    facets.facets = {{Facet::kTorch}};
    EXPECT_NE(problem({facets}), "") << name;
    EXPECT_EQ(problem({keep_private(name)}), "") << name;
  }
}

TEST(RuleTable, NamesTheChangeAndTheRemedy) {
  EXPECT_NE(problem({keep_private("fxgraphs")}).find("\"fxgraphs\": is not known"), std::string::npos);
  EXPECT_NE(problem({keep_private("fxgraph"), keep_private("fxgraph")}).find("changed twice"), std::string::npos);
  EXPECT_NE(problem({share("fxgraph", {})}).find("empty list of facets"), std::string::npos);
  EXPECT_NE(problem({share("fxgraph", {Facet::kGpu, Facet::kGpu})}).find("facet gpu twice"), std::string::npos);
  EXPECT_NE(problem({pattern("fxgraph", "a/**", {Facet::kGpu})}).find("another name"), std::string::npos);
  EXPECT_NE(problem({pattern("Mine", "a/**", {Facet::kGpu})}).find("a-z"), std::string::npos);
  EXPECT_NE(problem({pattern("mine", "../a", {Facet::kGpu})}).find("relative to the mount"), std::string::npos);
  RuleChange bare;
  bare.family = "mine";
  bare.pattern = "a/**";
  EXPECT_NE(problem({bare}).find("needs facets"), std::string::npos);
}

TEST(RuleTable, HasALimitOfFamiliesOfItsOwn) {
  std::vector<RuleChange> changes;
  for (size_t i = 0; i < kConfiguredFamilyLimit; ++i) {
    changes.push_back(pattern("mine" + std::to_string(i), "a/**", {Facet::kGpu}));
  }
  EXPECT_EQ(problem(changes), "");
  changes.push_back(pattern("one_more", "a/**", {Facet::kGpu}));
  EXPECT_NE(problem(changes), "");
}

TEST(RuleTable, GivesPatternsFamiliesOfTheirOwn) {
  const auto table =
      RuleTable::make({pattern("first", "mine/*.bin", {Facet::kGpu}), pattern("all", "mine/**", {Facet::kTorch})});
  ASSERT_TRUE(table.has_value()) << table.error().to_string();
  const auto first = static_cast<Family>(static_cast<int>(Family::kOther) + 1);
  const auto second = static_cast<Family>(static_cast<int>(Family::kOther) + 2);

  EXPECT_EQ((*table)->configured_family("mine/x.bin"), first);
  EXPECT_EQ((*table)->configured_family("mine/x/y.bin"), second);
  EXPECT_EQ((*table)->configured_family("mine"), std::nullopt);
  EXPECT_EQ(rule_in(**table, "first").family, first);
  EXPECT_EQ(rule_in(**table, "all").family, second);
  EXPECT_TRUE(rule_in(**table, "first").shared);
  EXPECT_EQ(rule_in(**table, "first").seal, SealSign::kRename);
  EXPECT_EQ(rule_in(**table, "first").contest, Contest::kNone);
  EXPECT_EQ(rule_in(**table, "first").pattern, "mine/*.bin");
}

/// change_rules() is for a whole process, so that this one forks: what the child finds wrong it prints.
[[noreturn]] void use_changed_rules() {
  const auto expect = [](bool good, const char* what) {
    if (good) return;
    (void)std::fprintf(stderr, "wrong: %s\n", what);
    std::_Exit(1);
  };
  expect(change_rules({}).has_value(), "no change is none");
  expect(!change_rules({keep_private("nothing")}).has_value(), "a bad change");
  expect(all_rules().size() == built_in_rules().size(), "a bad change changes nothing");
  expect(change_rules({keep_private("best_config"), pattern("mine", "triton/*/mine/**", {Facet::kGpuArch}),
                       share("object_cache", {Facet::kTorch})})
             .has_value(),
         "good changes");
  expect(all_rules().size() == built_in_rules().size() + 1, "one family more");

  const Classification classified = classify("triton/3/mine/x");
  expect(rule_of(classified.family).name == "mine", "its family");
  expect(classified.canonical == "triton/@/mine/x", "its canonical path");
  expect(classify(classified.canonical).family == classified.family, "the same family by its canonical path");
  expect(classify("triton/3/mine/x.lock").family == Family::kLock, "a lock stays one");
  expect(classify("triton/3/mine/.1.2.tmp").family == Family::kTemporary, "a temporary name stays one");
  expect(classify("triton/0/" + samples::kKey + "/mine").family == Family::kTritonKernel,
         "a built-in family goes first");
  expect(check_content(classified, "anything", 8).has_value(), "nothing is known of its content");
  expect(!check_content(classified, "", 0).has_value(), "but that it is not empty");
  expect(bytes_to_check(classified, 1 << 30) < (1 << 30), "a head is enough");

  fingerprint::Fingerprint facts;
  for (const Facet facet : fingerprint::kAllFacets) {
    fingerprint::Fact fact;
    fact.known = true;
    fact.value = facet == Facet::kGpuArch ? "cc=8.0\ncc=9.0" : "x=1";
    facts.set(facet, fact);
  }
  expect(scope_of(classified.family, facts, "9.0").text == "inductorfs-scope-v1\nfacet=gpu-arch\ncc=9.0\n",
         "its scope");
  expect(scopes_of(classified.family, facts).size() == 2, "one scope for each architecture");
  expect(scope_of(Family::kBestConfig, facts).id.empty(), "a family that is kept private");
  expect(!scope_of(Family::kObjectCache, facts).id.empty(), "a family that is shared now");
  expect(!change_rules({keep_private("fxgraph")}).has_value(), "once only");
  std::_Exit(0);
}

TEST(ChangeRules, HoldForTheWholeProcess) { EXPECT_EXIT(use_changed_rules(), ::testing::ExitedWithCode(0), ""); }

}  // namespace
}  // namespace inductorfs::layout
