// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "inductorfs/layout/layout.h"

namespace inductorfs::layout {
namespace {

/// What torch 2.15 wrote (CacheBase.update_local_cache), but for the length of Triton's digest.
const std::string kWritten = R"({
    "system": {
        "version": {
            "triton": "3.9.058b25352786ff1d04468ce113f1986063da0b78640428046a28c8ede4c9126ac"
        },
        "hash": "9d9e988e92ae288b4b7d10a5ac69bc37785420d97a5bede70a408c052779b3fd"
    },
    "cache": {
        "mm": {
            "[('cpu', 'torch.float32', 2)]": {
                "default": {
                    "aten_mm:a": 0.0123,
                    "triton_mm:b": Infinity,
                    "c": NaN,
                    "d": 1e-07,
                    "e": -Infinity,
                    "f": 1e+22,
                    "g": 123456789.125
                }
            }
        },
        "pad": true,
        "empty": {},
        "l": [
            1,
            [],
            {
                "x": null
            }
        ],
        "uni": "\u00e9\ud83d\ude00\u007f"
    }
})";

std::string timings(const std::string& cache, const std::string& hash = "h") {
  return R"({"system": {"device": {"name": "H200"}, "hash": ")" + hash + R"("}, "cache": )" + cache + "}";
}

/// The merged "cache", without white space.
std::string merged_cache(const std::string& ours, const std::string& theirs) {
  const auto merged = merge_system_autotune(timings(ours), timings(theirs));
  if (!merged) return merged.error().to_string();
  std::string compact;
  for (const char c : *merged) {
    if (c != ' ' && c != '\n') compact.push_back(c);
  }
  const std::string head = R"({"system":{"device":{"name":"H200"},"hash":"h"},"cache":)";
  EXPECT_TRUE(compact.starts_with(head)) << compact;
  return compact.substr(head.size(), compact.size() - head.size() - 1);
}

TEST(SystemAutotune, ComesBackByteForByteWhenNothingIsNew) {
  EXPECT_EQ(merge_system_autotune(kWritten, kWritten).value(), kWritten);
  const std::string empty = kWritten.substr(0, kWritten.find("    \"cache\"")) + "    \"cache\": {}\n}";
  EXPECT_EQ(merge_system_autotune(kWritten, empty).value(), kWritten);
  EXPECT_EQ(merge_system_autotune(empty, kWritten).value(), kWritten);
  EXPECT_EQ(merge_system_autotune(empty, empty).value(), empty);
}

TEST(SystemAutotune, KeepsTheTimingsOfBoth) {
  EXPECT_EQ(merged_cache(R"({"mm": {"in1": {"default": {"a": 1.0}}}})", R"({"mm": {"in2": {"default": {"a": 2.0}}}})"),
            R"({"mm":{"in1":{"default":{"a":1.0}},"in2":{"default":{"a":2.0}}}})");
  EXPECT_EQ(merged_cache(R"({"mm": {"in": {"default": {"a": 1.0}}}})", R"({"mm": {"in": {"high": {"a": 2.0}}}})"),
            R"({"mm":{"in":{"default":{"a":1.0},"high":{"a":2.0}}}})");
  EXPECT_EQ(merged_cache(R"({"mm": {"in": {"default": {"a": 1.0}}}})", R"({"mm": {"in": {"default": {"b": 2.0}}}})"),
            R"({"mm":{"in":{"default":{"a":1.0,"b":2.0}}}})");
  EXPECT_EQ(merged_cache(R"({"mm": {}})", R"({"conv": {}, "bmm": {}})"), R"({"mm":{},"conv":{},"bmm":{}})");
}

