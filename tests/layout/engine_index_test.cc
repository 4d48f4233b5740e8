// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "inductorfs/layout/layout.h"
#include "parcel_builder.h"

namespace inductorfs::layout {
namespace {

using namespace samples;
using Names = std::vector<std::string>;

const std::string kDirectory = "/cache/vllm/torch_compile_cache/30d3fb613a/rank_0_0/backbone";

/// As vLLM 0.32 wrote it, but for the directory.
const std::string kReal =
    "{   ((1, 128), 0, 'inductor_standalone'): {   'cache_key': "
    "'arq6hoj7mczmbxlpxynjgirhlxroyej7jqckv7zpvmeevzaupz3n',\n"
    "                                              'graph_handle': (   'artifact_compile_range_1_128_subgraph_0',\n"
    "                                                                  '" +
    kDirectory +
    "/artifact_compile_range_1_128_subgraph_0')},\n"
    "    ((1, 128), 1, 'inductor_standalone'): {   'cache_key': "
    "'amotqgw4pilnrlq6xqahryzzuwqzea6pxphn36jstlhuvdoospsy',\n"
    "                                              'graph_handle': (   'artifact_compile_range_1_128_subgraph_1',\n"
    "                                                                  '" +
    kDirectory + "/artifact_compile_range_1_128_subgraph_1')}}";

std::string handle(const std::string& name, const std::string& path) {
  return "{((1, 2), 0, 'inductor_standalone'): {'graph_handle': ('" + name + "', '" + path + "')}}";
}

ErrorCode refusal(const std::string& index) {
  const auto names = index_members(Family::kVllmIndex, index);
  const auto directory = index_directory(Family::kVllmIndex, index);
  EXPECT_EQ(names.has_value(), directory.has_value()) << index;
  return names ? ErrorCode::kInternal : names.error().code();
}

TEST(IndexMembers, AreThoseOfARealIndex) {
  const auto names = index_members(Family::kVllmIndex, kReal);
  ASSERT_TRUE(names) << names.error().what();
  EXPECT_EQ(*names, (Names{kArtifact + "0", kArtifact + "1"}));
  EXPECT_EQ(index_directory(Family::kVllmIndex, kReal).value_or(""), kDirectory);
}

TEST(IndexMembers, AreThoseOfEarlierReleasesToo) {
  const std::string handles = "{(None, 0, 'inductor_standalone'): ('" + kArtifact + "0', '/c/r/" + kArtifact +
                              "0'),\n" + " ((1, 8), 'hash', 'inductor_standalone'): ('" + kArtifact + "1', '/c/r/" +
                              kArtifact + "1')}";
  EXPECT_EQ(index_members(Family::kVllmIndex, handles).value_or(Names{}), (Names{kArtifact + "0", kArtifact + "1"}));
  EXPECT_EQ(index_directory(Family::kVllmIndex, handles).value_or(""), "/c/r");
}

TEST(IndexMembers, AreNamedOnce) {
  const std::string twice = "{((1, 2), 0, 'inductor_standalone'): ('" + kArtifact + "0', '/c/" + kArtifact + "0'),\n" +
                            " ((1, 2), 1, 'inductor_standalone'): ('" + kArtifact + "0', '/c/" + kArtifact + "0')}";
  EXPECT_EQ(index_members(Family::kVllmIndex, twice).value_or(Names{}), Names{kArtifact + "0"});
}

TEST(IndexMembers, AreReadFromAPathThatPprintHasTakenApart) {
  const std::string apart = "{((1, 2), 0, 'inductor_standalone'): {'graph_handle': ('" + kArtifact +
                            "0', '/cache/my '\n  'models/" + kArtifact + "0')}}";
  EXPECT_EQ(index_directory(Family::kVllmIndex, apart).value_or(""), "/cache/my models");
}

TEST(IndexMembers, AreNoneOfAnIndexThatIsCutOffAnywhere) {
  for (size_t size = 0; size < kReal.size(); ++size) {
    EXPECT_EQ(refusal(kReal.substr(0, size)), ErrorCode::kCorrupt) << size;
    std::string torn = kReal;
    std::fill(torn.begin() + static_cast<ptrdiff_t>(size), torn.end(), '\0');
    EXPECT_EQ(refusal(torn), ErrorCode::kCorrupt) << size;
    EXPECT_TRUE(is_cut_index(Family::kVllmIndex, kReal.substr(0, size))) << size;
    EXPECT_TRUE(is_cut_index(Family::kVllmIndex, torn)) << size;
  }
}

TEST(CutIndex, IsNoneThatIsWholeOrOtherContent) {
  // Python takes most of them, and the parser of ours does not.
  for (const std::string& bytes :
       {kReal, kReal + "\r\n", kReal + "  # by hand: {", std::string("{}"), std::string("{ # by hand\n}"),
        std::string("{1, 2}"), std::string("{'a': .5, 'b': 1+2j, 'c': b'x', 'd': r'\\\\', 'e': ...}"),
        std::string("{'j\xfcrgen': '}'}"), std::string("{'''a\n'{''': \"'\"}"), std::string("{'\\'{': '\\u200b'}"),
        std::string("{\"a\": true}"), std::string("{'a': 1}['a']"), std::string("{'a\n'}"), std::string("a 1 0"),
        std::string("\x80\x04."), std::string("\0text", 5), std::string("'''"), std::string(" ")}) {
    EXPECT_FALSE(is_cut_index(Family::kVllmIndex, bytes)) << bytes;
  }
  EXPECT_FALSE(is_cut_index(Family::kVllmModel, ""));
}

TEST(CutIndex, IsTheBeginningOfOneWithWhatOurParserDoesNotTake) {
  const std::string whole =
      "{((1, 2), 0, 'inductor_standalone'): {'graph_handle': ('artifact', '/c/\\xa0\\'\\udcff/artifact')}}";
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_TRUE(is_cut_index(Family::kVllmIndex, whole.substr(0, size))) << size;
  }
  EXPECT_FALSE(is_cut_index(Family::kVllmIndex, whole));
  EXPECT_TRUE(is_cut_index(Family::kVllmIndex, kReal + std::string(4096, '\0')));
}

TEST(IndexMembers, AreNoneOfWhatNamesSomethingElsewhere) {
  for (const std::string& index :
       {std::string("{}"), handle("../" + kArtifact + "0", "/c/../" + kArtifact + "0"),
        handle(kArtifact + "0", "/c/" + kArtifact + "1"), handle(kArtifact + "0", kArtifact + "0"),
        handle(kArtifact + "0", "/c/../d/" + kArtifact + "0"), handle(kArtifact + "0", "/c//" + kArtifact + "0"),
        handle(kArtifact + "0", "/" + kArtifact + "0"), handle("passwd", "/etc/passwd"),
        handle("fgraphkey", "/c/inductor_cache/ab/code.py"),
        std::string("{((1, 2), 0, 'inductor'): ('f0', '/c/code.py')}"), std::string("{((1, 2), 0, 'eager'): None}"),
        std::string("{((1, 2), 0, 'inductor_standalone'): None}"),
        std::string("{((1, 2), 0, 'inductor_standalone'): {'cache_key': 'a'}}"),
        std::string("{((1, 2), 0, 'inductor_standalone'): {'graph_handle': ('a',)}}"),
        std::string("{((1, 2), 0, 'inductor_standalone'): {'graph_handle': ['a', '/c/a']}}"),
        std::string("{(0, 'inductor_standalone'): ('a', '/c/a')}"),
        std::string("{'inductor_standalone': ('a', '/c/a')}"),
        "{((1, 2), 0, 'inductor_standalone'): ('" + kArtifact + "0', '/c/" + kArtifact +
            "0'), ((1, 2), 1, 'inductor_standalone'): ('" + kArtifact + "1', '/d/" + kArtifact + "1')}"}) {
    EXPECT_EQ(refusal(index), ErrorCode::kNotSupported) << index;
  }
}

TEST(IndexMembers, AreNoneOfWhatIsNoIndex) {
  for (const char* text : {"", "[]", "()", "1", "import os", "{1}"}) {
    EXPECT_EQ(refusal(text), ErrorCode::kCorrupt) << text;
  }
  EXPECT_FALSE(index_members(Family::kVllmModel, kReal));
  EXPECT_FALSE(index_directory(Family::kDeepGemm, kReal));
}

TEST(IndexMembers, AreNoMoreThanAParcelHolds) {
  constexpr int kMost = static_cast<int>(codec::kParcelItemLimit) - 1;
  EXPECT_EQ(index_members(Family::kVllmIndex, index_of("/c", kMost)).value_or(Names{}).size(), size_t{kMost});
  EXPECT_EQ(refusal(index_of("/c", kMost + 1)), ErrorCode::kNotSupported);
}

TEST(IndexInDirectory, NamesTheSameFilesThere) {
  EXPECT_EQ(index_in_directory(Family::kVllmIndex, index_of("/c/r", 3), "/other/place").value_or(""),
            index_of("/other/place", 3));
}

TEST(IndexInDirectory, IsNotMadeBeyondTheLimitOfAnIndex) {
  constexpr size_t kPlaces = 1'000'000;
  std::string places;
  for (size_t i = 0; i < kPlaces; ++i) places += "/a/";
  const std::string index = "{((1, 2), 0, 'inductor_standalone'): {'cache_key': '" + places + "', 'graph_handle': ('" +
                            kArtifact + "0', '/a/" + kArtifact + "0')}}";
  ASSERT_EQ(index_directory(Family::kVllmIndex, index).value_or(""), "/a");
  const auto moved = index_in_directory(Family::kVllmIndex, index, "/" + std::string(200, 'd'));
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().code(), ErrorCode::kNotSupported);
  // Of the loop itself: who reads the text once more says so in other words, when all of its 200 MB have been made.
  EXPECT_NE(moved.error().what().find("would become larger than an index may be"), std::string::npos)
      << moved.error().what();
}

}  // namespace
}  // namespace inductorfs::layout
