// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "inductorfs/base/text.h"

namespace inductorfs {
namespace {

TEST(Showable, AreTheCharactersOfText) {
  for (const std::string text :
       {"a", "~", " ", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xc2\xa0", "\xc2\xa1"}) {
    EXPECT_EQ(showable_length(text + "more"), text.size()) << text;
  }
}

TEST(Showable, IsNothingThatATerminalObeysOrThatIsNotSeen) {
  const std::string unseen[] = {
      "\x1b",         "\x07",         "\x7f",         "\xc2\x80",         "\xc2\x9b",  // C0, DEL and C1: U+009B is CSI
      "\xd8\x9c",     "\xe2\x80\x8b", "\xe2\x80\x8e", "\xe2\x80\x8f",     "\xe2\x80\xaa",
      "\xe2\x80\xae", "\xe2\x81\xa6",
      "\xe2\x81\xa9",  // U+061C, U+200B, U+200E, U+200F, U+202A, U+202E, U+2066, U+2069
      "\xe2\x80\xa8", "\xe2\x80\xa9", "\xef\xbb\xbf", "\xf3\xa0\x81\x81",  // U+2028, U+2029, U+FEFF, a tag
  };
  for (const auto& text : unseen) EXPECT_EQ(showable_length(text + "more"), 0U) << ::testing::PrintToString(text);
  EXPECT_EQ(showable_length(std::string_view("\0", 1)), 0U);
}

TEST(Showable, IsNothingThatIsNotWellFormed) {
  for (const char* text : {"\x9b", "\xff", "\xc3", "\xc0\x9b", "\xc1\xbf", "\xe0\x82\x9b", "\xf0\x80\x82\x9b",
                           "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x80"}) {
    EXPECT_EQ(showable_length(text), 0U) << ::testing::PrintToString(std::string(text));
  }
  EXPECT_EQ(showable_length(""), 0U);
}

}  // namespace
}  // namespace inductorfs
