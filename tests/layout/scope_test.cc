// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/layout/scope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "inductorfs/codec/digest.h"

namespace inductorfs::layout {
namespace {

using fingerprint::Facet;
using fingerprint::Fingerprint;

Fingerprint full_fingerprint() {
  Fingerprint facts;
  for (const Facet facet : fingerprint::kAllFacets) {
    facts.set(facet,
              {.known = true, .value = "value=" + std::string(to_string(facet)), .source = "test", .problem = {}});
  }
  return facts;
}

void set_value(Fingerprint& facts, Facet facet, const std::string& value) {
  facts.set(facet, {.known = true, .value = value, .source = "test", .problem = {}});
}

TEST(ScopeOf, HasItsGoldenText) {
  const Scope scope = scope_of(Family::kBestConfig, full_fingerprint());

  EXPECT_EQ(scope.text,
            "inductorfs-scope-v1\n"
            "facet=gpu\nvalue=gpu\n"
            "facet=torch\nvalue=torch\n"
            "facet=triton\nvalue=triton\n");
  EXPECT_EQ(scope.id, codec::digest_of(scope.text).to_hex());
  EXPECT_EQ(scope.id, "4e2166974b4f8956fbc8208914703641c85cf07e0456013cb3e96bf55a9d529a");
  EXPECT_EQ(scope.why_private, "");
}

TEST(ScopeOf, NamesFacetsInOrderWhateverTheRulesOrder) {
  const Scope scope = scope_of(Family::kCppBinary, full_fingerprint());

  EXPECT_EQ(scope.text,
            "inductorfs-scope-v1\nfacet=compiler\nvalue=compiler\nfacet=cpu\nvalue=cpu\nfacet=libc\nvalue=libc\n"
            "facet=python\nvalue=python\nfacet=torch\nvalue=torch\n");
}

TEST(ScopeOf, IsEqualForEqualFacts) {
  for (const Rule& rule : all_rules()) {
    EXPECT_EQ(scope_of(rule.family, full_fingerprint()).id, scope_of(rule.family, full_fingerprint()).id);
  }
  EXPECT_EQ(scope_of(Family::kFxGraph, full_fingerprint()).id, scope_of(Family::kAotAutograd, full_fingerprint()).id);
  EXPECT_EQ(scope_of(Family::kCppBinary, full_fingerprint()).id,
            scope_of(Family::kPrecompiledHeader, full_fingerprint()).id);
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

TEST(ScopeOf, IsPrivateWhereAFacetIsNotKnown) {
  Fingerprint facts = full_fingerprint();
  facts.set(Facet::kGpu, {.known = false, .value = {}, .source = {}, .problem = "the driver does not answer"});
  facts.set(Facet::kTorch, {.known = false, .value = {}, .source = {}, .problem = "no torch in this interpreter"});

  const Scope scope = scope_of(Family::kBestConfig, facts);

  EXPECT_EQ(scope.id, "");
  EXPECT_EQ(scope.text, "");
  EXPECT_NE(scope.why_private.find("gpu: the driver does not answer"), std::string::npos) << scope.why_private;
  EXPECT_NE(scope.why_private.find("torch: no torch in this interpreter"), std::string::npos) << scope.why_private;
  EXPECT_NE(scope_of(Family::kTritonKernel, facts).id, "");
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

}  // namespace
}  // namespace inductorfs::layout
