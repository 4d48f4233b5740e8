// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/mount_helper.h"

#include <gtest/gtest.h>

namespace inductorfs::cli {
namespace {

using Words = std::vector<std::string>;

std::string error_of(const Words& arguments) {
  const Result<HelperLine> line = translate_helper_line(arguments);
  return line ? "no error" : line.error().what();
}

Words words_of(const Words& arguments) {
  const Result<HelperLine> line = translate_helper_line(arguments);
  return line ? line->words : Words{line.error().what()};
}

TEST(MountHelper, KnowsItsNames) {
  EXPECT_TRUE(is_mount_helper("/sbin/mount.inductorfs"));
  EXPECT_TRUE(is_mount_helper("mount.fuse.inductorfs"));
  EXPECT_FALSE(is_mount_helper("/usr/bin/inductorfs"));
  EXPECT_FALSE(is_mount_helper(""));
}

TEST(MountHelper, TranslatesSourceAndOptions) {
  EXPECT_EQ(words_of({"redis://h:1/0", "/m", "-o",
                      "rw,nofail,owner,x-systemd.automount,threads=2,also=a=/x,no-allow-other,owner=u:g"}),
            (Words{"mount", "/m", "--remote=redis://h:1/0", "--threads=2", "--also=a=/x", "--no-allow-other",
                   "--owner=u:g"}));
  EXPECT_EQ(words_of({"none", "/m", "-n", "-v", "-t", "fuse.inductorfs"}), (Words{"mount", "/m"}));
  EXPECT_EQ(words_of({"none", "/m", "-o", "python=\"/a,b\",config=/c"}),
            (Words{"mount", "/m", "--python=/a,b", "--config=/c"}));
  EXPECT_EQ(words_of({"none", "/m", "-s", "-o", "colour=red"}), (Words{"mount", "/m"}));
  EXPECT_TRUE(translate_helper_line({"none", "/m", "-f"})->fake);
}

TEST(MountHelper, RefusesByNameWithTheReason) {
  EXPECT_NE(error_of({"none", "/m", "-o", "noexec"}).find("option noexec: jobs load shared objects"),
            std::string::npos);
  EXPECT_NE(error_of({"none", "/m", "-o", "colour=red"}).find("option colour: unknown"), std::string::npos);
  EXPECT_EQ(error_of({"none", "/m", "-o", "threads"}), "option threads: give threads=VALUE");
  EXPECT_EQ(error_of({"none", "/m", "-o", "no-also=1"}), "option no-also: it takes no value");
  EXPECT_NE(error_of({"inductorfs", "/m", "-o", "remount"}).find("option remount: "), std::string::npos)
      << "mount(8) makes up a source";
  for (const char* option : {"ro", "remount", "suid", "dev", "foreground", "remote=redis://h"}) {
    EXPECT_EQ(error_of({"none", "/m", "-o", option}).find("option "), 0U) << option;
  }
  for (const Words& wrong : {Words{}, Words{"none"}, Words{"none", "/m", "/n"}, Words{"none", "/m", "-o"},
                             Words{"none", "/m", "-x"}, Words{"cache", "/m"}}) {
    EXPECT_NE(error_of(wrong), "no error");
  }
}

}  // namespace
}  // namespace inductorfs::cli
