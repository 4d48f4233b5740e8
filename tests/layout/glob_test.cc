// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/layout/glob.h"

#include <gtest/gtest.h>

#include <string>

namespace inductorfs::layout {
namespace {

struct Case {
  const char* pattern;
  const char* path;
  bool matches;
};

TEST(Glob, MatchesComponentByComponent) {
  const Case cases[] = {{"a/b.bin", "a/b.bin", true},
                        {"a/b.bin", "a/b.bi", false},
                        {"a/*.bin", "a/x.bin", true},
                        {"a/*.bin", "a/x/y.bin", false},
                        {"a/*.bin", "a/.bin", true},
                        {"*", "a", true},
                        {"*", "a/b", false},
                        {"a/?.c", "a/x.c", true},
                        {"a/?.c", "a/xy.c", false},
                        {"a/?.c", "a/.c", false},
                        {"*x*y*", "axxbyb", true},
                        {"*x*y*", "ayyx", false},
                        {"**", "a", true},
                        {"**", "a/b/c", true},
                        {"a/**", "a", false},
                        {"a/**", "a/b", true},
                        {"a/**", "a/b/c", true},
                        {"a/**", "b/c", false},
                        {"**/x", "x", true},
                        {"**/x", "a/b/x", true},
                        {"**/x", "a/b/y", false},
                        {"a/**/x", "a/x", true},
                        {"a/**/x", "a/b/c/x", true},
                        {"a/**/x/**", "a/x", false},
                        {"a/**/x/**", "a/b/x/c/d", true},
                        {"a/**/x/**", "a/x/x/x", true},
                        {"**/a/**/b", "a/c/a/b/c/b", true},
                        {"**/a/**/b", "a/c/a/b/c", false}};
  for (const Case& one : cases) {
    EXPECT_EQ(glob_matches(one.pattern, one.path), one.matches) << one.pattern << " on " << one.path;
  }
}

TEST(Glob, EndsInTimeWhateverTheStars) {
  std::string pattern;
  std::string path;
  for (int i = 0; i < 100; ++i) {
    pattern += "**/*a*a*a*b/";
    path += "aaaaaaaaaa/";
  }
  EXPECT_FALSE(glob_matches(pattern + "x", path + "y"));
}

TEST(Glob, RefusesPatternsThatLeadOutOrSayNothing) {
  EXPECT_EQ(glob_problem("a/**/b?*"), "");
  for (const std::string pattern : {"", "/a", "a//b", "a/", "./a", "a/..", "a**", "a/**b"}) {
    EXPECT_NE(glob_problem(pattern), "") << pattern;
  }
  EXPECT_NE(glob_problem(std::string("a\0b", 3)), "");
  EXPECT_NE(glob_problem(std::string(1025, 'a')), "");
}

}  // namespace
}  // namespace inductorfs::layout
