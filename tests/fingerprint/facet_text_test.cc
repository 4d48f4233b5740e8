// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/facet_text.h"

#include <gtest/gtest.h>

#include "inductorfs/fingerprint/fingerprint.h"

namespace inductorfs::fingerprint {
namespace {

using Views = std::vector<std::string_view>;

TEST(FacetText, HasLines) {
  EXPECT_EQ(lines_of("a=1\n\nb=2"), (Views{"a=1", "", "b=2"}));
  EXPECT_EQ(lines_of("a=1\n"), Views{"a=1"});
  EXPECT_TRUE(lines_of("").empty());
  EXPECT_EQ(joined_lines({"a=1", "", "b=2"}), "a=1\n\nb=2");
  EXPECT_EQ(joined_lines({}), "");
}

TEST(FacetText, SplitsALineAtItsFirstEqualsSign) {
  EXPECT_EQ(split_line("b=x=y"), std::make_pair(std::string_view("b"), std::string_view("x=y")));
  EXPECT_EQ(split_line("b="), std::make_pair(std::string_view("b"), std::string_view()));
  EXPECT_FALSE(split_line("none").has_value());
}

TEST(FacetText, FindsValuesByTheWholeKey) {
  EXPECT_EQ(values_of("cc=8.0\nxcc=1\ncc=9.0\nccc=2\ncc", "cc"), (std::vector<std::string>{"8.0", "9.0"}));
  EXPECT_TRUE(values_of("", "cc").empty());
  EXPECT_EQ(value_of("a=1\nab=2\nb=x=y\na=3", "a"), "1");
  EXPECT_EQ(value_of("a=1\nab=2\nb=x=y", "b"), "x=y");
  EXPECT_FALSE(value_of("ab=2", "a").has_value());
  EXPECT_FALSE(value_of(kNone, kNone).has_value());
}

TEST(FacetText, HasListsOfWords) {
  EXPECT_EQ(words_of(" avx  avx2 "), (Views{"avx", "avx2"}));
  EXPECT_TRUE(words_of("").empty());
}

TEST(FacetText, IsWrittenLineByLine) {
  std::string text;
  add_line(text, "b", "two\nlines");
  add_line(text, "a", "1");
  EXPECT_EQ(text, "b=two lines\na=1");
}

TEST(FacetText, IsCanonicalWhenItIsSortedAndHasNoRepeats) {
  EXPECT_EQ(canonical({{"b", "two\nlines"}, {"a", "1"}, {"b", "two\nlines"}}), "a=1\nb=two lines");
  EXPECT_EQ(canonical({}), "");
}

TEST(FacetText, SaysThatAThingIsAbsentOnlyWhenThatIsKnown) {
  EXPECT_TRUE((Fact{true, std::string(kNone), {}, {}, {}}).is_none());
  EXPECT_FALSE((Fact{false, std::string(kNone), {}, "why", {}}).is_none());
  EXPECT_FALSE((Fact{true, "version=1", {}, {}, {}}).is_none());
}

}  // namespace
}  // namespace inductorfs::fingerprint