TEST(SystemAutotune, KeepsOursWhereBothHaveTimed) {
  EXPECT_EQ(merged_cache(R"({"mm": {"in": {"default": {"b": 1.0, "a": 2.5}}}})",
                         R"({"mm": {"in": {"default": {"a": 9.0, "b": 9.0, "c": NaN}}}})"),
            R"({"mm":{"in":{"default":{"b":1.0,"a":2.5,"c":NaN}}}})");
  EXPECT_EQ(merged_cache(R"({"pad": true, "x": {"y": 1}})", R"({"pad": false, "x": 2})"),
            R"({"pad":true,"x":{"y":1}})");
  EXPECT_EQ(merged_cache(R"({"x": 2})", R"({"x": {"y": 1}})"), R"({"x":2})");
}

TEST(SystemAutotune, NeverMixesTheInsideOfOneTiming) {
  EXPECT_EQ(merged_cache(R"({"o": {"i": {"p": {"c": {"min": 1}}}}})", R"({"o": {"i": {"p": {"c": {"max": 2}}}}})"),
            R"({"o":{"i":{"p":{"c":{"min":1}}}}})");
}

TEST(SystemAutotune, LosesNothingWhateverTheOrderOfMerges) {
  const std::vector<std::string> parts = {R"({"a": {"i": {"p": {"x": 1}}}})", R"({"a": {"i": {"p": {"y": 2}}}})",
                                          R"({"b": {"i": {"p": {"x": 3}}}})"};
  for (const auto& order : std::vector<std::vector<size_t>>{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}}) {
    std::string all = timings("{}");
    for (const size_t part : order) all = merge_system_autotune(all, timings(parts[part])).value();
    for (const std::string wanted : {R"("x": 1)", R"("y": 2)", R"("x": 3)"}) {
      EXPECT_NE(all.find(wanted), std::string::npos) << all;
    }
  }
}

TEST(SystemAutotune, RefusesTimingsOfAnotherSystem) {
  const auto merged = merge_system_autotune(timings("{}", "one"), timings("{}", "other"));

  ASSERT_FALSE(merged.has_value());
  EXPECT_EQ(merged.error().code(), ErrorCode::kCorrupt);
}

TEST(SystemAutotune, TakesOneSystemInAnyOrderOfItsMembers) {
  const std::string ours = R"({"system": {"device": {"name": "x"}, "hash": "h"}, "cache": {}})";
  const std::string theirs = R"({"cache": {}, "system": {"hash": "h", "device": {"name": "x"}}})";
  EXPECT_TRUE(merge_system_autotune(ours, theirs).has_value());
  const std::string more = R"({"system": {"device": {"name": "x"}, "hash": "h", "y": 1}, "cache": {}})";
  EXPECT_FALSE(merge_system_autotune(ours, more).has_value());
}

TEST(SystemAutotune, RefusesWhatIsNotOfItsForm) {
  const std::string good = timings("{}");
  for (const std::string& bad : std::vector<std::string>{
           "", "{}", "[]", "null", good.substr(0, good.size() - 1), good + "x", timings("[]"), timings("1"),
           R"({"system": [], "cache": {}})", R"({"cache": {}})", R"({"system": {}, "cache": {}, "more": 1})",
           timings(R"({"a": 1, "a": 2})"), timings("{\"a\": 1" + std::string(5000, '1') + "}"), timings("{\"a\": 01}"),
           timings("{\"a\": \"\xff\"}")}) {
    EXPECT_FALSE(merge_system_autotune(good, bad).has_value()) << bad.substr(0, 80);
    EXPECT_FALSE(merge_system_autotune(bad, good).has_value()) << bad.substr(0, 80);
  }
}

TEST(SystemAutotune, RefusesMoreThanTheLimits) {
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "{\"a\": ";
  deep += "1" + std::string(100, '}');
  const std::string large = R"({"a": ")" + std::string(size_t{33} << 20U, 'x') + "\"}";

  EXPECT_FALSE(merge_system_autotune(timings("{}"), timings(deep)).has_value());
  const auto merged = merge_system_autotune(timings("{}"), timings(large));
  ASSERT_FALSE(merged.has_value());
  EXPECT_EQ(merged.error().code(), ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace inductorfs::layout
