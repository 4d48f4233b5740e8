// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "inductorfs/takeover/request_slots.h"
#include "vfs/host.h"

/// Renames of large directories, for which nobody else waits.
namespace inductorfs::testing {
namespace {

constexpr size_t kDirectories = 200;
constexpr size_t kFiles = 5;  ///< in each
constexpr uint64_t kLists = kDirectories + 1;
constexpr uint64_t kItems = kDirectories * (1 + kFiles);

class DirectoryMoves : public ::testing::Test {
 protected:
  DirectoryMoves() {
    for (size_t i = 0; i < kDirectories; ++i) {
      const auto directory = view / "large" / std::to_string(i);
      std::filesystem::create_directories(directory);
      for (size_t file = 0; file < kFiles; ++file) std::ofstream(directory / std::to_string(file)).flush();
    }
  }
  [[nodiscard]] bool has_moved(const std::string& to) const { return std::filesystem::exists(view / to / "0"); }
  /// Renames the directory to a longer path, which must be checked, as a request. Looks meanwhile whether questions
  /// about another file are answered while the tree is walked: before it has moved, and after.
  void move_once(vfs::RenameMode mode) {
    takeover::Slot& slot = takeover::RequestSlots(region_).of_thread(0);
    const std::array<uint64_t, 5> header{40, 99, 0, 0, 0};
    std::memcpy(slot.request(), header.data(), sizeof header);
    slot.steps = 0;
    std::atomic<bool> done{false};
    {
      const std::jthread renamer([&] {
        const takeover::Serving serving(slot, false);
        EXPECT_TRUE(a.rename("large", "a-longer-name", 0, mode));
        done = true;
      });
      while (!done) {
        const bool begun = slot.steps > 0;
        const bool moved = has_moved("a-longer-name");
        EXPECT_TRUE(a.exists("other"));
        const uint64_t steps = slot.steps;
        answered_before = answered_before || (begun && !has_moved("a-longer-name"));
        answered_after = answered_after || (moved && steps < kLists + kLists + kItems);
      }
    }
    slot.free();
    EXPECT_TRUE(a.rename("a-longer-name", "large", 0, mode));
  }
  void expect_answers(vfs::RenameMode mode) {
    ASSERT_TRUE(a.create("other", "text"));
    EXPECT_TRUE(eventually([&] {
      move_once(mode);
      return answered_before && answered_after;
    }));
    EXPECT_TRUE(answered_before) << "while the tree is checked";
    EXPECT_TRUE(answered_after) << "while what it took with it is hidden";
  }

  takeover::Region region_ = std::move(*takeover::Region::create(1));
  Host a{remote::make_memory_cluster()};
  const std::filesystem::path view = std::filesystem::path(a.directory / "local") / "view";
  bool answered_before = false;
  bool answered_after = false;
};

TEST_F(DirectoryMoves, OfALargeTreeHoldUpNobody) { expect_answers(vfs::RenameMode::kReplace); }

TEST_F(DirectoryMoves, ByExchangeHoldUpNobodyEither) {
  ASSERT_TRUE(a.make_directory("a-longer-name"));
  expect_answers(vfs::RenameMode::kExchange);
}

/// A user may list a directory of a million names again and again, with many processes.
TEST(DirectoryMove, WaitsForNoListing) {
  takeover::Region region = std::move(*takeover::Region::create(1));
  Host a(remote::make_memory_cluster());
  constexpr size_t kNames = 2'000;
  constexpr size_t kSteps = kNames / 256;  // signs of progress of one listing
  ASSERT_TRUE(a.make_directory("small"));
  const auto listed = std::filesystem::path(a.directory / "local") / "view" / "listed";
  std::filesystem::create_directories(listed);
  for (size_t i = 0; i < kNames; ++i) std::ofstream(listed / std::to_string(i)).flush();
  takeover::Slot& slot = takeover::RequestSlots(region).of_thread(0);
  const std::array<uint64_t, 5> header{40, 99, 0, 0, 0};
  const auto move_while_listed = [&] {
    std::memcpy(slot.request(), header.data(), sizeof header);
    slot.steps = 0;
    std::atomic<bool> done{false};
    std::jthread lister([&] {
      // It runs when nobody else wants to: on a busy machine too it is still at it when the other thread has its turn.
      const sched_param none{};
      (void)::sched_setscheduler(0, SCHED_IDLE, &none);
      const takeover::Serving serving(slot, false);
      EXPECT_EQ(a.list("listed").value_or(std::vector<std::string>{}).size(), kNames);
      done = true;
    });
    const timespec moment{0, 20'000};
    while (slot.steps == 0 && !done) (void)::ppoll(nullptr, 0, &moment, nullptr);  // until the first names are read
    EXPECT_TRUE(a.rename("small", "moved"));
    const bool moved_meanwhile = slot.steps < kSteps;
    lister.join();
    slot.free();
    EXPECT_TRUE(a.rename("moved", "small"));
    return moved_meanwhile;
  };
  EXPECT_TRUE(eventually(move_while_listed));
}

}  // namespace
}  // namespace inductorfs::testing
