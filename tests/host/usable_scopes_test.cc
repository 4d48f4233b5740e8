// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/host/usable_scopes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "inductorfs/fingerprint/writers.h"
#include "inductorfs/layout/scope.h"
#include "support/learned_facts.h"

namespace inductorfs::host {
namespace {

using fingerprint::Facet;
using fingerprint::Fingerprint;
using layout::Family;
using testing::facts::all_known;
using testing::facts::known;
using testing::facts::unknown;

constexpr OpenFacts kJobs{true, false};

remote::ScopeInformation announced(Family family, const Fingerprint& facts) {
  const layout::Scope scope = layout::scope_of(family, facts);
  EXPECT_FALSE(scope.id.empty()) << scope.why_private;
  return {scope.id, std::string(layout::rule_of(family).name), scope.text};
}

bool has(const std::vector<Family>& families, Family family) {
  return std::find(families.begin(), families.end(), family) != families.end();
}

/// A host with a GPU that knows nothing of its jobs' packages.
Fingerprint host() {
  Fingerprint facts = all_known();
  for (const Facet facet : {Facet::kTorch, Facet::kTriton, Facet::kPython}) facts.set(facet, unknown("of the job"));
  facts.set(Facet::kCuda, known("driver=570"));
  facts.set(Facet::kCpuIsa, known("isa=avx512"));
  return facts;
}

Fingerprint job(const std::string& torch) {
  Fingerprint facts;
  facts.set(Facet::kTorch, known("version=" + torch));
  facts.set(Facet::kTriton, known("version=3"));
  facts.set(Facet::kPython, known("version=3.12"));
  return fingerprint::with_job(host(), facts);
}

TEST(UsableScopes, AreThoseOfEveryJobThatThisHostCanHave) {
  for (const char* torch : {"2.8", "2.9"}) {
    for (const Family family : {Family::kFxGraph, Family::kTritonKernel, Family::kCppBinary}) {
      const auto scope = announced(family, job(torch));
      EXPECT_TRUE(has(families_here(host(), kJobs, scope), family)) << scope.text;
      EXPECT_EQ(foreign_facets(host(), kJobs, scope), "");
      EXPECT_FALSE(has(families_here(host(), {}, scope), family)) << "this host does not learn environments";
    }
  }
}

TEST(UsableScopes, AreThoseOfEveryEngine) {
  Fingerprint served = job("2.9");
  served.set(Facet::kEngine, known("vllm=0.32.0 aaa"));
  const auto scope = announced(Family::kVllmModel, served);
  EXPECT_TRUE(has(families_here(host(), kJobs, scope), Family::kVllmModel)) << scope.text;
  EXPECT_EQ(foreign_facets(host(), kJobs, scope), "");
}

TEST(UsableScopes, AreNotThoseOfOtherHosts) {
  for (const Facet facet : {Facet::kGpu, Facet::kCuda, Facet::kCpuIsa}) {
    Fingerprint theirs = job("2.9");
    theirs.set(facet, known("driver=580\nisa=avx2"));
    const auto scope = announced(Family::kFxGraph, theirs);
    EXPECT_TRUE(families_here(host(), kJobs, scope).empty()) << scope.text;
    EXPECT_EQ(foreign_facets(host(), kJobs, scope), to_string(facet));
  }
}

TEST(UsableScopes, PartTheUsersOnlyWhereTheMountDoes) {
  Fingerprint theirs = job("2.9");
  theirs.set(Facet::kTrust, known("user=alice"));
  const auto scope = announced(Family::kFxGraph, theirs);
  EXPECT_TRUE(families_here(host(), kJobs, scope).empty());
  EXPECT_TRUE(has(families_here(host(), {true, true}, scope), Family::kFxGraph));
}

TEST(UsableScopes, AreNoneForATextThatSaysMore) {
  auto scope = announced(Family::kFxGraph, job("2.9"));
  scope.text += "facet=moon\nfull\n";
  scope.id = codec::digest_of(scope.text).to_hex();
  EXPECT_TRUE(families_here(host(), kJobs, scope).empty());
  EXPECT_EQ(foreign_facets(host(), kJobs, scope), "moon");
  scope.text = "noise";
  scope.id = codec::digest_of(scope.text).to_hex();
  EXPECT_TRUE(families_here(host(), kJobs, scope).empty());
}

}  // namespace
}  // namespace inductorfs::host
