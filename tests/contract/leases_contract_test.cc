// SPDX-License-Identifier: Apache-2.0
// Leases (remote/leases.h) over each cluster.
#include <gtest/gtest.h>

#include <functional>

#include "clusters.h"

namespace inductorfs::remote {
namespace {

constexpr Milliseconds kLong{60'000};
const std::string kScope(64, 'a');
const std::string kOtherScope(64, 'b');

bool eventually(const std::function<bool()>& condition) {
  const Deadline deadline = Deadline::after(Milliseconds(20'000));
  while (!condition()) {
    if (deadline.passed()) return false;
  }
  return true;
}

class LeasesContract : public OverClusters {
 protected:
  static Lease hold(const Remote& by, const std::string& holder, const std::string& name,
                    Milliseconds lifetime = kLong) {
    const std::vector<LeaseName> names = {{kScope, name}};
    return by.leases->hold_leases(names, holder, lifetime, soon()).value().at(0);
  }
};

TEST_P(LeasesContract, OneHolderHasALeaseUntilItGivesItUp) {
  const Lease first = hold(remote, "one", "key");
  EXPECT_TRUE(first.is_ours);
  EXPECT_EQ(first.holder, "one");
  const Lease second = hold(other, "two", "key");
  EXPECT_FALSE(second.is_ours);
  EXPECT_EQ(second.holder, "one");
  EXPECT_TRUE(hold(remote, "one", "key").is_ours) << "it is renewed";
  EXPECT_FALSE(hold(other, "two", "key", Milliseconds(0)).is_ours) << "another one's cannot be given up";
  EXPECT_EQ(hold(remote, "one", "key", Milliseconds(0)).holder, "");
  EXPECT_TRUE(hold(other, "two", "key").is_ours);
}

TEST_P(LeasesContract, ALeaseEndsWithItsLifetime) {
  EXPECT_TRUE(hold(remote, "one", "key", Milliseconds(50)).is_ours);
  EXPECT_TRUE(eventually([&] { return hold(other, "two", "key").is_ours; }));
  EXPECT_EQ(hold(remote, "one", "key").holder, "two");
}

TEST_P(LeasesContract, ARenewalBeginsTheLifetimeAnew) {
  EXPECT_TRUE(hold(remote, "one", "key", Milliseconds(200)).is_ours);
  EXPECT_TRUE(hold(remote, "one", "key", kLong).is_ours);
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(400);
  EXPECT_TRUE(eventually([&] { return std::chrono::steady_clock::now() > until; }));
  EXPECT_FALSE(hold(other, "two", "key").is_ours);
}

TEST_P(LeasesContract, ManyAreAskedForAtOnceInTheirOrder) {
  ASSERT_TRUE(hold(remote, "one", "b").is_ours);
  const std::vector<LeaseName> names = {{kScope, "a"}, {kScope, "b"}, {kOtherScope, "b"}, {kScope, "a b\n"}};
  const auto leases = other.leases->hold_leases(names, "two", kLong, soon()).value();
  ASSERT_EQ(leases.size(), 4U);
  EXPECT_TRUE(leases[0].is_ours);
  EXPECT_EQ(leases[1].holder, "one");
  EXPECT_TRUE(leases[2].is_ours) << "each scope has its own names";
  EXPECT_TRUE(leases[3].is_ours);
  EXPECT_TRUE(other.leases->hold_leases({}, "two", kLong, soon()).value().empty());
}

TEST_P(LeasesContract, NamesHaveLimits) {
  const auto ask = [&](const std::string& holder, const LeaseName& name) {
    const std::vector<LeaseName> names = {name};
    return remote.leases->hold_leases(names, holder, kLong, soon());
  };
  EXPECT_TRUE(ask(std::string(kLeaseHolderLimit, 'h'), {kScope, std::string(kLeaseNameLimit, 'n')}));
  EXPECT_EQ(ask("", {kScope, "n"}).error().code(), ErrorCode::kInvalid);
  EXPECT_EQ(ask(std::string(kLeaseHolderLimit + 1, 'h'), {kScope, "n"}).error().code(), ErrorCode::kInvalid);
  EXPECT_EQ(ask("h", {kScope, ""}).error().code(), ErrorCode::kInvalid);
  EXPECT_EQ(ask("h", {"", "n"}).error().code(), ErrorCode::kInvalid);
  EXPECT_EQ(ask("h", {kScope, std::string(kLeaseNameLimit + 1, 'n')}).error().code(), ErrorCode::kInvalid);
}

INSTANTIATE_TEST_SUITE_P(Over, LeasesContract, shared_clusters(), name_of_kind);

}  // namespace
}  // namespace inductorfs::remote
