// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>

#include "vfs/host.h"

namespace inductorfs::testing {
namespace {

TEST(RecoveryPauses, SealsNothingBeforeTheRequestsOfAnEarlierWorkerAreFinished) {
  Host a(remote::make_memory_cluster());
  const std::string path = in_code_directory(code_name("renamed") + ".py");
  ASSERT_TRUE(a.make_directories(path.substr(0, 2)));
  a.stop();
  a.start(true, false);
  ASSERT_TRUE(a.publish_file(path, "print()"));

  constexpr std::chrono::seconds kLongForASeal{1};
  const auto end = std::chrono::steady_clock::now() + kLongForASeal;
  (void)eventually([&] { return a.catalog->publish_state(path) || std::chrono::steady_clock::now() > end; });
  EXPECT_FALSE(a.catalog->publish_state(path)) << "a request may have written half of it";

  a.file_system->requests_finished();
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(a.catalog->publish_state(path));
  EXPECT_EQ(a.catalog->publish_state(path)->state, catalog::PublishState::kPublished);
}

}  // namespace
}  // namespace inductorfs::testing
