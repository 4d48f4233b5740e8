// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/config/paths.h"

#include <gtest/gtest.h>

#include <map>

#include "support/temporary_directory.h"

namespace inductorfs::config {
namespace {

Environment environment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    if (at == variables.end() || at->second.empty()) return std::nullopt;
    return at->second;
  };
}

TEST(AbsolutePath, IsLexicalAndCanonical) {
  EXPECT_EQ(absolute_path("/a/b", "/x"), "/a/b");
  EXPECT_EQ(absolute_path("a/./b//c/", "/x"), "/x/a/b/c");
  EXPECT_EQ(absolute_path("../y", "/x/z"), "/x/y");
  EXPECT_EQ(absolute_path("../../../..", "/x"), "/");
  EXPECT_EQ(absolute_path("", "/x/y"), "/x/y");
  EXPECT_EQ(absolute_path("..a/...", "/"), "/..a/...");
}

TEST(AbsolutePath, TouchesNothing) { EXPECT_EQ(absolute_path("link/../b", "/no/such/place"), "/no/such/place/b"); }

TEST(IsAtOrBelow, ComparesWholeComponents) {
  EXPECT_TRUE(is_at_or_below("/a/b", "/a"));
  EXPECT_TRUE(is_at_or_below("/a", "/a"));
  EXPECT_TRUE(is_at_or_below("/a", "/"));
  EXPECT_FALSE(is_at_or_below("/ab", "/a"));
  EXPECT_FALSE(is_at_or_below("/a", "/a/b"));
}

TEST(RelativeTo, IsEmptyForTheDirectoryItself) {
  EXPECT_EQ(relative_to("/a/b/c", "/a"), "b/c");
  EXPECT_EQ(relative_to("/a", "/a"), "");
  EXPECT_EQ(relative_to("/a/b", "/"), "a/b");
}

TEST(EscapePath, IsThatOfSystemdEscape) {
  // systemd-escape --path /var/cache/inductor; .../a-b; /.hidden/ü
  EXPECT_EQ(escape_path("/var/cache/inductor"), "var-cache-inductor");
  EXPECT_EQ(escape_path("/srv/a-b"), "srv-a\\x2db");
  EXPECT_EQ(escape_path("/.hidden/\xc3\xbc"), "\\x2ehidden-\\xc3\\xbc");
  EXPECT_EQ(escape_path("/"), "-");
}

TEST(EscapePath, NeverOutgrowsAFileName) {
  const std::string deep(4000, 'd');
  EXPECT_LE(escape_path("/" + deep).size(), 200U);
  EXPECT_NE(escape_path("/" + deep), escape_path("/" + deep + "e"));
}

TEST(DefaultStore, DependsOnTheUserAndTheMountpoint) {
  const User root{0, "root", "/root"};
  const User alice{1000, "alice", "/home/alice"};
  EXPECT_EQ(default_store("/mnt/c", root, environment({})), "/var/lib/inductorfs/mnt-c");
  EXPECT_EQ(default_store("/mnt/c", alice, environment({})), "/home/alice/.cache/inductorfs/store/mnt-c");
  EXPECT_EQ(default_store("/mnt/c", alice, environment({{"XDG_CACHE_HOME", "/fast"}})), "/fast/inductorfs/store/mnt-c");
  EXPECT_EQ(default_store("/mnt/c", alice, environment({{"XDG_CACHE_HOME", "relative"}})),
            "/home/alice/.cache/inductorfs/store/mnt-c");
}

TEST(TorchDefaultDirectory, HonoursTmpdirAndCleansTheUsersName) {
  const testing::TemporaryDirectory temporary;
  const User user{7, "dom\\al:ice", "/home/x"};
  EXPECT_EQ(torch_default_directory(user, environment({{"TMPDIR", temporary.path()}})),
            temporary.path() + "/torchinductor_dom_al_ice");
  EXPECT_EQ(torch_default_directory({7, "", ""}, environment({})), "/tmp/torchinductor_uid_7");
}

TEST(TorchDefaultDirectory, SkipsATmpdirThatIsNone) {
  const User user{7, "u", ""};
  EXPECT_EQ(torch_default_directory(user, environment({{"TMPDIR", "/no/such/directory"}})), "/tmp/torchinductor_u");
}

TEST(CurrentUser, NamesTheUserAsPythonDoes) {
  EXPECT_EQ(current_user(environment({{"LOGNAME", "first"}, {"USER", "second"}})).name, "first");
  EXPECT_EQ(current_user(environment({{"LOGNAME", ""}, {"USER", "second"}})).name, "second");
  EXPECT_FALSE(current_user(environment({})).name.empty());
}

TEST(RuntimeDirectory, IsPrivateToEachUser) {
  EXPECT_EQ(runtime_directory(0, environment({{"XDG_RUNTIME_DIR", "/run/user/0"}})), "/run/inductorfs");
  EXPECT_EQ(runtime_directory(5, environment({{"XDG_RUNTIME_DIR", "/run/user/5"}})), "/run/user/5/inductorfs");
  EXPECT_EQ(runtime_directory(5, environment({})), "/tmp/inductorfs-5");
}

TEST(SocketName, IsADigestOfTheMountpoint) {
  // printf %s /mnt/cache | sha256sum | cut -c1-16
  EXPECT_EQ(socket_name("/mnt/cache").size(), std::string("0123456789abcdef.sock").size());
  EXPECT_NE(socket_name("/mnt/cache"), socket_name("/mnt/cache2"));
}

TEST(Printable, KeepsTextAndShowsEveryOtherByte) {
  EXPECT_EQ(printable("pl\xc3\xa4in"), "pl\xc3\xa4in");
  EXPECT_EQ(printable("a\nb\x1b[0m"), "a\\x0ab\\x1b[0m");
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("a\xc2\x9b"
                      "2J\xe2\x80\xae"),
            "a\\xc2\\x9b2J\\xe2\\x80\\xae")
      << "CSI, and an override";
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
}

}  // namespace
}  // namespace inductorfs::config
