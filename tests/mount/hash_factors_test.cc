// SPDX-License-Identifier: Apache-2.0
#include "mount/cluster/hash_factors.h"

#include <gtest/gtest.h>

#include "inductorfs/config/json.h"
#include "inductorfs/layout/layout.h"

namespace inductorfs::mount {
namespace {

using config::Json;

std::string factors(const std::string& variables, const std::string& config = "276ba11b4e") {
  return R"({"code_hash": "676d", "compiler_hash": "24c5", "config_hash": ")" + config + R"(", "env": {)" + variables +
         "}}";
}

TEST(CompareFactors, NamesWhatDiffersWithARemedy) {
  const Json differences = compare_factors(
      factors(R"("VLLM_LOOPBACK_IP": "10.0.0.8", "VLLM_DP_SIZE": 1, "VLLM_NEW": null, "VLLM_PLUGINS": ["a", 1.5])"),
      factors(R"("VLLM_LOOPBACK_IP": "", "VLLM_DP_SIZE": 1, "VLLM_PLUGINS": ["a", 1.5])", "other"));

  ASSERT_EQ(differences.size(), 3U) << differences;
  EXPECT_EQ(differences[0]["name"], "VLLM_LOOPBACK_IP");
  EXPECT_EQ(differences[0]["ours"], "\"10.0.0.8\"");
  EXPECT_EQ(differences[0]["theirs"], "\"\"");
  EXPECT_TRUE(differences[0]["remedy"].get<std::string>().starts_with("leave it unset"));
  EXPECT_EQ(differences[1]["name"], "VLLM_NEW");
  EXPECT_EQ(differences[1]["ours"], "null");
  EXPECT_EQ(differences[1]["theirs"], "not there");
  EXPECT_TRUE(differences[1]["remedy"].get<std::string>().starts_with("set VLLM_NEW to one value in all pods"));
  EXPECT_EQ(differences[2]["name"], "config_hash");
}

TEST(CompareFactors, KnowsTheVariablesThatArePodsAddresses) {
  for (const char* name : {"VLLM_NIXL_SIDE_CHANNEL_HOST", "VLLM_P2P_SIDE_CHANNEL_HOST", "VLLM_EC_SIDE_CHANNEL_HOST",
                           "VLLM_LOOPBACK_IP", "MOONCAKE_REQUESTER_LOCAL_HOSTNAME"}) {
    const auto with = [&](const std::string& value) { return factors("\"" + std::string(name) + "\": " + value); };
    const Json differences = compare_factors(with("\"10.0.0.7\""), with("null"));
    ASSERT_EQ(differences.size(), 1U) << name;
    EXPECT_EQ(differences[0]["remedy"].get<std::string>().find("set VLLM"), std::string::npos) << differences;
    EXPECT_EQ(differences[0]["remedy"].get<std::string>().find("set MOON"), std::string::npos) << differences;
  }
}

TEST(CompareFactors, AnswersNothingForWhatIsNone) {
  const std::string good = factors("");
  EXPECT_EQ(compare_factors(good, good), Json::array());
  for (const std::string& bad :
       {std::string(), std::string("["), std::string("[1]"), std::string("{}"), std::string(R"({"env": [1]})"),
        "{\"env\": {\"" + std::string(layout::kVllmFactorsLimit, 'x') + "\": 1}}"}) {
    EXPECT_TRUE(compare_factors(good, bad).is_null()) << bad.substr(0, 20);
    EXPECT_TRUE(compare_factors(bad, good).is_null()) << bad.substr(0, 20);
  }
}

/// Such a text is no artefact that a release of this project publishes; whoever writes to the server may.
TEST(CompareFactors, DoesNotGoDownWhereAnotherHostHasItNested) {
  const size_t depth = layout::kVllmFactorsLimit / 2 - 64;
  const std::string nested = factors("\"x\": " + std::string(depth, '[') + std::string(depth, ']'));
  ASSERT_LE(nested.size(), layout::kVllmFactorsLimit);
  EXPECT_TRUE(compare_factors(factors(""), nested).is_null());
}

TEST(CompareFactors, StopsAtItsLimit) {
  std::string many;
  for (int i = 0; i < 20'000; ++i) many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":" + "0";
  const Json differences = compare_factors(factors(many), factors(""));
  EXPECT_EQ(differences.size(), 4096U + 3) << "those of the other side are in no limit of ours";
}

}  // namespace
}  // namespace inductorfs::mount
