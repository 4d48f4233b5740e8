// SPDX-License-Identifier: Apache-2.0
#include "mount/cluster/node_record.h"

#include <gtest/gtest.h>

#include <string>

#include "inductorfs/config/json.h"

namespace inductorfs::mount {
namespace {

TEST(NodeRecord, DeepAndLongOnesAreNone) {
  EXPECT_TRUE(parse_node_record(R"({"counters": {"a": 1}})").is_object());
  EXPECT_FALSE(parse_node_record(R"({"a": {"b": {"c": {"d": {"e": 1}}}}})").is_object());
  std::string longest = R"({"scopes": [0)";
  for (int i = 0; i < 300; ++i) longest += ",0";
  EXPECT_FALSE(parse_node_record(longest + "]}").is_object());
}

TEST(NodeRecord, ANameIsReadAsItWasMadeAndNothingElseIs) {
  const auto read = parse_node_name(node_name("node-7", "/a \"b\""));
  EXPECT_EQ(read.value("host", ""), "node-7");
  EXPECT_EQ(read.value("mountpoint", ""), "/a \"b\"");
  for (const char* other :
       {"", "x", "[]", R"(["a"])", R"(["a", 1])", R"({"host": "a"})", "[[[[[", R"(["a","b","c"])"}) {
    EXPECT_FALSE(parse_node_name(other).is_object()) << other;
  }
}

}  // namespace
}  // namespace inductorfs::mount
