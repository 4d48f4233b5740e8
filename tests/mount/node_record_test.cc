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

}  // namespace
}  // namespace inductorfs::mount
