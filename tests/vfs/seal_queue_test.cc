// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/seal_queue.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "vfs/host.h"

namespace inductorfs::testing {
namespace {

using vfs::SealItem;
using vfs::SealOutcome;

class SealQueue : public ::testing::Test {
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
  vfs::SealQueue queue{[this](const SealItem& item) { return seal(item); }, [this](const vfs::NodePtr&) { ++unpinned; },
                       Milliseconds{40}};
};

TEST_F(SealQueue, SealsInOrderAndLetsTheNodesGo) {
  const auto one = node(2);
  const auto two = node(3);
  queue.add({one, "one", false});
  queue.add({two, "two", false});
  EXPECT_EQ(one->pins.load(), 1U);
  EXPECT_EQ(queue.waiting(), 2U);

  queue.start();

  ASSERT_TRUE(queue.drain(Deadline::after(std::chrono::seconds(20))));
  EXPECT_EQ(sealed.with([](auto& paths) { return paths; }), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(one->pins.load() + two->pins.load(), 0U);
  EXPECT_EQ(unpinned.load(), 2);
}

TEST_F(SealQueue, WaitsUntilAFileIsQuiet) {
  const auto file = node(2);
  std::chrono::steady_clock::time_point last;
  for (int i = 0; i < 5; ++i) {
    last = std::chrono::steady_clock::now();
    queue.add_quiet({file, "path " + std::to_string(i), false});
  }
  EXPECT_EQ(file->pins.load(), 1U) << "one wait, one pin";
  queue.start();  // not before: a busy machine may pause for longer between two of them

  ASSERT_TRUE(queue.drain(Deadline::after(std::chrono::seconds(20))));

  EXPECT_GE(std::chrono::steady_clock::now() - last, Milliseconds{40});
  EXPECT_EQ(sealed.with([](auto& paths) { return paths; }), (std::vector<std::string>{"path 4"}));
}

/// A sign that cannot be acted on yet, while the look at what has no sign is due later.
class SealerPutsOff : public ::testing::TestWithParam<SealOutcome> {};

TEST_P(SealerPutsOff, NoSignForGood) {
  Guarded<std::vector<bool>> without_sign;
  const auto file = std::make_shared<vfs::Node>(vfs::NodeId{2}, S_IFREG, 2);
  vfs::SealQueue slow(
      [&](const SealItem& item) {
        return without_sign.with([&](auto& seen) {
          seen.push_back(item.has_no_sign);
          return seen.size() == 1 ? GetParam() : SealOutcome::kDone;
        });
      },
      [](const vfs::NodePtr&) {}, Milliseconds{1'000});
  slow.add_quiet({.node = file, .path = "library", .has_no_sign = true});
  slow.add({file, "library", false});
  slow.start();
  ASSERT_TRUE(slow.drain(Deadline::after(std::chrono::seconds(60))));
  EXPECT_EQ(without_sign.with([](auto& seen) { return seen; }), (std::vector<bool>{false, false}));
  EXPECT_EQ(file->pins.load(), 0U);
  slow.stop();
}

INSTANTIATE_TEST_SUITE_P(Outcomes, SealerPutsOff, ::testing::Values(SealOutcome::kUnjudged, SealOutcome::kLater));

TEST_F(SealQueue, TakesNoItemWithoutASignForOneThatHasIt) {
  const auto file = node(2);
  for (const char* path : {"first", "second"}) {
    queue.add_quiet({.node = file, .path = path, .has_no_sign = true});
    queue.add({file, path, false});
  }
  EXPECT_EQ(queue.waiting(), 3U) << "two with a sign, and one wait for the file";
  EXPECT_FALSE(queue.drain(Deadline::after(Milliseconds{40}))) << "all three are due when the thread begins";
  queue.start();
  ASSERT_TRUE(queue.drain(Deadline::after(std::chrono::seconds(20))));
  EXPECT_EQ(sealed.with([](auto& paths) { return paths; }), (std::vector<std::string>{"first", "second", "second"}));
  EXPECT_EQ(file->pins.load(), 0U);
}

TEST_F(SealQueue, TriesAgainWhatIsWrittenToRightNow) {
  refusals = 2;
  queue.start();
  const auto file = node(2);
  queue.add({file, "busy", false});
  ASSERT_TRUE(queue.drain(Deadline::after(std::chrono::seconds(20))));
  EXPECT_EQ(count(), 3U);
  EXPECT_EQ(file->pins.load(), 0U);
  EXPECT_EQ(unpinned.load(), 1);
}

TEST_F(SealQueue, WaitsForAQuietFileWhoseTurnHasNotCome) {
  queue.add_quiet({node(2), "one", false});
  const Milliseconds restless = vfs::SealQueue::kRestlessTimes * Milliseconds{40} + Milliseconds{20};
  EXPECT_FALSE(queue.drain(Deadline::after(restless))) << "nobody writes to it: the thread has not begun";
  EXPECT_TRUE(queue.still_written(9).empty());
  queue.start();
  ASSERT_TRUE(queue.drain(Deadline::after(std::chrono::seconds(20))));
  EXPECT_EQ(count(), 1U);
}

TEST_F(SealQueue, SaysWhatItWaitsForWhenItCannotDrain) {
  queue.add({node(2), "stuck", false});
  queue.add_quiet({node(3), "loud", false});
  EXPECT_FALSE(queue.drain(Deadline::after(Milliseconds{1})));
  EXPECT_EQ(queue.waiting_paths(5), (std::vector<std::string>{"stuck", "loud"}));
  EXPECT_EQ(queue.waiting_paths(1).size(), 1U);
}

TEST_F(SealQueue, TakesTurnsBetweenUsers) {
  const auto theirs = node(2);
  theirs->owner = 1000;
  for (int i = 0; i < 100; ++i) queue.add({theirs, "file " + std::to_string(i % 10), false});
  const auto mine = node(3);
  mine->owner = 2000;
  queue.add({mine, "mine", false});
  EXPECT_EQ(queue.waiting(), 11U) << "one item for each name";
  EXPECT_EQ(theirs->pins.load(), 10U);

  queue.start();

  ASSERT_TRUE(queue.drain(Deadline::after(std::chrono::seconds(20))));
  const auto paths = sealed.with([](auto& all) { return all; });
  EXPECT_LE(std::find(paths.begin(), paths.end(), "mine") - paths.begin(), 1);
  EXPECT_EQ(theirs->pins.load() + mine->pins.load(), 0U);
}

TEST_F(SealQueue, HoldsNothingMoreForAFileThatIsRenamedAgainAndAgain) {
  const auto file = node(2);
  for (int i = 0; i < 10'000; ++i) queue.add({file, "name " + std::to_string(i), false});
  EXPECT_LE(queue.waiting(), 20U);
  queue.start();
  ASSERT_TRUE(queue.drain(Deadline::after(std::chrono::seconds(20))));
  EXPECT_EQ(sealed.with([](auto& paths) { return paths.back(); }), "name 9999");
  EXPECT_EQ(file->pins.load(), 0U);
}

/// What waits for its turn is not kept from it by whoever always has something new.
class BusySealQueue : public ::testing::Test {
 protected:
  static vfs::NodePtr node(uint64_t id) { return std::make_shared<vfs::Node>(vfs::NodeId{id}, S_IFREG, id); }
  SealOutcome seal(const SealItem& item) {
    if (item.path == "judged later") return ++looks == 1 ? SealOutcome::kUnjudged : SealOutcome::kDone;
    if (looks < 2 && !ended) queue.add({item.node, item.path == "one" ? "two" : "one", false});
    return SealOutcome::kDone;
  }

  std::atomic<int> looks{0};
  std::atomic<bool> ended{false};
  vfs::SealQueue queue{[this](const SealItem& item) { return seal(item); }, [](const vfs::NodePtr&) {},
                       Milliseconds{40}};
};

TEST_F(BusySealQueue, LooksAgainAtWhatWasPutOff) {
  queue.add({node(2), "judged later", false});
  queue.add({node(3), "one", false});
  queue.start();
  const bool done = queue.drain(Deadline::after(std::chrono::seconds(20)));
  ended = true;
  EXPECT_TRUE(done);
  EXPECT_EQ(looks.load(), 2);
}

/// As the store while all of it is in use, and what has no room is always due again, as on a disk that needs longer to
/// try all of it than one of it waits.
class FullSealer : public SealQueue {
 protected:
  vfs::SealQueue full{[this](const SealItem& item) {
                        (void)seal(item);
                        return item.path == "fits" ? SealOutcome::kDone : SealOutcome::kNoRoom;
                      },
                      [this](const vfs::NodePtr&) { ++unpinned; }, Milliseconds{0}};
};

TEST_F(FullSealer, DrainsAlthoughItAlwaysTriesAgain) {
  full.start();
  std::vector<vfs::NodePtr> files;
  std::vector<std::string> paths;
  for (uint64_t i = 0; i < 10; ++i) {
    files.push_back(node(2 + i));
    paths.push_back("path " + std::to_string(i));
    full.add({files.back(), paths.back(), false});
  }
  EXPECT_TRUE(full.drain(Deadline::after(std::chrono::seconds(10))));
  auto without_room = full.paths_without_room(files.size());
  std::sort(without_room.begin(), without_room.end());
  EXPECT_EQ(without_room, paths);
  EXPECT_EQ(full.waiting(), files.size());

  full.add({node(90), "fits", false});
  EXPECT_TRUE(full.drain(Deadline::after(std::chrono::seconds(10)))) << "a new one has its turn among them";
  const auto tried = sealed.with([](const auto& seen) { return seen; });
  EXPECT_EQ(std::count(tried.begin(), tried.end(), "fits"), 1);
  EXPECT_TRUE(eventually([&] { return count() > 2 * files.size(); })) << "and each of them is tried again";
  full.stop();
}

/// What has no room is not due for an hour; there is room when the test says so.
class RoomLater : public SealQueue {
 protected:
  void wait_for_room(uint64_t files) {
    later.start();
    for (uint64_t i = 0; i < files; ++i) later.add({node(2 + i), std::to_string(i), false});
    ASSERT_TRUE(later.drain(Deadline::after(std::chrono::seconds(10))));
    ASSERT_EQ(count(), files);
  }
  std::atomic<bool> has_room{false};
  vfs::SealQueue later{[this](const SealItem& item) {
                         (void)seal(item);
                         return has_room ? SealOutcome::kDone : SealOutcome::kNoRoom;
                       },
                       [this](const vfs::NodePtr&) { ++unpinned; }, std::chrono::minutes(12)};
};

TEST_F(RoomLater, WhoAsksHasOneTriedAndTheOthersWhereThatOneFindsRoom) {
  wait_for_room(3);
  EXPECT_TRUE(later.try_for_room(Deadline::after(std::chrono::seconds(10))));
  EXPECT_EQ(count(), 4U) << "one tells for all";
  EXPECT_EQ(later.paths_without_room(9).size(), 3U);
  has_room = true;
  EXPECT_TRUE(later.try_for_room(Deadline::after(std::chrono::seconds(10))));
  EXPECT_EQ(later.waiting(), 0U);
  EXPECT_TRUE(later.try_for_room(Deadline::after(std::chrono::seconds(10)))) << "nothing waits";
}

TEST_F(SealQueue, LeavesWhatIsQueuedWhenItStops) {
  queue.add({node(2), "left", false});
  queue.stop();
  queue.stop();
  EXPECT_EQ(count(), 0U);
}

}  // namespace
}  // namespace inductorfs::testing
