// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/host/report.h"

#include <gtest/gtest.h>

#include "inductorfs/config/json.h"
#include "inductorfs/host/host.h"
#include "support/learned_facts.h"

namespace inductorfs::host {

using config::Json;

namespace {

using fingerprint::Facet;
using fingerprint::Fact;
using fingerprint::Fingerprint;
using testing::facts::all_known;
using testing::facts::known;
using testing::facts::unknown;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const Json& family_of(const Json& report, const std::string& name) {
  static const Json kNone;
  for (const Json& family : report["families"]) {
    if (family["family"] == name) return family;
  }
  return kNone;
}

TEST(FingerprintReport, IsAFingerprintWithDigestsAndScopes) {
  const Fingerprint facts = all_known();
  const Json report = fingerprint_report(facts);

  const Result<Fingerprint> read = Fingerprint::from_json(report.dump());
  ASSERT_TRUE(read.has_value()) << read.error().what();
  EXPECT_EQ(read->get(Facet::kGpu).value, "v=gpu");
  EXPECT_EQ(report["facets"]["torch"]["digest"], codec::digest_of("v=torch").to_hex());
  EXPECT_EQ(report["families"]["fxgraph"]["scopes"][0], Scopes(facts).of(layout::Family::kFxGraph).id);
}

TEST(FingerprintReport, SaysWhatAnUnknownFacetCosts) {
  Fingerprint facts = all_known();
  facts.set(Facet::kCompiler, unknown("no g++: install one"));
  const Json report = fingerprint_report(facts);

  EXPECT_EQ(report["facets"]["compiler"]["known"], false);
  const std::string lost = report["facets"]["compiler"]["makes_private"].dump();
  EXPECT_TRUE(has(lost, "precompiled_header")) << lost;
  EXPECT_FALSE(has(lost, "fxgraph")) << lost;
  EXPECT_TRUE(has(report["families"]["precompiled_header"]["why_private"], "no g++"));
  const std::string text = fingerprint_text(report);
  EXPECT_TRUE(has(text, "compiler: NOT KNOWN: no g++: install one\n")) << text;
  EXPECT_TRUE(has(text, "    private because of it: precompiled_header")) << text;
  EXPECT_TRUE(has(text, "private: ")) << text;
}

TEST(FingerprintText, ShowsValuesDetailsAndWarnings) {
  Fingerprint facts = all_known();
  Fact gpu = known("device=H100\nother=1", "CUDA driver");
  gpu.details = "gpu0.uuid=GPU-1\ngpu0.x=\x1b[31m";
  gpu.problem = "the driver hangs";
  facts.set(Facet::kGpu, gpu);

  const std::string text = fingerprint_text(fingerprint_report(facts));

  EXPECT_TRUE(has(text, "gpu (CUDA driver)\n    device=H100\n    other=1\n")) << text;
  EXPECT_TRUE(has(text, "    . gpu0.uuid=GPU-1\n")) << text;
  EXPECT_TRUE(has(text, "    ! the driver hangs\n")) << text;
  EXPECT_TRUE(has(text, "    sha256 " + codec::digest_of(gpu.value).to_hex())) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(FingerprintText, TakesWhatItGets) {
  EXPECT_FALSE(fingerprint_text(Json::parse(R"({"facets":7,"families":[1]})")).empty());
  EXPECT_FALSE(fingerprint_text(Json::object()).empty());
}

TEST(FamiliesReport, HasEveryRule) {
  const Json report = families_report(all_known());
  EXPECT_EQ(report["families"].size(), layout::all_rules().size());
  const Json& graph = family_of(report, "fxgraph");
  EXPECT_EQ(graph["shared"], true);
  EXPECT_EQ(graph["seal"], "rename");
  EXPECT_EQ(graph["contest"], "candidates");
  EXPECT_TRUE(has(graph["facets"].dump(), "cpu-isa"));
  EXPECT_EQ(graph["scopes"].size(), 1U);
  EXPECT_FALSE(graph["why"].get<std::string>().empty());

  const std::string text = families_text(report);
  EXPECT_TRUE(has(text, "fxgraph             yes      rename")) << text;
  EXPECT_TRUE(has(text, graph["scopes"][0].get<std::string>().substr(0, 12)));
  EXPECT_TRUE(has(text, "lock                no ")) << text;
}

TEST(FamiliesReport, SaysWhyAFamilyIsPrivateHere) {
  Fingerprint facts = all_known();
  facts.set(Facet::kTorch, unknown("no torch in this interpreter"));
  const std::string text = families_text(families_report(facts));
  EXPECT_TRUE(has(text, "fxgraph             not here")) << text;
  EXPECT_TRUE(has(text, "private here: ")) << text;
  EXPECT_TRUE(has(text, "no torch in this interpreter")) << text;
}

TEST(ComparisonReport, NamesWhatPartsTwoHosts) {
  const Json report = comparison_report(all_known({{Facet::kGpu, "device=H100\nsms=132"}}),
                                        all_known({{Facet::kGpu, "device=H200\nsms=132"}}));

  EXPECT_EQ(family_of(report, "generated_code")["shared"], true);
  const Json& tunings = family_of(report, "best_config");
  EXPECT_EQ(tunings["shared"], false);
  ASSERT_EQ(tunings["differences"].size(), 1U);
  EXPECT_EQ(tunings["differences"][0]["facet"], "gpu");
  EXPECT_TRUE(has(tunings["differences"][0]["ours"], "H100"));
  EXPECT_TRUE(has(tunings["differences"][0]["theirs"], "H200"));
  EXPECT_FALSE(has(tunings["differences"][0]["ours"], "sms"));

  const std::string text = comparison_text(report);
  EXPECT_TRUE(has(text, "best_config         NOT shared: gpu\n")) << text;
  EXPECT_TRUE(has(text, "generated_code      shared\n")) << text;
  EXPECT_TRUE(has(text, "- here:  device=H100\n")) << text;
  EXPECT_TRUE(has(text, "+ there: device=H200\n")) << text;
}

TEST(ComparisonReport, SaysWhichSideIsPrivate) {
  Fingerprint theirs = all_known();
  theirs.set(Facet::kCompiler, unknown("no compiler there"));
  const Json report = comparison_report(all_known(), theirs);
  const Json& headers = family_of(report, "precompiled_header");
  EXPECT_EQ(headers["shared"], false);
  EXPECT_TRUE(has(headers["private_there"], "no compiler there"));
  EXPECT_TRUE(has(comparison_text(report), "private there: "));
  EXPECT_EQ(family_of(report, "fxgraph")["shared"], true);
  EXPECT_FALSE(has(comparison_text(comparison_report(all_known(), all_known())), "NOT"));
}

TEST(ComparisonReport, SharesWhatOneArchitectureOfSeveralHasInCommon) {
  const Json report =
      comparison_report(all_known({{Facet::kGpuArch, "cc=8.0\ncc=9.0"}}), all_known({{Facet::kGpuArch, "cc=9.0"}}));
  EXPECT_EQ(family_of(report, "triton_kernel")["shared"], true);
}

TEST(NearestReport, IsTheScopeWithTheFewestDifferences) {
  const auto information = [](const Fingerprint& facts) {
    const layout::Scope scope = Scopes(facts).of(layout::Family::kFxGraph);
    return remote::ScopeInformation{scope.id, "fxgraph", scope.text};
  };
  const remote::ScopeInformation ours = information(all_known());
  const remote::ScopeInformation near = information(all_known({{Facet::kGpu, "v=other"}}));
  const remote::ScopeInformation far = information(all_known({{Facet::kGpu, "v=other"}, {Facet::kTorch, "v=old"}}));
  const layout::Scope code = Scopes(all_known({{Facet::kTorch, "v=old"}})).of(layout::Family::kGeneratedCode);

  const Json report = nearest_report(ours.text, {far, ours, near, {code.id, "generated_code", code.text}});

  EXPECT_EQ(report["scope"], near.id);
  EXPECT_EQ(report["others"], 2);
  ASSERT_EQ(report["differences"].size(), 1U);
  EXPECT_EQ(report["differences"][0]["facet"], "gpu");
  EXPECT_TRUE(nearest_report(ours.text, {ours}).contains("why_none"));
}

}  // namespace
}  // namespace inductorfs::host
