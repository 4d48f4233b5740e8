// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <poll.h>
#include <unistd.h>

#include <cstring>

#include "inductorfs/takeover/request_slots.h"
#include "mounted_fixture.h"

/// Requests that an earlier worker was killed over while it read them, before the real kernel.
namespace inductorfs::fuse {
namespace {

using testing::Child;

class LeftOverMount : public testing::MountedTest {
 protected:
  void SetUp() override {
    if (const std::string why = testing::no_mounts_because(); !why.empty()) INDUCTORFS_LACKS(why);
    file_ = files_.add_file("a", "old bytes");
    MountOptions where;
    where.mountpoint = mountpoint();
    auto device = fuse::mount(where);
    ASSERT_TRUE(device) << device.error().to_string();
    device_ = std::move(device->device);
    start(false);
    watchdog_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  }
  void TearDown() override {
    MountedTest::TearDown();
    device_.reset();
  }
  void start(bool resume) {
    SessionOptions options;
    options.region = &region_;
    options.resume = resume;
    options.requests_finished = [this] { files_.requests_finished(); };
    auto opened = Session::open(Fd(::fcntl(device_.get(), F_DUPFD_CLOEXEC, 0)), options, files_, counters_);
    ASSERT_TRUE(opened) << opened.error().to_string();
    session_ = std::move(*opened);
    session_->start([] {});
  }
  /// Ends the worker; the mount stays.
  void stop() {
    session_->stop();
    session_.reset();
  }
  takeover::Slot& slot() { return takeover::RequestSlots(region_).of_thread(0); }

  takeover::Region region_ = std::move(*takeover::Region::create(1));
  vfs::NodeId file_{};
  Fd device_;
};

TEST_F(LeftOverMount, ARequestThatTheKernelHasEndedIsNotDone) {
  ASSERT_EQ(::access(path("a").c_str(), R_OK), 0);
  stop();
  // A header that was copied before the reader was killed; the bytes behind it are those of an earlier request.
  struct {
    fuse_in_header header{};
    fuse_write_in write{};
    char bytes[8] = {'s', 't', 'a', 'l', 'e', '!', '!', '!'};
  } request;
  request.header.len = sizeof request;
  request.header.opcode = FUSE_WRITE;
  request.header.unique = 1'000'000;
  request.header.nodeid = static_cast<uint64_t>(file_);
  request.write.size = sizeof request.bytes;
  std::memcpy(slot().request(), &request, sizeof request);

  start(true);

  EXPECT_TRUE(eventually([&] { return files_.finished() == 2; }));
  EXPECT_EQ(files_.bytes_of(file_), "old bytes");
  EXPECT_EQ(counted("torn"), 1U);
}

TEST_F(LeftOverMount, ARequestThatTheKernelWaitsForIsDone) {
  const Fd file(::open(path("a").c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(file);
  stop();
  Child writer([&] { return ::write(file.get(), "new", 3) == 3 ? 0 : 1; });
  // Read as a worker does that is killed before it looks at what it has read.
  pollfd waited{device_.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&waited, 1, 10'000), 1);
  ASSERT_GT(::read(device_.get(), slot().request(), slot().request_size), 0);
  EXPECT_FALSE(slot().was_served());

  start(true);

  EXPECT_EQ(writer.wait(), 0);
  EXPECT_EQ(files_.bytes_of(file_), "new bytes");
  EXPECT_EQ(counted("torn"), 0U);
}

}  // namespace
}  // namespace inductorfs::fuse
