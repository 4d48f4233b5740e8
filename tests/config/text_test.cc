// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/config/text.h"

#include <gtest/gtest.h>

#include "inductorfs/config/json.h"

namespace inductorfs::config {
namespace {

TEST(HumanBytes, UsesTheLargestUnitThatFits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(20ULL << 30), "20.0 GiB");
  EXPECT_EQ(human_bytes(1ULL << 50), "1024.0 TiB");
}

TEST(HumanSeconds, UsesTheUnitThatPeopleWould) {
  EXPECT_EQ(human_seconds(0), "0 s");
  EXPECT_EQ(human_seconds(119), "119 s");
  EXPECT_EQ(human_seconds(120), "2 min");
  EXPECT_EQ(human_seconds(7200), "2 h");
  EXPECT_EQ(human_seconds(172800), "2 d");
}

TEST(Indented, KeepsLinesAndHidesControlCharacters) {
  EXPECT_EQ(indented("a=1\n\nb=\x1b[0m\n"), "    a=1\n    b=\\x1b[0m\n");
  EXPECT_EQ(indented("x", "- "), "- x\n");
  EXPECT_EQ(indented(""), "");
}

TEST(Members, OfAnyJsonHaveAnAnswer) {
  const Json object = {{"text", "a\nb"}, {"number", 7U}, {"flag", true}, {"list", {"x", 1}}};
  EXPECT_EQ(text_at(object, "text"), "a\\x0ab");
  EXPECT_EQ(lines_at(object, "text"), "a\nb");
  EXPECT_EQ(number_at(object, "number"), 7U);
  EXPECT_EQ(number_at(Json{{"number", int64_t{7}}}, "number"), 7U) << "signed";
  EXPECT_EQ(number_at(Json{{"number", int64_t{-7}}}, "number"), 0U);
  EXPECT_EQ(number_at(Json{{"number", 7.5}}, "number"), 0U);
  EXPECT_TRUE(flag_at(object, "flag"));
  EXPECT_EQ(list_text("label", object["list"], plain_item), "label         x\n              \n");
  for (const Json& other : {Json(3), Json("text"), Json::array({1}), Json()}) {
    EXPECT_EQ(text_at(other, "text"), "");
    EXPECT_EQ(number_at(other, "number"), 0U);
    EXPECT_FALSE(flag_at(other, "flag"));
    EXPECT_TRUE(part_of(other, "part").empty());
  }
}

}  // namespace
}  // namespace inductorfs::config
