// SPDX-License-Identifier: Apache-2.0
// What a queue does after several quiet times, which are so long that a busy machine keeps them.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "vfs/host.h"
#include "vfs/write/seal_queue.h"

namespace inductorfs::testing {
namespace {

using vfs::SealItem;
using vfs::SealOutcome;

TEST(SealerPauses, WaitsForNoFileThatIsNeverQuiet) {
  constexpr Milliseconds kQuiet{1000};
  vfs::SealQueue busy([](const SealItem&) { return SealOutcome::kDone; }, [](const vfs::NodePtr&) {}, kQuiet);
  const auto file = std::make_shared<vfs::Node>(vfs::NodeId{2}, S_IFREG, 2);
  busy.add_quiet({file, "written", false});
  busy.start();
  Guarded<bool> enough;
  const auto is_enough = [](bool now) { return now; };
  std::jthread writer([&] {
    do busy.add_quiet({file, "written", false});
    while (!enough.wait_until(Deadline::after(kQuiet / 50).at(), is_enough, is_enough));
  });
  EXPECT_FALSE(busy.drain(Deadline::after(kQuiet / 10))) << "it may be quiet soon";
  EXPECT_TRUE(busy.still_written(10).empty());
  // On a busy machine the writer may be late for once, which is a pause.
  for (int tries = 0; tries < 5 && busy.still_written(10).empty(); ++tries) {
    EXPECT_TRUE(busy.drain(Deadline::after(std::chrono::seconds(30))));
  }
  EXPECT_EQ(busy.still_written(10), std::vector<std::string>{"written"});
  EXPECT_EQ(busy.waiting(), 1U);
  enough.notify_with([](bool& now) { now = true; });
  writer.join();
  EXPECT_TRUE(eventually([&] { return busy.waiting() == 0; })) << "it is sealed when it was quiet";
  EXPECT_TRUE(busy.still_written(10).empty());
  busy.stop();
}

}  // namespace
}  // namespace inductorfs::testing
