// SPDX-License-Identifier: Apache-2.0
#include "node_record.h"

#include <gtest/gtest.h>

#include "inductorfs/remote/forwarding_remote.h"

namespace inductorfs::mount {
namespace {

/// A cluster whose registry is the test's.
class Registry final : public remote::ForwardingRemote {
 public:
  Registry() : ForwardingRemote(remote::open_memory(remote::make_memory_cluster())) {}
  Result<std::vector<remote::NodeRecord>> list_nodes(size_t /*limit*/, Deadline /*deadline*/) override {
    ++asked;
    if (is_away) return fail(ErrorCode::kUnavailable);
    std::vector<remote::NodeRecord> records;
    for (const std::string& text : texts) records.push_back({"aa", text, {}});
    return records;
  }
  std::vector<std::string> texts;
  bool is_away = false;
  int asked = 0;
};

bool all_read(const std::vector<std::string>& texts) {
  Registry registry;
  registry.texts = texts;
  return NodeCodecs(3).all_read(registry);
}

TEST(NodeCodecs, EveryRecordMustNameTheCodecOrAHigherOne) {
  EXPECT_TRUE(all_read({R"({"v": 1, "codec": 3})"}));
  EXPECT_TRUE(all_read({R"({"v": 1, "codec": 3})", R"({"codec": 17})"}));
  EXPECT_FALSE(all_read({R"({"v": 1, "codec": 3})", R"({"v": 1, "version": "0.1.0"})"})) << "an earlier release";
  EXPECT_FALSE(all_read({R"({"v": 1, "codec": 2})"}));
  EXPECT_FALSE(all_read({})) << "this mount's own record should be there";
}

TEST(NodeCodecs, WhatIsNoRecordReadsNothing) {
  for (const char* text : {"", "no JSON", "3", R"({"codec": "3"})", R"({"codec": -3})", R"({"codec": 3.5})",
                           R"({"codec": [3]})", R"({"codec": null})"}) {
    EXPECT_FALSE(all_read({text})) << text;
  }
}

TEST(NodeCodecs, AnAnswerHoldsForAWhileAndNoneDoesNot) {
  Registry registry;
  registry.texts = {R"({"codec": 3})"};
  registry.is_away = true;
  NodeCodecs codecs(3);
  EXPECT_FALSE(codecs.all_read(registry));
  registry.is_away = false;
  EXPECT_TRUE(codecs.all_read(registry));
  registry.texts = {"an earlier release"};
  EXPECT_TRUE(codecs.all_read(registry));
  EXPECT_EQ(registry.asked, 2);
}

TEST(NodeRecord, DeepAndLongOnesAreNone) {
  EXPECT_TRUE(parse_node_record(R"({"counters": {"a": 1}})").is_object());
  EXPECT_FALSE(parse_node_record(R"({"a": {"b": {"c": {"d": {"e": 1}}}}})").is_object());
  std::string longest = R"({"scopes": [0)";
  for (int i = 0; i < 300; ++i) longest += ",0";
  EXPECT_FALSE(parse_node_record(longest + "]}").is_object());
}

}  // namespace
}  // namespace inductorfs::mount
