// SPDX-License-Identifier: Apache-2.0
#include "vfs/nodes/work_watch.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <set>
#include <vector>

#include "vfs/host.h"
#include "vfs/process.h"

/// Processes that do nothing, and those that only seem to.
namespace inductorfs::testing {
namespace {

using vfs::SetOwner;
using vfs::WorkWatch;

TEST(WorkWatch, TellsTheProcessThatWaitsFromThoseThatWork) {
  const Process waits;
  const Process works(Process::Work::kItself);
  const Process has_a_child_that_works(Process::Work::kByChild);
  const SetOwner sleeper = vfs::set_owner_of(waits.pid());
  Process ends;
  const std::vector<SetOwner> all{sleeper, vfs::set_owner_of(works.pid()),
                                  vfs::set_owner_of(has_a_child_that_works.pid()), vfs::set_owner_of(ends.pid())};
  ends.end();
  WorkWatch watch(Milliseconds(1'500));
  EXPECT_TRUE(watch.waiting_of(all).empty()) << "nobody has waited for as long yet";
  std::set<SetOwner> waiting;
  EXPECT_TRUE(eventually([&] {
    // Between two looks the others use more than one that only looks around.
    (void)::poll(nullptr, 0, 900);
    waiting = watch.waiting_of(all);
    return !waiting.empty();
  }));
  EXPECT_EQ(waiting, std::set<SetOwner>{sleeper});
}

/// On a host with much to do each thread that wakes now and then to look whether there is anything for it waits for a
/// processor then, and is seen so.
TEST(WorkWatch, TakesNobodyWhoIsReadyAndDoesNothingForOneWhoWorks) {
  const Process works(Process::Work::kAll);
  const Process is_ready(Process::Work::kLeftOver);
  const std::vector<SetOwner> all{vfs::set_owner_of(works.pid()), vfs::set_owner_of(is_ready.pid())};
  WorkWatch watch(Milliseconds(1'500));
  std::set<SetOwner> waiting;
  EXPECT_TRUE(eventually([&] {
    (void)::poll(nullptr, 0, 900);
    waiting = watch.waiting_of(all);
    return !waiting.empty();
  }));
  EXPECT_EQ(waiting, std::set<SetOwner>{all[1]});
}

}  // namespace
}  // namespace inductorfs::testing
