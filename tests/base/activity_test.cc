// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/activity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <future>

#include "inductorfs/base/thread.h"

namespace inductorfs {
namespace {

TEST(Activity, TellsWhatThreadsAreAtAsLongAsTheyAre) {
  std::promise<void> begun;
  std::promise<void> end;
  {
    const std::jthread thread = start_thread("seal", [&](const std::stop_token&) {
      const Activity activity("seals ab/cab.py", AwaitedBy::kSync);
      begun.set_value();
      end.get_future().wait();
    });
    begun.get_future().wait();
    const Activity own("tests");
    const auto all = threads_at_work();
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0].name, "seal");
    EXPECT_EQ(all[0].what, "seals ab/cab.py");
    EXPECT_EQ(all[0].awaited_by, AwaitedBy::kSync);
    EXPECT_EQ(all[1].thread, ::gettid());
    EXPECT_EQ(all[1].awaited_by, AwaitedBy::kEnd);
    EXPECT_LT(all[0].number, all[1].number);
    end.set_value();
  }
  EXPECT_TRUE(threads_at_work().empty());
}

TEST(Activity, IsWhatAPoolDoes) {
  std::promise<void> begun;
  std::promise<void> end;
  WorkerPool pool("fetch", 1, 1);
  ASSERT_TRUE(pool.submit([&] {
    begun.set_value();
    end.get_future().wait();
  }));
  begun.get_future().wait();
  const auto all = threads_at_work();
  end.set_value();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].name, "fetch");
  pool.stop();
  EXPECT_TRUE(threads_at_work().empty());
}

}  // namespace
}  // namespace inductorfs
