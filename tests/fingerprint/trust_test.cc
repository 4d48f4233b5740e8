// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/trust.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <utility>

#include "inductorfs/base/guarded.h"

namespace inductorfs::fingerprint {
namespace {

constexpr std::chrono::seconds kPatience{20};

/// A name service that a test makes slow or lets fail. Safe for concurrent use.
struct FakeService {
  std::map<std::pair<Account, id_t>, std::string> names{{{Account::kUser, 1001}, "alice"},
                                                        {{Account::kGroup, 2001}, "team"}};
  Guarded<bool> held{false};
  std::atomic<bool> fails{false};
  std::atomic<int> asked{0};
};

/// It may be asked for longer than the test lasts.
AskName asking(const std::shared_ptr<FakeService>& service) {
  return [service](Account kind, id_t number) -> Result<std::string> {
    ++service->asked;
    const auto is_open = [](bool now) { return !now; };
    (void)service->held.wait_until(std::chrono::steady_clock::now() + kPatience, is_open, is_open);
    if (service->fails) return fail(ErrorCode::kUnavailable, "the directory is away");
    const auto found = service->names.find({kind, number});
    return found == service->names.end() ? std::string() : found->second;
  };
}

class TrustTest : public ::testing::Test {
 protected:
  std::shared_ptr<FakeService> service = std::make_shared<FakeService>();
};

TEST_F(TrustTest, OfWhatBelongsToRootIsEverybodys) {
  for (const TrustPolicy policy : {TrustPolicy::kUser, TrustPolicy::kGroup, TrustPolicy::kAll}) {
    Trust trust(policy, asking(service));
    EXPECT_TRUE(trust.of(0, 2001, 01777).is_none());
  }
  EXPECT_EQ(service->asked, 0);
}

TEST_F(TrustTest, IsTheUsersName) {
  Trust trust(TrustPolicy::kUser, asking(service));
  EXPECT_EQ(trust.of(1001, 2001, 01777).value, "user=alice");
  EXPECT_EQ(trust.of(1001, 9, 0700).value, "user=alice");
  EXPECT_EQ(trust.of(1002, 2001, 0700).value, "user=#1002") << "nobody has this number";
  EXPECT_EQ(service->asked, 2) << "once for each";
}

TEST_F(TrustTest, IsTheGroupsNameWhereNobodyElseMayWrite) {
  Trust trust(TrustPolicy::kGroup, asking(service));
  EXPECT_EQ(trust.of(1001, 2001, 02775).value, "group=team");
  EXPECT_EQ(trust.of(1002, 2002, 0750).value, "group=#2002");
  const Fact open = trust.of(1001, 2001, 02777);
  EXPECT_FALSE(open.known);
  EXPECT_NE(open.problem.find("chmod o-w"), std::string::npos) << open.problem;
}

TEST_F(TrustTest, OfAllIsEverybodys) {
  Trust trust(TrustPolicy::kAll, asking(service));
  EXPECT_TRUE(trust.of(1001, 2001, 0700).is_none());
  EXPECT_EQ(service->asked, 0);
}

TEST_F(TrustTest, IsNotKnownWhileTheServiceDoesNotAnswer) {
  service->held.with([](bool& now) { now = true; });
  Trust trust(TrustPolicy::kUser, asking(service));
  const auto begun = std::chrono::steady_clock::now();
  const Fact early = trust.of(1001, 0, 0700);
  EXPECT_FALSE(early.known);
  EXPECT_NE(early.problem.find("the name of user 1001 is not known yet; see `getent passwd 1001`"), std::string::npos)
      << early.problem;
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(trust.of(1001, 0, 0700).known);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10)) << "only the first one waits";
  EXPECT_EQ(service->asked, 1);
  service->held.notify_with([](bool& now) { now = false; });
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!trust.of(1001, 0, 0700).known && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(trust.of(1001, 0, 0700).value, "user=alice");
}

TEST_F(TrustTest, IsAskedForAgainAfterAFailure) {
  service->fails = true;
  Trust trust(TrustPolicy::kUser, asking(service));
  const Fact away = trust.of(1001, 0, 0700);
  EXPECT_FALSE(away.known) << "a number in place of the name would be another scope";
  EXPECT_NE(away.problem.find("the directory is away"), std::string::npos) << away.problem;
  service->fails = false;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!trust.of(1001, 0, 0700).known && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(trust.of(1001, 0, 0700).value, "user=alice");
}

TEST_F(TrustTest, TakesNoNameThatCouldPassForAnotherLine) {
  const std::string too_long(300, 'a');
  for (const std::string& name :
       {std::string("a\nuser=root"), std::string("a=b"), std::string("#1002"), std::string("a b"), too_long}) {
    service->names[{Account::kUser, 1001}] = name;
    Trust trust(TrustPolicy::kUser, asking(service));
    EXPECT_EQ(trust.of(1001, 0, 0700).value, "user=#1001") << name;
  }
}

TEST_F(TrustTest, MayEndBeforeAnAnswer) {
  service->held.with([](bool& now) { now = true; });
  { EXPECT_FALSE(Trust(TrustPolicy::kUser, asking(service)).of(1001, 0, 0700).known); }
  service->held.notify_with([](bool& now) { now = false; });
}

TEST(NameService, AnswersFromThisHost) {
  EXPECT_EQ(ask_name_service(Account::kUser, 0).value_or("no answer"), "root");
  EXPECT_EQ(ask_name_service(Account::kGroup, 0).value_or("no answer"), "root");
  EXPECT_EQ(ask_name_service(Account::kUser, 4'000'000'001).value_or("no answer"), "");
}

TEST(TrustPolicy, HasWords) {
  for (const TrustPolicy policy : {TrustPolicy::kUser, TrustPolicy::kGroup, TrustPolicy::kAll}) {
    EXPECT_EQ(*trust_from_string(to_string(policy)), policy);
  }
  EXPECT_EQ(trust_from_string("everybody").error().code(), ErrorCode::kInvalid);
  EXPECT_EQ(facet_from_string("trust").error().code(), ErrorCode::kInvalid) << "no file of facts gives it";
}

}  // namespace
}  // namespace inductorfs::fingerprint
