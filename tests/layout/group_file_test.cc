// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "inductorfs/layout/layout.h"
#include "sample_names.h"

namespace inductorfs::layout {
namespace {

using samples::kKey;

/// What Triton 3.5 and 3.9 wrote for four files put by FileCacheManager with knobs.cache.dir = `root`, both as its
/// json.dumps had it: the root is JSON text already.
std::string triton_group(const std::string& root) {
  const std::string directory = root + "/" + kKey + "/";
  return R"({"child_paths": {"add_kernel.source": ")" + directory + R"(add_kernel.source", "add_kernel.ttir": ")" +
         directory + R"(add_kernel.ttir", "add_kernel.cubin": ")" + directory +
         R"(add_kernel.cubin", "add_kernel.json": ")" + directory + R"(add_kernel.json"}})";
}

const std::string kCanonical =
    R"({"child_paths": {"add_kernel.source": "[INDUCTORFS]/add_kernel.source", )"
    R"("add_kernel.ttir": "[INDUCTORFS]/add_kernel.ttir", "add_kernel.cubin": "[INDUCTORFS]/add_kernel.cubin", )"
    R"("add_kernel.json": "[INDUCTORFS]/add_kernel.json"}})";

std::string group_of_one(const std::string& name, const std::string& path) {
  return R"({"child_paths": {")" + name + R"(": ")" + path + R"("}})";
}

ErrorCode error_of(const std::string& group) {
  const auto children = group_children(group, kKey);
  const auto canonical = canonical_group(group, kKey);
  EXPECT_EQ(children.has_value(), canonical.has_value());
  return children ? ErrorCode::kInternal : children.error().code();
}

TEST(Group, IsToldFromOtherFilesByItsName) {
  EXPECT_TRUE(is_group_file("__grp__add.json"));
  EXPECT_FALSE(is_group_file("__grp__.json"));
  EXPECT_FALSE(is_group_file("__grp__add.jsonx"));
  EXPECT_FALSE(is_group_file("add.json"));
  EXPECT_FALSE(is_group_file(""));
}

TEST(Group, ListsTheChildrenThatTritonWrote) {
  const auto children = group_children(triton_group("/tmp/c/triton/0"), kKey);

  ASSERT_TRUE(children.has_value()) << children.error().to_string();
  EXPECT_EQ(*children,
            (std::vector<std::string>{"add_kernel.source", "add_kernel.ttir", "add_kernel.cubin", "add_kernel.json"}));
}

