// SPDX-License-Identifier: Apache-2.0
#include "json_text.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace inductorfs::layout {
namespace {

TEST(JsonText, TakesWhatPythonTakes) {
  for (const std::string& text :
       std::vector<std::string>{"null", " true ", "false", "0", "-0", "1.5", "-1.5e-10", "1E+5", "NaN", "Infinity",
                                "-Infinity", "\"\"", "[]", "{}", "[1, [2, {}]]", "\t{\"a\"\r\n:1 , \"b\":[ ]}",
                                "\"\\u00e9\\ud800\\\"\\/\"", "\"\xc3\xa9\xf0\x9f\x98\x80\"", "\"\x7f\""}) {
    EXPECT_TRUE(parse_json(text, {}).has_value()) << text;
  }
}

TEST(JsonText, RefusesWhatPythonRefuses) {
  for (const std::string& text : std::vector<std::string>{"",
                                                          " ",
                                                          "nul",
                                                          "True",
                                                          "01",
                                                          "+1",
                                                          ".5",
                                                          "1.",
                                                          "1e",
                                                          "1e+",
                                                          "-",
                                                          "-NaN",
                                                          "Infinit",
                                                          "'a'",
                                                          "\"a",
                                                          "\"\\x\"",
                                                          "\"\\u12g4\"",
                                                          "\"\\u12",
                                                          "\"\n\"",
                                                          "[1,]",
                                                          "[1 2]",
                                                          "[",
                                                          "{\"a\"}",
                                                          "{\"a\":}",
                                                          "{\"a\":1,}",
                                                          "{a:1}",
                                                          "{1:1}",
                                                          "{\"a\":1",
                                                          "1 1",
                                                          "{\"a\":1}}",
                                                          "/* */1",
                                                          "\"\xc0\x80\"",
                                                          "\"\xed\xa0\x80\"",
                                                          "\"\xf5\x80\x80\x80\"",
                                                          "\"\xc3\"",
                                                          "\"\xe2\x82\"",
                                                          std::string("1\0", 2)}) {
    EXPECT_FALSE(parse_json(text, {}).has_value()) << text;
  }
}

TEST(JsonText, HoldsItsLimits) {
  const std::string deep = std::string(40, '[') + std::string(40, ']');
  EXPECT_TRUE(parse_json(deep, {.bytes = 100, .depth = 39, .values = 100}).has_value());
  EXPECT_FALSE(parse_json(deep, {.bytes = 100, .depth = 38, .values = 100}).has_value());
  EXPECT_FALSE(parse_json(deep, {.bytes = 79, .depth = 100, .values = 100}).has_value());
  EXPECT_FALSE(parse_json(deep, {.bytes = 100, .depth = 100, .values = 39}).has_value());
  EXPECT_TRUE(parse_json(std::string(kNumberLength, '1'), {}).has_value());
  EXPECT_FALSE(parse_json(std::string(kNumberLength + 1, '1'), {}).has_value());
}

TEST(JsonText, KnowsWhereAValueStands) {
  const std::string text = R"({"a": [1, "x"]})";
  const auto document = parse_json(text, {});
  ASSERT_TRUE(document.has_value());

  const JsonValue& item = document->find("a")->values[1];

  EXPECT_EQ(text.substr(item.begin, item.end - item.begin), "\"x\"");
  EXPECT_EQ(document->find("b"), nullptr);
}

TEST(JsonText, WritesStringsAsPythonDoes) {
  EXPECT_EQ(python_string("a\"\\\b\f\n\r\t\x01\x1f\x7f/"), R"("a\"\\\b\f\n\r\t\u0001\u001f\u007f/")");
  EXPECT_EQ(python_string("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), R"("\u00e9\u20ac\ud83d\ude00")");
  EXPECT_EQ(python_string(text_from_path("\x80\xff")), R"("\udc80\udcff")");
}

TEST(JsonText, GivesBackAnyPath) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string path;
    const size_t length = random() % 12;
    for (size_t j = 0; j < length; ++j) path.push_back(static_cast<char>(random() % 256));
    const std::string text = text_from_path(path);

    const auto read = parse_json(python_string(text), {});

    ASSERT_TRUE(read.has_value());
    ASSERT_EQ(read->text, text);
    ASSERT_EQ(path_from_text(read->text), path);
  }
}

TEST(JsonText, KnowsThatALoneSurrogateIsNoPath) {
  EXPECT_EQ(path_from_text(parse_json(R"("\ud83d")", {})->text), std::nullopt);
  EXPECT_EQ(path_from_text(parse_json(R"("\udc7f")", {})->text), std::nullopt);
  EXPECT_EQ(path_from_text(parse_json(R"("\udc80")", {})->text), "\x80");
}

TEST(JsonText, SurvivesAnyBytes) {
  const std::string seed = R"({"child_paths": {"a\u00e9": [1.5e3, NaN, null, true, "\ud83d\ude00"]}})";
  std::mt19937 random(11);
  for (int i = 0; i < 50000; ++i) {
    std::string text = seed;
    for (size_t j = random() % 4 + 1; j > 0; --j) text[random() % text.size()] = static_cast<char>(random() % 256);
    const auto document = parse_json(text, {});
    if (!document) continue;
    const auto again = parse_json(python_dump_indented(*document), {});
    ASSERT_TRUE(again.has_value()) << text;
    ASSERT_TRUE(same_json(*document, *again)) << text;
  }
}

}  // namespace
}  // namespace inductorfs::layout
