// SPDX-License-Identifier: Apache-2.0
#include "remote/client/pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

namespace inductorfs::remote {
namespace {

/// A connection that breaks on command.
class FakeConnection final : public redis::Connection {
 public:
  explicit FakeConnection(std::atomic<int>& alive) : alive_(alive) { ++alive_; }
  ~FakeConnection() override { --alive_; }
  Result<void> pipeline(const std::vector<redis::Command>&, redis::Patience,
                        const std::function<Result<void>(size_t, redis::Reply&&)>&) override {
    return {};
  }
  Result<redis::Reply> call_blocking(const redis::Command&, Milliseconds, const std::function<bool()>&) override {
    return redis::Reply{};
  }
  bool broken() const override { return is_broken; }
  bool is_broken = false;

 private:
  std::atomic<int>& alive_;
};

class ConnectionPoolTest : public ::testing::Test {
 protected:
  static Deadline shortly() { return Deadline::after(Milliseconds(30)); }
  static FakeConnection& fake(const ConnectionPool::Lease& lease) {
    return dynamic_cast<FakeConnection&>(lease.connection());
  }

  std::atomic<int> alive = 0;
  int opened = 0;
  bool refuse = false;
  const ConnectionPool::Opener opener = [this](Deadline) -> Result<std::unique_ptr<redis::Connection>> {
    ++opened;
    if (refuse) return fail(ErrorCode::kUnavailable, "refused");
    return std::make_unique<FakeConnection>(alive);
  };
  std::atomic<uint64_t> epoch{0};
  ConnectionPool pool{{2, 1, 1, 0}, [this] { return epoch.load(); }};
};

TEST_F(ConnectionPoolTest, UsesAnIdleConnectionAgain) {
  EXPECT_FALSE(pool.take(Use::kFetch, shortly(), opener)->reused());
  EXPECT_TRUE(pool.take(Use::kFetch, shortly(), opener)->reused());
  EXPECT_EQ(opened, 1);
}

TEST_F(ConnectionPoolTest, DropsWhatBrokeOnLoanAndWhatBrokeWhileIdle) {
  {
    const auto lease = pool.take(Use::kFetch, shortly(), opener);
    fake(*lease).is_broken = true;
  }
  EXPECT_EQ(alive, 0);
  FakeConnection* idle = nullptr;
  {
    const auto lease = pool.take(Use::kFetch, shortly(), opener);
    idle = &fake(*lease);
  }
  idle->is_broken = true;
  const auto lease = pool.take(Use::kFetch, shortly(), opener);
  EXPECT_FALSE(lease->reused());
  EXPECT_EQ(alive, 1);
}

TEST_F(ConnectionPoolTest, LendsNoConnectionToTheServerBefore) {
  (void)pool.take(Use::kFetch, shortly(), opener);
  EXPECT_EQ(alive, 1);
  ++epoch;
  EXPECT_FALSE(pool.take_idle(Use::kFetch)) << "idle";
  EXPECT_EQ(alive, 0);
  {
    const auto lease = pool.take(Use::kFetch, shortly(), opener);
    EXPECT_TRUE(lease->is_current());
    ++epoch;
    EXPECT_FALSE(lease->is_current());
  }
  EXPECT_EQ(alive, 0) << "on loan meanwhile";
  EXPECT_FALSE(pool.take(Use::kFetch, shortly(), opener)->reused());
}

TEST_F(ConnectionPoolTest, TakesNoConnectionForOneToTheServerThatIsNamedWhileItOpens) {
  const ConnectionPool::Opener finds_another = [this](Deadline) -> Result<std::unique_ptr<redis::Connection>> {
    if (++opened == 1) ++epoch;
    return std::make_unique<FakeConnection>(alive);
  };
  EXPECT_TRUE(pool.take(Use::kFetch, shortly(), finds_another)->is_current());
  EXPECT_EQ(opened, 2);
}

TEST_F(ConnectionPoolTest, IsBusyAtItsLimitUntilOneComesBack) {
  auto first = std::optional(pool.take(Use::kFetch, shortly(), opener));
  const auto second = pool.take(Use::kFetch, shortly(), opener);
  const auto refused = pool.take(Use::kFetch, shortly(), opener);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kBusy);
  std::atomic<bool> got = false;
  std::jthread waiter([&] { got = pool.take(Use::kFetch, Deadline::after(Milliseconds(10000)), opener).has_value(); });
  first.reset();
  waiter.join();
  EXPECT_TRUE(got);
}

TEST_F(ConnectionPoolTest, AFetchNeverWaitsForAPublishNorForAFollower) {
  const auto publishing = pool.take(Use::kPublish, shortly(), opener);
  const auto following = pool.take(Use::kFollow, shortly(), opener);
  ASSERT_TRUE(publishing);
  ASSERT_TRUE(following) << "a limit of 0 means 1";
  EXPECT_FALSE(pool.take(Use::kPublish, shortly(), opener));
  EXPECT_TRUE(pool.take(Use::kFetch, shortly(), opener));
  EXPECT_TRUE(pool.take(Use::kControl, shortly(), opener));
}

TEST_F(ConnectionPoolTest, AFailedOpenGivesItsPlaceBack) {
  refuse = true;
  for (int i = 0; i < 5; ++i) {
    const auto lease = pool.take(Use::kPublish, shortly(), opener);
    ASSERT_FALSE(lease);
    EXPECT_EQ(lease.error().code(), ErrorCode::kUnavailable);
  }
  refuse = false;
  EXPECT_TRUE(pool.take(Use::kPublish, shortly(), opener));
}

TEST_F(ConnectionPoolTest, ClosesWhatNobodyUsesButOneOfEachUseThatIsWaitedFor) {
  {
    const auto one = pool.take(Use::kFetch, shortly(), opener);
    const auto two = pool.take(Use::kFetch, shortly(), opener);
    const auto publish = pool.take(Use::kPublish, shortly(), opener);
    const auto follow = pool.take(Use::kFollow, shortly(), opener);
    pool.drop_unused(Milliseconds(0));
    EXPECT_EQ(alive, 4) << "they are in use";
  }
  pool.drop_unused(Milliseconds(3'600'000));
  EXPECT_EQ(alive, 4) << "a moment ago somebody used them";
  pool.drop_unused(Milliseconds(-1));
  EXPECT_EQ(alive, 2) << "one to fetch, one to follow";
  EXPECT_TRUE(pool.take(Use::kFetch, shortly(), opener)->reused());
  EXPECT_FALSE(pool.take(Use::kPublish, shortly(), opener)->reused());
}

TEST_F(ConnectionPoolTest, ANewConnectionTakesTheIdleOnesAway) {
  {
    const auto one = pool.take(Use::kFetch, shortly(), opener);
    const auto two = pool.take(Use::kFetch, shortly(), opener);
  }
  EXPECT_EQ(alive, 2);
  const auto lease = pool.take(Use::kFetch, shortly(), opener, ConnectionPool::Freshness::kNew);
  ASSERT_TRUE(lease);
  EXPECT_FALSE(lease->reused());
  EXPECT_EQ(alive, 1);
  EXPECT_TRUE(pool.take(Use::kFetch, shortly(), opener)) << "their places are free";
}

}  // namespace
}  // namespace inductorfs::remote