TEST(Group, TellsTheDirectoryThatItsWriterSaw) {
  EXPECT_EQ(group_directory(triton_group("/tmp/c/triton/0"), kKey).value(), "/tmp/c/triton/0/" + std::string(kKey));
  const std::string two =
      R"({"child_paths": {"a": "/one/)" + std::string(kKey) + R"(/a", "b": "/two/)" + std::string(kKey) + R"(/b"}})";
  ASSERT_TRUE(group_children(two, kKey).has_value());
  EXPECT_EQ(group_directory(two, kKey).error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(group_directory(kCanonical, kKey).error().code(), ErrorCode::kCorrupt);
}

TEST(Group, IsCanonicalWhoeverWroteIt) {
  EXPECT_EQ(canonical_group(triton_group("/tmp/c/triton/0"), kKey).value(), kCanonical);
  EXPECT_EQ(canonical_group(triton_group("/home/x/.triton/cache"), kKey).value(), kCanonical);
}

TEST(Group, ComesBackByteForByteInTheWritersDirectory) {
  // The second root is `zoé "q"` and a line feed, as Triton 3.9 wrote it; the third has a byte that is no UTF-8; the
  // fourth a character beyond 16 bits and a DEL.
  const std::vector<std::pair<std::string, std::string>> roots = {
      {"/tmp/c/triton/0", "/tmp/c/triton/0"},
      {"/tmp/zo\xc3\xa9 \"q\"\n/triton/0", R"(/tmp/zo\u00e9 \"q\"\n/triton/0)"},
      {"/tmp/\x80x", R"(/tmp/\udc80x)"},
      {"/tmp/\xf0\x9f\x98\x80\x7f", R"(/tmp/\ud83d\ude00\u007f)"}};
  for (const auto& [root, json_root] : roots) {
    const std::string written = triton_group(json_root);

    const auto canonical = canonical_group(written, kKey);
    ASSERT_TRUE(canonical.has_value()) << canonical.error().to_string();
    const auto rendered = render_group(*canonical, root + "/" + kKey);

    EXPECT_EQ(*canonical, kCanonical);
    ASSERT_TRUE(rendered.has_value()) << rendered.error().to_string();
    EXPECT_EQ(*rendered, written);
  }
}

TEST(Group, IsRenderedForTheReadersDirectory) {
  const auto rendered = render_group(kCanonical, "/other/mount/triton/7/" + kKey);

  EXPECT_EQ(rendered.value(), triton_group("/other/mount/triton/7"));
  EXPECT_EQ(canonical_group(*rendered, kKey).value(), kCanonical);
}

TEST(Group, KeepsEveryByteThatIsNoChildsPath) {
  const std::string written =
      " {\n \"version\" : [1, 2.50, NaN, -Infinity, null] ,\"child_paths\":{\"a.json\":\t\"/c/" + kKey +
      "/a.json\"},\"note\": \"\\u00e9 \xc3\xa9 /c/" + kKey + "/a.json\"}\n";

  const auto canonical = canonical_group(written, kKey);

  ASSERT_TRUE(canonical.has_value()) << canonical.error().to_string();
  EXPECT_NE(canonical->find("\"a.json\":\t\"[INDUCTORFS]/a.json\"},\"note\""), std::string::npos);
  EXPECT_EQ(render_group(*canonical, "/c/" + kKey).value(), written);
}

TEST(Group, RefusesAChildThatIsNotDirectlyInItsDirectory) {
  const std::string directory = "/c/triton/0/" + kKey;
  for (const std::string& path : std::vector<std::string>{
           "/etc/passwd", directory + "/sub/a.json", directory + "/./a.json", directory + "/../a.json",
           directory + "x/a.json", directory + "/b.json", kKey + "/a.json", directory + "/a.json/",
           directory + "//a.json", "", "[INDUCTORFS]/a.json", "[REPLACE]/a.json", "/c/\\u0000/" + kKey + "/a.json",
           "/c/\\ud83d/" + kKey + "/a.json"}) {
    EXPECT_EQ(error_of(group_of_one("a.json", path)), ErrorCode::kCorrupt) << path;
  }
}

/// Triton joins what the user typed as TRITON_CACHE_DIR, the key and the name.
TEST(Group, MayNameItsDirectoryAsTheUserTypedIt) {
  for (const std::string& typed :
       std::vector<std::string>{".", "c", "./c", "../jobs/c", "/jobs/../c", "/./c", "c//d"}) {
    const std::string group = group_of_one("a.json", typed + "/" + kKey + "/a.json");
    ASSERT_TRUE(group_children(group, kKey).has_value()) << typed;
    EXPECT_EQ(group_directory(group, kKey).value(), typed + "/" + kKey);
    EXPECT_EQ(canonical_group(group, kKey).value(), group_of_one("a.json", "[INDUCTORFS]/a.json"));
  }
}

TEST(Group, RefusesAChildWithoutAPlainName) {
  for (const std::string& name : std::vector<std::string>{"", ".", "..", "a/b", "../a", "a\\u0000b", "__grp__a.json",
                                                          std::string(256, 'a'), "\\ud83d"}) {
    EXPECT_EQ(error_of(group_of_one(name, "/c/" + kKey + "/" + name)), ErrorCode::kCorrupt) << name;
  }
}

TEST(Group, RefusesWhatIsNoGroup) {
  const std::string good = group_of_one("a.json", "/c/" + kKey + "/a.json");
  ASSERT_TRUE(group_children(good, kKey).has_value());
  std::string twice = good;
  twice.insert(twice.size() - 2, R"(, "a.json": "/c/)" + kKey + R"(/a.json")");
  for (const std::string& text : std::vector<std::string>{
           "", "{", "null", "[]", "\"child_paths\"", "{}", R"({"child_paths": null})", R"({"child_paths": []})",
           R"({"child_paths": {}})", R"({"child_paths": {"a.json": 1}})", R"({"child_paths": {"a.json": null}})",
           R"({"child_paths": {"a.json": ["/c"]}})", good + "x", good.substr(0, good.size() - 1), "\xef\xbb\xbf" + good,
           twice, R"({"child_paths": {}, )" + good.substr(1), std::string(1000000, '[')}) {
    EXPECT_EQ(error_of(text), ErrorCode::kCorrupt) << text.substr(0, 100);
  }
}

TEST(Group, RefusesMoreThanTheLimits) {
  std::string many = R"({"child_paths": {)";
  for (int i = 0; i < 257; ++i) {
    const std::string name = "f" + std::to_string(i);
    many += (i == 0 ? "" : ", ") + ("\"" + name + R"(": "/c/)" + kKey + "/" + name + "\"");
  }
  many += "}}";
  const std::string huge =
      R"({"x": ")" + std::string(size_t{1} << 20U, 'x') + R"(", )" + group_of_one("a", "/c/" + kKey + "/a").substr(1);

  EXPECT_EQ(error_of(many), ErrorCode::kCorrupt);
  EXPECT_EQ(error_of(huge), ErrorCode::kCorrupt);
}

TEST(Group, IsRenderedOnlyFromItsCanonicalForm) {
  const std::string directory = "/c/" + kKey;
  for (const std::string& path :
       std::vector<std::string>{"/etc/passwd", "[INDUCTORFS]/../a.json", "[INDUCTORFS]/b.json", "[INDUCTORFS]a.json",
                                "a.json", directory + "/a.json"}) {
    const auto rendered = render_group(group_of_one("a.json", path), directory);
    ASSERT_FALSE(rendered.has_value()) << path;
    EXPECT_EQ(rendered.error().code(), ErrorCode::kCorrupt);
  }
}

TEST(Group, IsRenderedOnlyForACleanAbsoluteDirectory) {
  for (const std::string& directory : std::vector<std::string>{"", "c", "/", "/c/", "/c/../d", "/c/./d"}) {
    const auto rendered = render_group(kCanonical, directory);
    ASSERT_FALSE(rendered.has_value()) << directory;
    EXPECT_EQ(rendered.error().code(), ErrorCode::kInvalid);
  }
}

}  // namespace
}  // namespace inductorfs::layout
