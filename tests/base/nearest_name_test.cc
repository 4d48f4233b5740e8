// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "inductorfs/base/text.h"

namespace inductorfs {
namespace {

TEST(NearestName, DiffersInTwoLettersAtMost) {
  const std::vector<std::string> names = {"mount", "unmount", "status"};
  EXPECT_EQ(nearest_name("statu", names), "status");
  EXPECT_EQ(nearest_name("sttaus", names), "status");
  EXPECT_EQ(nearest_name("umount", names), "unmount");
  EXPECT_EQ(nearest_name("sta", names), "");
  EXPECT_EQ(nearest_name("status", {}), "");
}

TEST(NearestName, TakesAnyWord) {
  EXPECT_EQ(nearest_name("", {"a"}), "a");
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'a'), {"status"}), "");
}

}  // namespace
}  // namespace inductorfs
