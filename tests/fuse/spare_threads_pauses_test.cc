// SPDX-License-Identifier: Apache-2.0
#include "spare_threads_fixture.h"

/// The threads end when they had nothing to do for a second (SpareThreads::kRest).
namespace inductorfs::fuse {
namespace {

using SpareThreadsPauses = SpareThreadsOfASession;

TEST_F(SpareThreadsPauses, EndAndGiveTheirMemoryBack) {
  start();
  const size_t idle = bytes_in_memory();
  ask_slowly(kThreads + 4);
  EXPECT_EQ(error_of("fast"), 0);
  EXPECT_GT(bytes_in_memory(), idle + (size_t{4} << 20));

  files_.release("slow");
  for (size_t i = 0; i < kThreads + 4; ++i) EXPECT_TRUE(kernel_.receive());

  EXPECT_TRUE(comes_down_to(idle)) << bytes_in_memory() << " bytes instead of " << idle;
  files_.block_lookup("slow");
  ask_slowly(kThreads + 1);
  EXPECT_EQ(error_of("fast"), 0) << "another time";
}

}  // namespace
}  // namespace inductorfs::fuse
