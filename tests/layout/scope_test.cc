// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/layout/scope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/codec/digest.h"

namespace inductorfs::layout {
namespace {

using fingerprint::Facet;
using fingerprint::Fingerprint;

void set_value(Fingerprint& facts, Facet facet, const std::string& value) {
  fingerprint::Fact fact;
  fact.known = true;
  fact.value = value;
  fact.source = "test";
  facts.set(facet, std::move(fact));
}

void set_unknown(Fingerprint& facts, Facet facet, const std::string& problem) {
  fingerprint::Fact fact;
  fact.problem = problem;
  facts.set(facet, std::move(fact));
}

Fingerprint full_fingerprint() {
  Fingerprint facts;
  for (const Facet facet : fingerprint::kAllFacets) {
    set_value(facts, facet, "value=" + std::string(to_string(facet)));
  }
  return facts;
}

TEST(ScopeOf, HasItsGoldenText) {
  const Scope scope = scope_of(Family::kBestConfig, full_fingerprint());

  EXPECT_EQ(scope.text,
            "inductorfs-scope-v1\n"
            "facet=environment\nvalue=environment\n"
            "facet=gpu\nvalue=gpu\n"
            "facet=torch\nvalue=torch\n"
            "facet=triton\nvalue=triton\n");
  EXPECT_EQ(scope.id, codec::digest_of(scope.text).to_hex());
  EXPECT_EQ(scope.id, "45f08113db7b8fd3e84b60bb9ca002ca91e7542b50f70d082371f4dd02db4384");
  EXPECT_EQ(scope.why_private, "");
}

TEST(ScopeOf, NamesFacetsInOrderWhateverTheRulesOrder) {
  const Scope scope = scope_of(Family::kCppBinary, full_fingerprint());

  EXPECT_EQ(scope.text,
            "inductorfs-scope-v1\nfacet=cpu\nvalue=cpu\nfacet=environment\nvalue=environment\nfacet=libc\nvalue=libc\n"
            "facet=python\nvalue=python\nfacet=torch\nvalue=torch\n");
}

/// What everybody shares has the scope that it had before there was this facet.
TEST(ScopeOf, HasTheTrustFacetOfAUsersRootOnly) {
  const std::string everybodys = scope_of(Family::kBestConfig, full_fingerprint()).id;
  Fingerprint facts = full_fingerprint();
  set_value(facts, Facet::kTrust, std::string(fingerprint::kNone));
  EXPECT_EQ(scope_of(Family::kBestConfig, facts).id, everybodys);
  set_value(facts, Facet::kTrust, "user=alice");
  const Scope hers = scope_of(Family::kBestConfig, facts);
  EXPECT_NE(hers.text.find("facet=triton\nvalue=triton\nfacet=trust\nuser=alice\n"), std::string::npos) << hers.text;
  EXPECT_NE(hers.id, everybodys);
  set_unknown(facts, Facet::kTrust, "the name service does not answer");
  const Scope nobodys = scope_of(Family::kBestConfig, facts);
  EXPECT_EQ(nobodys.id, "");
  EXPECT_NE(nobodys.why_private.find("facet trust: the name service does not answer"), std::string::npos);
}

TEST(ScopeOf, IsEqualForEqualFacts) {
  for (const Rule& rule : all_rules()) {
    EXPECT_EQ(scope_of(rule.family, full_fingerprint()).id, scope_of(rule.family, full_fingerprint()).id);
  }
  EXPECT_EQ(scope_of(Family::kFxGraph, full_fingerprint()).id, scope_of(Family::kAotAutograd, full_fingerprint()).id);
  EXPECT_EQ(scope_of(Family::kCppBinary, full_fingerprint()).id,
            scope_of(Family::kVecIsaMarker, full_fingerprint()).id);
}

TEST(ScopeOf, DependsOnExactlyTheRulesFacets) {
  for (const Rule& rule : all_rules()) {
    if (!rule.shared) continue;
    const std::string id = scope_of(rule.family, full_fingerprint()).id;
    for (const Facet facet : fingerprint::kAllFacets) {
      Fingerprint changed = full_fingerprint();
      set_value(changed, facet, "value=other");
      const bool named = std::find(rule.facets.begin(), rule.facets.end(), facet) != rule.facets.end();
      EXPECT_EQ(scope_of(rule.family, changed).id != id, named) << rule.name << " " << to_string(facet);
    }
  }
}

/// Scopes are the cluster's: an engine that is installed, or a file of facts from before there was this facet, moves
/// nothing of torch's and Triton's.
TEST(ScopeOf, HasNoEngineWhereTheFamilyHasNone) {
  for (const Rule& rule : all_rules()) {
    if (!rule.shared || std::ranges::find(rule.facets, Facet::kEngine) != rule.facets.end()) continue;
    const Scope scope = scope_of(rule.family, full_fingerprint());
    EXPECT_EQ(scope.text.find("engine"), std::string::npos) << scope.text;
    Fingerprint facts = full_fingerprint();
    set_unknown(facts, Facet::kEngine, "not read");
    EXPECT_EQ(scope_of(rule.family, facts).id, scope.id) << rule.name;
    set_value(facts, Facet::kEngine, "none");
    EXPECT_EQ(scope_of(rule.family, facts).id, scope.id) << rule.name;
  }
}

TEST(ScopeOf, IsUnusedWhereThereIsNoEngine) {
  Fingerprint facts = full_fingerprint();
  EXPECT_NE(scope_of(Family::kVllmModel, facts).text.find("facet=engine\nvalue=engine\n"), std::string::npos);
  set_value(facts, Facet::kEngine, "none");
  const Scope none = scope_of(Family::kVllmModel, facts);
  EXPECT_EQ(none.id, "");
  EXPECT_TRUE(none.unused);
  EXPECT_EQ(none.why_private, "facet engine: no serving engine is installed beside torch");
  set_unknown(facts, Facet::kEngine, "not read");
  const Scope unknown = scope_of(Family::kVllmModel, facts);
  EXPECT_EQ(unknown.id, "");
  EXPECT_FALSE(unknown.unused) << "there may be one, and then this is a loss";
}

TEST(ScopeOf, IsPrivateWhereAFacetIsNotKnown) {
  Fingerprint facts = full_fingerprint();
  set_unknown(facts, Facet::kGpu, "the driver does not answer");
  set_unknown(facts, Facet::kTorch, "no torch in this interpreter");

  const Scope scope = scope_of(Family::kBestConfig, facts);

  EXPECT_EQ(scope.id, "");
  EXPECT_EQ(scope.text, "");
  EXPECT_NE(scope.why_private.find("gpu: the driver does not answer"), std::string::npos) << scope.why_private;
  EXPECT_NE(scope.why_private.find("torch: no torch in this interpreter"), std::string::npos) << scope.why_private;
  EXPECT_NE(scope_of(Family::kTritonKernel, facts).id, "");
}

TEST(ScopeOf, OfBinariesNeedsNoCompiler) {
  Fingerprint facts = full_fingerprint();
  set_unknown(facts, Facet::kCompiler, "there is none");
  for (const Family family : {Family::kCppBinary, Family::kVecIsaMarker}) {
    EXPECT_EQ(scope_of(family, facts).id, scope_of(family, full_fingerprint()).id);
    EXPECT_NE(scope_of(family, facts).id, "");
  }
  EXPECT_EQ(scope_of(Family::kPrecompiledHeader, facts).id, "");
}

TEST(ScopeOf, IsPrivateWhereNothingIsKnown) {
  for (const Rule& rule : all_rules()) {
    const Scope scope = scope_of(rule.family, Fingerprint());
    EXPECT_EQ(scope.id, "") << rule.name;
    EXPECT_NE(scope.why_private, "") << rule.name;
  }
}

TEST(ScopeOf, IsPrivateForAFamilyThatIsNeverShared) {
  const Scope scope = scope_of(Family::kLock, full_fingerprint());

  EXPECT_EQ(scope.id, "");
  EXPECT_NE(scope.why_private.find("lock is never shared"), std::string::npos);
}

TEST(ScopeOf, RefusesAValueThatCouldPassForAnotherFacet) {
  Fingerprint facts = full_fingerprint();
  set_value(facts, Facet::kGpu, "name=x\nfacet=torch\nvalue=torch");

  EXPECT_EQ(scope_of(Family::kBestConfig, facts).id, "");

  set_value(facts, Facet::kGpu, "");
  EXPECT_EQ(scope_of(Family::kBestConfig, facts).id, "");
}

// ---- the environment: only the variables that matter to the family

TEST(ScopeOf, LeavesOutVariablesThatDoNotMatterToTheFamily) {
  // Triton's own keys hold this one, torch's do not.
  Fingerprint facts = full_fingerprint();
  set_value(facts, Facet::kEnvironment, "none");
  const Fingerprint plain = facts;
  set_value(facts, Facet::kEnvironment, "TRITON_DEFAULT_FP_FUSION=0");

  for (const Family family : {Family::kFxGraph, Family::kAotAutograd, Family::kAotAutogradEntry, Family::kBestConfig,
                              Family::kSystemAutotune}) {
    EXPECT_NE(scope_of(family, facts).id, scope_of(family, plain).id) << rule_of(family).name;
    EXPECT_NE(scope_of(family, facts).text.find("facet=environment\nTRITON_DEFAULT_FP_FUSION=0\n"), std::string::npos);
  }
  for (const Family family : {Family::kTritonKernel, Family::kTritonLauncher, Family::kTritonAutotune,
                              Family::kGeneratedCode, Family::kCppSource, Family::kCppBinary}) {
    EXPECT_EQ(scope_of(family, facts).text, scope_of(family, plain).text) << rule_of(family).name;
  }
}

TEST(ScopeOf, KeepsVariablesOfNoKeyForTritonsKernels) {
  Fingerprint facts = full_fingerprint();
  set_value(facts, Facet::kEnvironment, "TRITON_DEFAULT_FP_FUSION=0\nTRITON_STORE_BINARY_ONLY=1");
  EXPECT_NE(scope_of(Family::kTritonKernel, facts).text.find("facet=environment\nTRITON_STORE_BINARY_ONLY=1\n"),
            std::string::npos);
}

TEST(ScopeOf, IsPrivateWhereAFileThatAVariableNamesIsNotKnown) {
  Fingerprint facts = full_fingerprint();
  set_value(facts, Facet::kEnvironment, "none");
  const Fingerprint plain = facts;
  set_value(facts, Facet::kEnvironment, "TRITON_PTXAS_PATH=not known: /x/ptxas does not exist");
  const Scope graphs = scope_of(Family::kFxGraph, facts);
  EXPECT_EQ(graphs.id, "");
  EXPECT_EQ(graphs.why_private, "facet environment: TRITON_PTXAS_PATH: /x/ptxas does not exist");
  for (const Family family : {Family::kTritonKernel, Family::kCppBinary}) {
    EXPECT_EQ(scope_of(family, facts).text, scope_of(family, plain).text) << rule_of(family).name;
  }
}

TEST(ScopeOf, KeepsTheCompilersVariablesForWhatItMakes) {
  Fingerprint facts = full_fingerprint();
  set_value(facts, Facet::kEnvironment, "CPATH=/opt/include");
  for (const Family family : {Family::kCppBinary, Family::kVecIsaMarker, Family::kPrecompiledHeader}) {
    EXPECT_NE(scope_of(family, facts).text.find("facet=environment\nCPATH=/opt/include\n"), std::string::npos);
  }
  EXPECT_NE(scope_of(Family::kFxGraph, facts).text.find("facet=environment\nnone\n"), std::string::npos);
}

// ---- scopes for each architecture

std::vector<std::string> ids_of(const std::vector<Scope>& scopes) {
  std::vector<std::string> ids;
  for (const Scope& scope : scopes) ids.push_back(scope.id);
  return ids;
}

Fingerprint with_devices(const std::string& architectures) {
  Fingerprint facts = full_fingerprint();
  set_value(facts, Facet::kGpuArch, architectures);
  return facts;
}

TEST(ScopeOfArchitecture, IsThatOfAHostWithSuchDevicesOnly) {
  const Fingerprint mixed = with_devices("cc=8.0\ncc=9.0");
  for (const std::string architecture : {"8.0", "9.0"}) {
    const Scope scope = scope_of(Family::kTritonKernel, mixed, architecture);
    const Scope alone = scope_of(Family::kTritonKernel, with_devices("cc=" + architecture));
    EXPECT_EQ(scope.text, alone.text);
    EXPECT_EQ(scope.id, alone.id);
    EXPECT_NE(scope.id, "");
    EXPECT_EQ(scope.text.find("cc=8.0") != std::string::npos, architecture == "8.0");
    EXPECT_EQ(scope_of(Family::kTritonKernel, with_devices("cc=" + architecture), architecture).id, alone.id);
  }
}

TEST(ScopeOfArchitecture, IsPrivateForOneThatTheHostLacks) {
  for (const Fingerprint& facts : {with_devices("cc=8.0\ncc=9.0"), with_devices("cc=9.0")}) {
    const Scope scope = scope_of(Family::kTritonKernel, facts, "10.0");
    EXPECT_EQ(scope.id, "");
    EXPECT_NE(scope.why_private.find("architecture 10.0"), std::string::npos) << scope.why_private;
    EXPECT_NE(scope.why_private.find("9.0"), std::string::npos) << scope.why_private;
  }
}

TEST(ScopeOfArchitecture, IsPrivateWhereNothingSaysForWhichOfTwo) {
  const Scope scope = scope_of(Family::kTritonKernel, with_devices("cc=8.0\ncc=9.0"));
  EXPECT_EQ(scope.id, "");
  EXPECT_NE(scope.why_private.find("8.0, 9.0"), std::string::npos) << scope.why_private;
  EXPECT_NE(scope_of(Family::kTritonKernel, with_devices("cc=9.0")).id, "");
}

TEST(ScopeOfArchitecture, IsTheOneScopeOfAHostWithoutADevice) {
  const Fingerprint facts = with_devices("none");
  const Scope scope = scope_of(Family::kTritonKernel, facts);
  EXPECT_NE(scope.id, "");
  EXPECT_EQ(scope_of(Family::kTritonKernel, facts, "9.0").id, scope.id);
  EXPECT_EQ(scope_of(Family::kTritonKernel, facts, "10.0").id, scope.id);
}

TEST(ScopeOfArchitecture, MeansNothingToOtherFamilies) {
  const Fingerprint facts = with_devices("cc=8.0\ncc=9.0");
  for (const Family family : {Family::kFxGraph, Family::kBestConfig, Family::kTritonLauncher, Family::kCppBinary}) {
    EXPECT_EQ(scope_of(family, facts, "10.0").id, scope_of(family, facts).id) << rule_of(family).name;
    EXPECT_NE(scope_of(family, facts).id, "");
  }
}

TEST(ScopesOf, AreOneForEachArchitecture) {
  const Fingerprint mixed = with_devices("cc=8.0\ncc=9.0\ncc=9.0");
  EXPECT_EQ(ids_of(scopes_of(Family::kTritonKernel, mixed)),
            (std::vector{scope_of(Family::kTritonKernel, mixed, "8.0").id,
                         scope_of(Family::kTritonKernel, mixed, "9.0").id}));
  EXPECT_EQ(ids_of(scopes_of(Family::kTritonKernel, with_devices("cc=9.0"))),
            (std::vector{scope_of(Family::kTritonKernel, with_devices("cc=9.0")).id}));
  EXPECT_EQ(scopes_of(Family::kTritonKernel, with_devices("none")).size(), 1U);
}

TEST(ScopesOf, AreOneForWhatDependsOnWholeDevices) {
  const Fingerprint mixed = with_devices("cc=8.0\ncc=9.0");
  for (const Rule& rule : all_rules()) {
    if (rule.family == Family::kTritonKernel) continue;
    EXPECT_EQ(ids_of(scopes_of(rule.family, mixed)), (std::vector{scope_of(rule.family, mixed).id})) << rule.name;
  }
}

TEST(ScopesOf, SayWhyThereIsNone) {
  Fingerprint facts = full_fingerprint();
  set_unknown(facts, Facet::kGpuArch, "the driver does not answer");
  const auto scopes = scopes_of(Family::kTritonKernel, facts);
  ASSERT_EQ(scopes.size(), 1U);
  EXPECT_EQ(scopes[0].id, "");
  EXPECT_NE(scopes[0].why_private.find("the driver does not answer"), std::string::npos);
  EXPECT_EQ(scope_of(Family::kTritonKernel, facts, "9.0").id, "");
}

}  // namespace
}  // namespace inductorfs::layout
