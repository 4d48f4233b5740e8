// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "inductorfs/layout/scope.h"

namespace inductorfs::layout {
namespace {

const std::string kHead = "inductorfs-scope-v1\n";

TEST(CompareScopes, SaysNothingOfEqualTexts) {
  const std::string text = kHead + "facet=gpu\nnone\nfacet=torch\nkey=1\nversion=2\n";
  EXPECT_TRUE(compare_scopes(text, text).empty());
  EXPECT_TRUE(compare_scopes("", "").empty());
}

TEST(CompareScopes, GivesTheLinesThatTheOtherDoesNotHave) {
  const auto differences = compare_scopes(kHead + "facet=gpu\nnone\nfacet=torch\ngit=a\nkey=1\nversion=2.9\n",
                                          kHead + "facet=gpu\nnone\nfacet=torch\ngit=b\nkey=1\nversion=2.15\n");
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0].facet, "torch");
  EXPECT_EQ(differences[0].ours, "git=a\nversion=2.9");
  EXPECT_EQ(differences[0].theirs, "git=b\nversion=2.15");
}

TEST(CompareScopes, NamesFacetsThatOneSideLacks) {
  const auto differences =
      compare_scopes(kHead + "facet=cpu\nflags=x\nfacet=torch\na=1\n", kHead + "facet=gpu\nname=y\nfacet=torch\na=1\n");
  ASSERT_EQ(differences.size(), 2U);
  EXPECT_EQ(differences[0].facet, "cpu");
  EXPECT_EQ(differences[0].ours, "flags=x");
  EXPECT_EQ(differences[0].theirs, "");
  EXPECT_EQ(differences[1].facet, "gpu");
  EXPECT_EQ(differences[1].ours, "");
  EXPECT_EQ(differences[1].theirs, "name=y");
}

TEST(CompareScopes, CountsRepeatedLines) {
  const auto differences = compare_scopes(kHead + "facet=a\nx\nx\n", kHead + "facet=a\nx\n");
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0].ours, "x");
  EXPECT_EQ(differences[0].theirs, "");
}

TEST(CompareScopes, ShowsAnotherOrderWhole) {
  const auto differences = compare_scopes(kHead + "facet=a\nx\ny\n", kHead + "facet=a\ny\nx\n");
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0].ours, "x\ny");
  EXPECT_EQ(differences[0].theirs, "y\nx");
}

TEST(CompareScopes, ShowsAnotherForm) {
  const auto differences = compare_scopes(kHead + "facet=a\nx\n", "inductorfs-scope-v2\nfacet=a\nx\n");
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0].facet, "");
  EXPECT_EQ(differences[0].theirs, "inductorfs-scope-v2");
}

TEST(ParseScopeText, KeepsEachLineInItsFacet) {
  const ScopeText text = parse_scope_text("inductorfs-scope-v1\nfacet=gpu\na=1\n\nb=2\nfacet=torch\nnone\nfacet=gpu\n");
  EXPECT_EQ(text.header, ScopeText::Lines{"inductorfs-scope-v1"});
  ASSERT_EQ(text.facets.size(), 3U);
  EXPECT_EQ(text.facets[0], std::make_pair(std::string_view("gpu"), ScopeText::Lines{"a=1", "", "b=2"}));
  EXPECT_EQ(text.facets[1], std::make_pair(std::string_view("torch"), ScopeText::Lines{"none"}));
  EXPECT_EQ(text.facets[2], std::make_pair(std::string_view("gpu"), ScopeText::Lines{}));
  EXPECT_TRUE(parse_scope_text("").facets.empty());
}

}  // namespace
}  // namespace inductorfs::layout
