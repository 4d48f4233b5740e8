// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "inductorfs/takeover/request_slots.h"
#include "vfs/host.h"

/// Requests that take long on a slow disk: who watches the threads must see that they go on, and no request copies
/// without end.
namespace inductorfs::testing {
namespace {

constexpr size_t kMebibyte = 1 << 20;
constexpr size_t kSize = 20 * kMebibyte;

class LongRequests : public ::testing::Test {
 protected:
  /// How often the request said that it makes progress.
  uint64_t steps_of(const std::function<void()>& action) {
    takeover::Slot& slot = takeover::RequestSlots(region_).of_thread(0);
    const std::array<uint64_t, 5> header{40, 99, 0, 0, 0};
    std::memcpy(slot.request(), header.data(), sizeof header);
    {
      const takeover::Serving serving(slot, false);
      action();
    }
    const uint64_t steps = slot.steps;
    slot.free();
    return steps;
  }
  vfs::NodeId node(const std::string& path) { return a.look_up(path)->node; }
  static vfs::Caller me() { return {::getuid(), ::getgid(), own_pid()}; }

  takeover::Region region_ = std::move(*takeover::Region::create(1));
  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  Host a{cluster};
  const std::string bytes = std::string(kSize - 1, 'x') + "y";
};

TEST_F(LongRequests, CopyEightMebibytesAtMostAndSayHowMany) {
  ASSERT_TRUE(a.create("from", bytes));
  ASSERT_TRUE(a.create("to", ""));
  uint64_t done = 0;
  for (const size_t expected : {8 * kMebibyte, 8 * kMebibyte, 4 * kMebibyte, size_t{0}}) {
    Result<size_t> copied = fail(ErrorCode::kInternal);
    const uint64_t steps =
        steps_of([&] { copied = a.data().copy_range(node("from"), done, node("to"), done, kSize - done + 1, me()); });
    ASSERT_TRUE(copied) << copied.error().to_string();
    ASSERT_EQ(*copied, expected);
    EXPECT_GE(steps, expected / kMebibyte);
    done += *copied;
  }
  EXPECT_EQ(a.read("to").value_or("absent"), bytes);
}

TEST_F(LongRequests, SayThatTheyGoOnWhileAFileIsCopiedForItsWriter) {
  const std::string name = code_name("large");
  const std::string path = name.substr(1, 2) + "/" + name + ".py";
  ASSERT_TRUE(a.make_directories(path.substr(0, 2)));
  ASSERT_TRUE(a.publish_file(path, bytes));
  ASSERT_TRUE(a.sync());
  const uint64_t steps = steps_of([&] { ASSERT_TRUE(a.data().write(node(path), "more", kSize, me())); });
  EXPECT_EQ(a.count("view.unsealed"), 1U);
  EXPECT_GE(steps, kSize / kMebibyte);
}

TEST_F(LongRequests, SayThatTheyGoOnWhileAFileIsWrittenToTheDisk) {
  ASSERT_TRUE(a.create("large", bytes));
  ASSERT_TRUE(a.create("small", "few bytes"));
  EXPECT_GE(steps_of([&] { ASSERT_TRUE(a.data().sync_file(node("large"), false)); }), 2U);
  EXPECT_EQ(steps_of([&] { ASSERT_TRUE(a.data().sync_file(node("small"), false)); }), 0U);
}

TEST_F(LongRequests, SyncAHoleInOneStep) {
  ASSERT_TRUE(a.create("hole", ""));
  ASSERT_TRUE(a.truncate("hole", uint64_t{1} << 42));
  EXPECT_LE(steps_of([&] { ASSERT_TRUE(a.data().sync_file(node("hole"), true)); }), 1U);
}

TEST_F(LongRequests, AllocateInPiecesAndAsAWhole) {
  constexpr uint64_t kRange = (uint64_t{3} << 30) + 5;
  ASSERT_TRUE(a.create("file", bytes));
  const uint64_t steps = steps_of([&] {
    // A hole takes no room on the disk of the test.
    ASSERT_TRUE(a.data().allocate(node("file"), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1, kRange, me()));
  });
  EXPECT_EQ(steps, 4U);
  EXPECT_EQ(a.read("file").value_or("absent"), "x" + std::string(kSize - 1, '\0'));
}

}  // namespace
}  // namespace inductorfs::testing
