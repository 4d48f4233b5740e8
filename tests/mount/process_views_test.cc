// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/process_views.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/process_start.h"
#include "support/fake_clock.h"
#include "support/temporary_directory.h"

namespace inductorfs::mount {
namespace {

using inductorfs::testing::FakeClock;
using inductorfs::testing::TemporaryDirectory;

constexpr const char* kMountpoint = "/var/cache/inductor";
constexpr pid_t kOurs = 4242;
constexpr const char* kPath = "triton/0/KEY";
constexpr const char* kUsual = "/var/cache/inductor/triton/0/KEY";

std::string ours(const std::string& at) {
  return "20 1 254:0 / / rw - ext4 /dev/vda rw\n21 20 0:33 / " + at + " rw - fuse.inductorfs inductorfs rw\n";
}

class ProcessViewsTest : public ::testing::Test {
 protected:
  ProcessViewsTest() { process("self", 1, ours(kMountpoint)); }

  ViewSources sources() {
    const auto text_of = [this](const std::string& name) {
      return read_file(AT_FDCWD, proc / name, ProcessViews::kMostBytes);
    };
    return {[text_of](pid_t thread) -> std::optional<ViewedProcess> {
              const std::string stat = text_of(std::to_string(thread) + "/stat").value_or("");
              const auto start = start_in_stat(stat);
              if (!start) return std::nullopt;
              return ViewedProcess{thread, *start, parent_in_stat(stat) == kOurs};
            },
            [text_of](pid_t process) -> std::optional<std::string> {
              auto text = text_of(std::to_string(process) + "/mountinfo");
              return text ? std::optional(std::move(*text)) : std::nullopt;
            },
            [text_of] { return parse_mount_table(text_of("self/mountinfo").value_or("")); }};
  }
  void process(const std::string& name, int start, const std::string& mounts, pid_t parent = 1) {
    std::filesystem::create_directories(proc / name);
    std::string fields;
    for (int i = 0; i < 17; ++i) fields += " 0";
    write(name + "/stat",
          name + " (a name) with) S " + std::to_string(parent) + fields + " " + std::to_string(start) + " 0 0\n");
    write(name + "/mountinfo", mounts);
  }
  void write(const std::string& name, const std::string& text) { std::ofstream(proc / name) << text; }

  TemporaryDirectory proc;
  FakeClock clock;
  ProcessViews views{kMountpoint, sources(), clock};
};

TEST_F(ProcessViewsTest, TellThePathOfEachProcess) {
  process("7", 70, ours("/cache"));
  process("8", 80, ours(kMountpoint));
  EXPECT_EQ(views.path_for(7, kPath), "/cache/triton/0/KEY");
  EXPECT_EQ(views.path_for(8, kPath), kUsual);
  EXPECT_EQ(views.path_for(7, ""), "/cache");
}

TEST_F(ProcessViewsTest, TellTheMountpointWhereNothingIsKnown) {
  process("7", 70, "20 1 254:0 / / rw - ext4 /dev/vda rw\n");
  process("9", 90, std::string(ProcessViews::kMostBytes, '\n') + ours("/cache"));
  EXPECT_EQ(views.path_for(0, kPath), kUsual) << "another pid namespace";
  EXPECT_EQ(views.path_for(6, kPath), kUsual) << "it has ended";
  EXPECT_EQ(views.path_for(7, kPath), kUsual) << "it sees no part of the mount";
  EXPECT_EQ(views.path_for(9, kPath), kUsual) << "too many mounts";
}

/// Who is asked whether anybody writes to a file must look at that file, and at no other that is shown in its place.
TEST_F(ProcessViewsTest, TellNothingToAProcessOfOurs) {
  process("7", 70, ours("/cache"), kOurs);
  process("8", 80, ours("/cache"), kOurs + 1);
  EXPECT_EQ(views.path_for(7, kPath), "");
  EXPECT_EQ(views.path_for(8, kPath), "/cache/triton/0/KEY");
}

TEST_F(ProcessViewsTest, ReadTheListOfAProcessOnce) {
  process("7", 70, ours("/cache"));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(views.path_for(7, kPath), "/cache/triton/0/KEY");
  EXPECT_EQ(views.lists_read(), 1U);
}

TEST_F(ProcessViewsTest, TakeNoProcessForAnEarlierOneOfItsNumber) {
  process("7", 70, ours("/cache"));
  EXPECT_EQ(views.path_for(7, kPath), "/cache/triton/0/KEY");
  process("7", 71, ours("/other"));
  clock.advance(ProcessViews::kTrust);
  EXPECT_EQ(views.path_for(7, kPath), "/other/triton/0/KEY");
}

TEST_F(ProcessViewsTest, NoticeWhatAProcessMountsLater) {
  process("7", 70, ours(kMountpoint));
  EXPECT_EQ(views.path_for(7, kPath), kUsual);
  process("7", 70, ours("/cache"));
  EXPECT_EQ(views.path_for(7, kPath), kUsual);
  clock.advance(ProcessViews::kAge);
  EXPECT_EQ(views.path_for(7, kPath), "/cache/triton/0/KEY");
}

TEST_F(ProcessViewsTest, RememberALimitedNumber) {
  for (size_t i = 1; i <= ProcessViews::kMostProcesses + 1; ++i) {
    std::filesystem::create_directory_symlink(proc / "self", proc / std::to_string(i));
    clock.advance(Milliseconds{1});
    (void)views.path_for(static_cast<pid_t>(i), kPath);
  }
  const uint64_t read = views.lists_read();
  (void)views.path_for(static_cast<pid_t>(ProcessViews::kMostProcesses + 1), kPath);
  EXPECT_EQ(views.lists_read(), read);
  (void)views.path_for(1, kPath);
  EXPECT_EQ(views.lists_read(), read + 1) << "the oldest was dropped";
}

TEST_F(ProcessViewsTest, WaitForTheMount) {
  process("self", 1, "20 1 254:0 / / rw - ext4 /dev/vda rw\n");
  process("7", 70, ours("/cache"));
  EXPECT_EQ(views.path_for(7, kPath), kUsual);
  process("self", 1, ours(kMountpoint));
  EXPECT_EQ(views.path_for(7, kPath), "/cache/triton/0/KEY");
}

}  // namespace
}  // namespace inductorfs::mount
