// SPDX-License-Identifier: Apache-2.0
#include "vfs/sealer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>

#include "vfs/host.h"

namespace inductorfs::testing {
namespace {

using vfs::SealItem;
using vfs::SealOutcome;

class Sealer : public ::testing::Test {
 protected:
  static vfs::NodePtr node(uint64_t id) { return std::make_shared<vfs::Node>(vfs::NodeId{id}, S_IFREG, id); }
  SealOutcome seal(const SealItem& item) {
    return sealed.with([&](std::vector<std::string>& paths) {
      paths.push_back(item.path);
      return refusals > 0 ? (--refusals, SealOutcome::kLater) : SealOutcome::kDone;
    });
  }
  size_t count() {
    return sealed.with([](const auto& paths) { return paths.size(); });
  }

  Guarded<std::vector<std::string>> sealed;
  int refusals = 0;
  std::atomic<int> unpinned{0};
  vfs::Sealer sealer{[this](const SealItem& item) { return seal(item); }, [this](const vfs::NodePtr&) { ++unpinned; },
                     Milliseconds{40}};
};

TEST_F(Sealer, SealsInOrderAndLetsTheNodesGo) {
  const auto one = node(2);
  const auto two = node(3);
  sealer.add({one, "one", false});
  sealer.add({two, "two", false});
  EXPECT_EQ(one->pins.load(), 1U);
  EXPECT_EQ(sealer.waiting(), 2U);

  sealer.start();

  ASSERT_TRUE(sealer.drain(Deadline::after(std::chrono::seconds(20))));
  EXPECT_EQ(sealed.with([](auto& paths) { return paths; }), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(one->pins.load() + two->pins.load(), 0U);
  EXPECT_EQ(unpinned.load(), 2);
}

TEST_F(Sealer, WaitsUntilAFileIsQuiet) {
  sealer.start();
  const auto file = node(2);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) sealer.add_quiet({file, "path " + std::to_string(i), false});
  EXPECT_EQ(file->pins.load(), 1U) << "one wait, one pin";

  ASSERT_TRUE(sealer.drain(Deadline::after(std::chrono::seconds(20))));

  EXPECT_GE(std::chrono::steady_clock::now() - begin, Milliseconds{40});
  EXPECT_EQ(sealed.with([](auto& paths) { return paths; }), (std::vector<std::string>{"path 4"}));
}

TEST_F(Sealer, TriesAgainWhatIsWrittenToRightNow) {
  refusals = 2;
  sealer.start();
  const auto file = node(2);
  sealer.add({file, "busy", false});
  ASSERT_TRUE(sealer.drain(Deadline::after(std::chrono::seconds(20))));
  EXPECT_EQ(count(), 3U);
  EXPECT_EQ(file->pins.load(), 0U);
  EXPECT_EQ(unpinned.load(), 1);
}

TEST_F(Sealer, SaysWhatItWaitsForWhenItCannotDrain) {
  sealer.add({node(2), "stuck", false});
  sealer.add_quiet({node(3), "loud", false});
  EXPECT_FALSE(sealer.drain(Deadline::after(Milliseconds{1})));
  EXPECT_EQ(sealer.waiting_paths(5), (std::vector<std::string>{"stuck", "loud"}));
  EXPECT_EQ(sealer.waiting_paths(1).size(), 1U);
}

TEST_F(Sealer, LeavesWhatIsQueuedWhenItStops) {
  sealer.add({node(2), "left", false});
  sealer.stop();
  sealer.stop();
  EXPECT_EQ(count(), 0U);
}

}  // namespace
}  // namespace inductorfs::testing
