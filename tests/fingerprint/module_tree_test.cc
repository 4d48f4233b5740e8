// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/packages/module_tree.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "fake_packages.h"
#include "support/temporary_directory.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::kSuffixes311;
using testing::write_tree;

std::string names(const Result<std::vector<Module>>& modules) {
  if (!modules) return modules.error().to_string();
  std::string result;
  for (const Module& module : *modules) result += (result.empty() ? "" : " ") + module.name;
  return result;
}

TEST(ModuleSuffixes, CutsTheLongestSuffix) {
  const ModuleSuffixes suffixes(kSuffixes311);
  EXPECT_EQ(suffixes.module_name("a.py"), "a");
  EXPECT_EQ(suffixes.module_name("a.b.py"), "a.b");
  EXPECT_EQ(suffixes.module_name("_C.cpython-311-x86_64-linux-gnu.so"), "_C");
  EXPECT_EQ(suffixes.module_name("_C.abi3.so"), "_C");
  EXPECT_EQ(suffixes.module_name("_C.cpython-312-x86_64-linux-gnu.so"), "_C.cpython-312-x86_64-linux-gnu");
  EXPECT_EQ(suffixes.module_name("a.txt"), "");
}

TEST(WalkModules, FollowsPackagesAndSkipsWhatPythonSkips) {
  const TemporaryDirectory temporary;
  write_tree(temporary.path(), {{"__init__.py", ""},
                                {"b1.py", ""},
                                {"b/__init__.py", ""},
                                {"b/z.py", ""},
                                {"b/a.py", ""},
                                {"b_x.py", ""},
                                {"plain/module.py", ""},
                                {"dotted.dir/__init__.py", ""},
                                {"__pycache__/b1.cpython-311.pyc", ""},
                                {"notes.txt", ""}});
  const ModuleSuffixes suffixes(kSuffixes311);
  EXPECT_EQ(names(walk_modules(InRoot::host(), temporary.path(), suffixes, WalkOrder::kModuleName)),
            "b b.a b.z b1 b_x");
  EXPECT_EQ(names(walk_modules(InRoot::host(), temporary.path(), suffixes, WalkOrder::kFileName)), "b b.a b.z b1 b_x");
  EXPECT_EQ(names(modules_in(InRoot::host(), temporary.path(), suffixes, WalkOrder::kFileName)), "b b1 b_x");
}

TEST(WalkModules, OrdersByFileOrByModuleName) {
  const TemporaryDirectory temporary;
  // '-' sorts before '.', so the two orders differ here.
  write_tree(temporary.path(), {{"a-b.py", ""}, {"a.py", ""}});
  const ModuleSuffixes suffixes(kSuffixes311);
  EXPECT_EQ(names(walk_modules(InRoot::host(), temporary.path(), suffixes, WalkOrder::kFileName)), "a-b a");
  EXPECT_EQ(names(walk_modules(InRoot::host(), temporary.path(), suffixes, WalkOrder::kModuleName)), "a a-b");
}

TEST(WalkModules, ChoosesTheFileInTheLoadersOrder) {
  const TemporaryDirectory temporary;
  write_tree(temporary.path(), {{"m.abi3.so", ""}, {"m.py", ""}, {"m.pyc", ""}});
  const auto modules =
      walk_modules(InRoot::host(), temporary.path(), ModuleSuffixes(kSuffixes311), WalkOrder::kFileName);
  ASSERT_TRUE(modules);
  ASSERT_EQ(modules->size(), 1U);
  EXPECT_EQ(modules->front().file, temporary / "m.abi3.so");
}

TEST(WalkModules, EndsWhenALinkLeadsBackUp) {
  const TemporaryDirectory temporary;
  write_tree(temporary.path(), {{"p/__init__.py", ""}});
  std::filesystem::create_directory_symlink(temporary / "p", temporary / "p/again");
  const auto modules =
      walk_modules(InRoot::host(), temporary.path(), ModuleSuffixes(kSuffixes311), WalkOrder::kFileName);
  ASSERT_FALSE(modules);
  EXPECT_EQ(modules.error().code(), ErrorCode::kTooLarge);
}

TEST(AssignedText, ReadsTheFormsOfVersionFiles) {
  constexpr std::string_view kSource =
      "from typing import Optional\n__all__ = ['__version__', 'cuda']\n__version__ = '2.15.0+cu132'\n"
      "cuda: Optional[str] = '13.2'\nhip: Optional[str] = None\ngit_version = "
      "\"abc\"\ncudart = 'no'\n";
  EXPECT_EQ(assigned_text(kSource, "__version__").value_or("?"), "2.15.0+cu132");
  EXPECT_EQ(assigned_text(kSource, "cuda").value_or("?"), "13.2");
  EXPECT_EQ(assigned_text(kSource, "hip").value_or("?"), "");
  EXPECT_EQ(assigned_text(kSource, "git_version").value_or("?"), "abc");
  EXPECT_FALSE(assigned_text(kSource, "xpu"));
  EXPECT_FALSE(assigned_text("cuda = ", "cuda"));
  EXPECT_EQ(assigned_text("__version__ = version = '0.32.0'\n", "__version__").value_or("?"), "0.32.0");
  for (const char* text :
       {"v = version = ", "v = version", "v = version =", "v = a == 'b'", "v = f('b')", "v = a 'b'"}) {
    EXPECT_FALSE(assigned_text(text, "v")) << text;
  }
  EXPECT_FALSE(assigned_text("cuda = 'open", "cuda"));
}

}  // namespace
}  // namespace inductorfs::fingerprint
