// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/fingerprint.h"

#include <gtest/gtest.h>

#include <set>

namespace inductorfs::fingerprint {
namespace {

TEST(Facet, NamesAreDistinctAndReadBack) {
  std::set<std::string_view> names;
  for (Facet facet : kAllFacets) {
    names.insert(to_string(facet));
    const auto back = facet_from_string(to_string(facet));
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, facet);
  }
  EXPECT_EQ(names.size(), std::size(kAllFacets));
  EXPECT_EQ(facet_from_string("gpu_arch").error().code(), ErrorCode::kInvalid);
}

TEST(Facet, NamesStayAsTheyAreInScopeDigests) {
  std::string all;
  for (Facet facet : kAllFacets) all += std::string(to_string(facet)) + " ";
  EXPECT_EQ(all, "torch triton cuda gpu gpu-arch python libc cpu cpu-isa compiler engine environment ");
}

TEST(Fingerprint, AFacetThatWasNeverSetIsUnknown) {
  const Fingerprint empty;
  EXPECT_FALSE(empty.get(Facet::kGpu).known);
  EXPECT_FALSE(empty.get(Facet::kGpu).problem.empty());
}

TEST(Fingerprint, ComesBackFromItsJson) {
  Fingerprint original;
  original.set(Facet::kTorch, {true, "key=ab\nversion=2.15.0+cu132", "/venv/torch", "", "git_version=cd\ncuda=13.2"});
  original.set(Facet::kGpu, {true, "device=NVIDIA \"H100\" \\ \xc3\xa9", "CUDA driver", "", ""});
  original.set(Facet::kCompiler, {false, "", "g++ -v", "no compiler", ""});
  original.set(Facet::kEnvironment, {true, "none", "declared for the mount", "", ""});
  const auto back = Fingerprint::from_json(original.to_json());
  ASSERT_TRUE(back) << back.error().to_string();
  for (Facet facet : kAllFacets) {
    const Fact& was = original.get(facet);
    const Fact& now = back->get(facet);
    EXPECT_EQ(now.known, was.known);
    EXPECT_EQ(now.value, was.value);
    EXPECT_EQ(now.source, was.source);
    EXPECT_EQ(now.problem, was.problem);
    EXPECT_EQ(now.details, was.details);
    EXPECT_EQ(now.digest(), was.digest());
  }
  EXPECT_EQ(back->to_json(), original.to_json());
}

TEST(Fingerprint, DetailsAreNoPartOfAFactsDigest) {
  const Fact plain{true, "version=1", "here", "", ""};
  const Fact detailed{true, "version=1", "there", "", "uuid=1"};
  EXPECT_EQ(plain.digest(), detailed.digest());
}

TEST(Fingerprint, AnEmptyOneComesBackToo) {
  const auto back = Fingerprint::from_json(Fingerprint().to_json());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->to_json(), Fingerprint().to_json());
}

TEST(Fingerprint, RefusesWhatIsNoFingerprint) {
  const std::string texts[] = {"",
                               "garbage",
                               "[]",
                               "{}",
                               "{\"facets\": []}",
                               "{\"facets\": {\"torch\": 1}}",
                               "{\"facets\": {\"torch\": {}}}",
                               "{\"facets\": {\"torch\": {\"known\": 1}}}",
                               "{\"facets\": {\"torch\": {\"known\": true}}}",
                               "{\"facets\": {\"torch\": {\"known\": true, \"value\": 3}}}",
                               "{\"facets\": {\"torch\": {\"known\": true, \"value\": \"\"}}}",
                               "{\"facets\": {\"torch\": {\"known\": false, \"problem\": null}}}",
                               "{\"facets\": {\"torch\": {\"known\": false, \"details\": []}}}",
                               "{\"facets\": {\"taste\": {\"known\": true, \"value\": \"x\"}}}",
                               "{\"facets\": {\"torch\": {\"known\": true, \"value\": \"\xff\"}}}",
                               std::string(200000, '['),
                               std::string(2 << 20, ' ')};
  for (const std::string& text : texts) {
    const auto result = Fingerprint::from_json(text);
    ASSERT_FALSE(result) << text.substr(0, 80);
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalid) << text.substr(0, 80);
  }
}

TEST(Fingerprint, SurvivesCuttingItsJsonAnywhere) {
  Fingerprint original;
  original.set(Facet::kTorch, {true, "version=1", "s", "", "a=b"});
  const std::string json = original.to_json();
  const size_t closing = json.rfind('}');
  for (size_t length = 0; length <= closing; ++length) {
    EXPECT_FALSE(Fingerprint::from_json(json.substr(0, length))) << length;
  }
}

}  // namespace
}  // namespace inductorfs::fingerprint
