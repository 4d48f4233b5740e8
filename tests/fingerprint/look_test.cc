// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/look.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fingerprint/sight.h"
#include "support/patience.h"
#include "writers_fixture.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::judge_to_the_end;
using testing::Program;
using testing::Site;
using testing::write_text;
namespace fs = std::filesystem;

constexpr Milliseconds kWait{50};
constexpr pid_t kStuck = 7;

/// A /proc in which one process's `maps` is a FIFO: who opens it waits, as who reads the maps of a process that holds
/// its memory map's lock.
class LookTest : public ::testing::Test {
 protected:
  void SetUp() override { INDUCTORFS_NEEDS_OWN_PROC(); }
  LookTest() {
    add(kStuck);
    EXPECT_EQ(mkfifo(maps_.c_str(), 0600), 0);
  }
  ~LookTest() override { let_go(""); }

  void add(pid_t pid) {
    const std::string folder = proc_ + "/" + std::to_string(pid);
    std::string stat = std::to_string(pid) + " (job) S 1";
    for (int field = 5; field <= 52; ++field) stat += field == 22 ? " 100" : " 0";
    write_text(folder + "/stat", stat + "\n");
    write_text(folder + "/status",
               "Name:\tx\nTgid:\t" + std::to_string(pid) + "\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n");
    write_text(folder + "/environ", "");
    fs::create_symlink("/", folder + "/root");
    fs::create_directories(folder + "/ns");
    fs::create_symlink(fs::read_symlink("/proc/self/ns/mnt"), folder + "/ns/mnt");
  }
  [[nodiscard]] std::string maps_of_torch() const {
    const auto line = [](const std::string& path) { return "1000-2000 r--p 00000000 fe:00 1    " + path + "\n"; };
    return line(site_.libtorch()) + line(site_.torch() + "/_C." + testing::kSoabi + ".so");
  }
  /// The lock is free: whoever waits for the maps gets them.
  void let_go(const std::string& maps) const {
    const int fd = ::open(maps_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;  // nobody waits
    (void)!::write(fd, maps.data(), maps.size());
    (void)::close(fd);
  }
  std::unique_ptr<testing::WritersOfMount> open(const WritersOptions& options) {
    return std::make_unique<testing::WritersOfMount>(open_writers_that_wait(options, counters_, kWait),
                                                     testing::facts_of(site_));
  }
  [[nodiscard]] WritersOptions options() const {
    WritersOptions result = testing::writers_options();
    result.proc = proc_;
    return result;
  }

  TemporaryDirectory temporary_;
  std::string proc_ = temporary_ / "proc";
  std::string maps_ = proc_ + "/7/maps";
  Site site_{temporary_ / "site"};
  Counters counters_;
};

constexpr Facet kFacets[] = {Facet::kTorch, Facet::kTriton, Facet::kPython};

TEST_F(LookTest, DoesNotWaitForAProcessWhoseMemoryMapIsLocked) {
  const auto writers = open(options());
  const auto writer = writers->identify(kStuck);
  ASSERT_TRUE(writer);
  EXPECT_EQ(writers->glance(writer.get(), kFacets).match, Match::kLater);
  EXPECT_EQ(writers->judge(writer.get(), kFacets).match, Match::kLater);
  EXPECT_EQ(counters_.get("writers.late_looks").get(), 1U);

  let_go(maps_of_torch());  // its request has been answered

  const Judgement judgement = judge_to_the_end(*writers, writer.get(), kFacets);
  EXPECT_EQ(judgement.match, Match::kMatches) << judgement.why;
}

TEST_F(LookTest, WaitsOnceForAUserWhoseProcessIsStuck) {
  add(8);
  write_text(proc_ + "/8/maps", maps_of_torch());
  const auto writers = open(options());
  const auto stuck = writers->identify(kStuck);
  const auto begin = system_clock().now();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(writers->identify(kStuck));
  EXPECT_LT(system_clock().now() - begin, kWait * 100 / 2) << "each further request waits for nothing";
  const auto other = writers->identify(8);
  ASSERT_TRUE(other);
  const Judgement judgement = judge_to_the_end(*writers, other.get(), kFacets);
  EXPECT_EQ(judgement.match, Match::kMatches) << judgement.why;
}

TEST_F(LookTest, GivesUpAtTheDeadline) {
  WritersOptions impatient = options();
  impatient.package_deadline = Milliseconds{200};
  const auto writers = open(impatient);
  const auto writer = writers->identify(kStuck);
  const Judgement judgement = judge_to_the_end(*writers, writer.get(), kFacets);
  EXPECT_EQ(judgement.match, Match::kUnknown);
  EXPECT_NE(judgement.why.find("could not be looked at within 200 ms"), std::string::npos) << judgement.why;
}

TEST_F(LookTest, EndsWhileALookIsUnderWay) {
  auto writers = open(options());
  const auto writer = writers->identify(kStuck);
  ASSERT_TRUE(writer);
  writers.reset();
}

}  // namespace
}  // namespace inductorfs::fingerprint
