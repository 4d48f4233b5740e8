// SPDX-License-Identifier: Apache-2.0
#include "python_literal.h"

#include <gtest/gtest.h>

#include <string>

namespace inductorfs::layout {
namespace {

using Kind = PythonValue::Kind;

/// A value as one line, strings in brackets, to compare with.
std::string plain(const PythonValue& value) {
  if (value.is(Kind::kString)) return "<" + value.text + ">";
  if (value.is(Kind::kNumber) || value.is(Kind::kName)) return value.text;
  std::string out = value.is(Kind::kDictionary) ? "dict" : value.is(Kind::kTuple) ? "tuple" : "list";
  for (const PythonValue& inner : value.values) out += " " + plain(inner);
  return "[" + out + "]";
}

std::string read(std::string_view text, const PythonLimits& limits = {}) {
  const auto value = parse_python(text, limits);
  if (value) return plain(*value);
  return value.error().code() == ErrorCode::kNotSupported ? "not supported"
         : value.error().code() == ErrorCode::kTooLarge   ? "too large"
                                                          : "corrupt";
}

TEST(PythonLiteral, ReadsWhatPprintWrites) {
  EXPECT_EQ(read("{}"), "[dict]");
  EXPECT_EQ(read("()"), "[tuple]");
  EXPECT_EQ(read("[]"), "[list]");
  EXPECT_EQ(read("('a',)"), "[tuple <a>]");
  EXPECT_EQ(read("(1, -23, 0)"), "[tuple 1 -23 0]");
  EXPECT_EQ(read("[None, True, False]"), "[list None True False]");
  EXPECT_EQ(read("{   ((1, 128), 0, 'x'): {   'k': 'v',\n   'w': (1,)}}\n"),
            "[dict [tuple [tuple 1 128] 0 <x>] [dict <k> <v> <w> [tuple 1]]]");
  EXPECT_EQ(read("{1: 2, 3: 4,}"), "[dict 1 2 3 4]");
  EXPECT_EQ(read("[1, 2,]"), "[list 1 2]");
}

TEST(PythonLiteral, JoinsStringsThatPprintHasTakenApart) {
  EXPECT_EQ(read("('a b '\n 'c')"), "<a b c>") << "no tuple without a comma";
  EXPECT_EQ(read("('a b '\n 'c',)"), "[tuple <a b c>]");
  EXPECT_EQ(read("('x', 'a ' \"it's\")"), "[tuple <x> <a it's>]");
  EXPECT_EQ(read("(('x'))"), "<x>");
}

TEST(PythonLiteral, ReadsTheEscapesOfQuotesAndBackslashes) {
  EXPECT_EQ(read(R"('a\'b\\c')"), R"(<a'b\c>)");
  EXPECT_EQ(read(R"("a\"b")"), "<a\"b>");
  EXPECT_EQ(read("'gr\xc3\xbc\xc3\x9f'"), "<gr\xc3\xbc\xc3\x9f>");
  for (const char* text : {R"('\n')", R"('\x41')", R"('\u0041')", R"('\udc80')", R"('\N{DASH}')", R"('\
')"}) {
    EXPECT_EQ(read(text), "not supported") << text;
  }
}

TEST(PythonLiteral, RefusesWhatLiteralEvalRefuses) {
  for (const std::string& text : {std::string(),
                                  std::string(" "),
                                  std::string("{"),
                                  std::string("{1"),
                                  std::string("{1:"),
                                  std::string("{1: 2"),
                                  std::string("{1 2}"),
                                  std::string("{1: 2 3: 4}"),
                                  std::string("{,}"),
                                  std::string("(,)"),
                                  std::string("[1 2]"),
                                  std::string("[1,,2]"),
                                  std::string("'a"),
                                  std::string("'a\\"),
                                  std::string("'a\nb'"),
                                  std::string("a"),
                                  std::string("Nonesuch"),
                                  std::string("None_"),
                                  std::string("01"),
                                  std::string("-"),
                                  std::string("--1"),
                                  std::string("{} {}"),
                                  std::string("{}x"),
                                  std::string("{[1]: 2}"),
                                  std::string("{{}: 2}"),
                                  std::string("os.system('x')"),
                                  std::string("('a' + 'b')"),
                                  std::string("'a\0b'", 5),
                                  std::string("{}\0", 3),
                                  std::string("'\xff'"),
                                  std::string("'\x7f'")}) {
    EXPECT_EQ(read(text), "corrupt") << text;
  }
}

TEST(PythonLiteral, RefusesWhatNothingPrints) {
  for (const char* text : {"1.5", "1e5", "0x10", "1_000", "'''a'''", "\"\"\"a\"\"\""}) {
    EXPECT_EQ(read(text), "not supported") << text;
  }
}

TEST(PythonLiteral, HasLimits) {
  const PythonLimits limits{.bytes = 40, .depth = 3, .values = 5};
  EXPECT_EQ(read("[[[1]]]", limits), "[list [list [list 1]]]");
  EXPECT_EQ(read("[[[[1]]]]", limits), "too large");
  EXPECT_EQ(read("[1,2,3,4]", limits), "[list 1 2 3 4]");
  EXPECT_EQ(read("[1,2,3,4,5]", limits), "too large");
  EXPECT_EQ(read(std::string(41, ' '), limits), "too large");
  EXPECT_EQ(read("1234567890123456789"), "too large");
  EXPECT_EQ(read(std::string(100'000, '(')), "too large") << "no recursion without an end";
}

TEST(PythonLiteral, FindsTheLastValueOfAKeyAsPythonDoes) {
  const auto value = parse_python("{'a': 1, 'b': 2, 'a': 3}", {});
  ASSERT_TRUE(value);
  ASSERT_NE(value->find("a"), nullptr);
  EXPECT_EQ(value->find("a")->text, "3");
  EXPECT_EQ(value->find("c"), nullptr);
  EXPECT_EQ(PythonValue().find("a"), nullptr);
}

}  // namespace
}  // namespace inductorfs::layout
