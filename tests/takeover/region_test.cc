// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/takeover/region.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "inductorfs/takeover/node_log.h"

namespace inductorfs::takeover {
namespace {

Fd copy_of(const Region& region) { return Fd(::dup(region.fd())); }

TEST(Region, IsTheSameMemoryForWhoAttaches) {
  auto made = Region::create(2);
  ASSERT_TRUE(made) << made.error().to_string();
  made->page().restarts = 7;

  auto other = Region::attach(copy_of(*made));

  ASSERT_TRUE(other) << other.error().to_string();
  EXPECT_EQ(other->page().restarts, 7U);
  EXPECT_EQ(other->threads(), 2U);
  other->page().serving = 5;
  EXPECT_EQ(made->page().serving, 5);
}

TEST(Region, OutlivesAProcessThatIsKilledWhileItWrites) {
  auto region = Region::create(1);
  ASSERT_TRUE(region);
  const pid_t child = ::fork();
  if (child == 0) {
    NodeLog log(*region);
    for (uint32_t i = 1;; ++i) {
      const std::string record(1 + i % 100, static_cast<char>('a' + i % 26));
      const std::string_view both[] = {record, record};
      log.append(both);
      region->page().restarts = i;
      if (i == 20'000) (void)::kill(::getpid(), SIGKILL);
    }
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));

  uint32_t records = 0;
  NodeLog(*region).read([&](std::string_view record) {
    const uint32_t i = 1 + records / 2;
    EXPECT_EQ(record, std::string(1 + i % 100, static_cast<char>('a' + i % 26)));
    ++records;
  });
  EXPECT_EQ(records, 2 * region->page().restarts);
}

TEST(Region, RefusesWhatIsNothingOfItsOwn) {
  Fd small(::memfd_create("small", MFD_CLOEXEC));
  EXPECT_EQ(Region::attach(std::move(small)).error().code(), ErrorCode::kInvalid);
  Fd other(::memfd_create("other", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(other.get(), 1 << 20), 0);
  const auto refused = Region::attach(std::move(other));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalid);
  EXPECT_NE(std::string(refused.error().what()).find("another version"), std::string::npos);
}

TEST(Region, HasALimitOfThreads) {
  EXPECT_EQ(Region::create(0).error().code(), ErrorCode::kInvalid);
  EXPECT_EQ(Region::create(257).error().code(), ErrorCode::kInvalid);
}

}  // namespace
}  // namespace inductorfs::takeover
