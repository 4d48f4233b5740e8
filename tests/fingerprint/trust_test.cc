// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/trust.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <utility>

#include "inductorfs/base/guarded.h"
#include "support/temporary_directory.h"

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

TEST_F(TrustTest, OfWhatBelongsToRootIsEverybodysWhereOthersMayWriteAndRootsElse) {
  for (const TrustPolicy policy : {TrustPolicy::kUser, TrustPolicy::kGroup, TrustPolicy::kAll}) {
    Trust trust(policy, asking(service));
    for (const mode_t mode : {01777U, 0775U, 0757U}) EXPECT_TRUE(trust.of(0, 2001, mode).is_none());
    EXPECT_EQ(trust.of(0, 2001, 0755).value, policy == TrustPolicy::kAll ? "none" : "user=root");
  }
  EXPECT_EQ(service->asked, 0);
}

TEST_F(TrustTest, IsTheUsersName) {
  Trust trust(TrustPolicy::kUser, asking(service));
  EXPECT_EQ(trust.of(1001, 2001, 0755).value, "user=alice");
  EXPECT_EQ(trust.of(1001, 9, 0700).value, "user=alice");
  EXPECT_EQ(trust.of(1002, 2001, 0700).value, "user=#1002") << "nobody has this number";
  EXPECT_EQ(service->asked, 2) << "once for each";
}

/// Who may write there may put code under any name, and change what the user has made.
TEST_F(TrustTest, IsNobodysWhereOthersMayWriteToAUsersDirectory) {
  service->names[{Account::kGroup, 1001}] = "alice";
  Trust trust(TrustPolicy::kUser, asking(service));
  const Fact open = trust.of(1001, 2001, 01777);
  EXPECT_FALSE(open.known);
  EXPECT_NE(open.problem.find("chmod o-w"), std::string::npos) << open.problem;
  const Fact shared = trust.of(1001, 2001, 0775);
  EXPECT_FALSE(shared.known);
  EXPECT_NE(shared.problem.find("the group team may write"), std::string::npos) << shared.problem;
  EXPECT_EQ(trust.of(1001, 1001, 0775).value, "user=alice") << "a group of that user's own";
  EXPECT_EQ(trust.of(1002, 1002, 0775).value, "user=#1002");
  EXPECT_FALSE(trust.of(1002, 1003, 0775).known);
}

/// Who is a member of the group may put code there, whatever the group is called.
TEST_F(TrustTest, IsNobodysWhereTheUsersOwnGroupHasOtherMembers) {
  service->names[{Account::kGroup, 1001}] = "alice";
  service->names[{Account::kMembers, 1001}] = "alice mallory";
  Trust trust(TrustPolicy::kUser, asking(service));
  const Fact shared = trust.of(1001, 1001, 0775);
  EXPECT_FALSE(shared.known);
  EXPECT_NE(shared.problem.find("mallory, a member of the group alice, may write"), std::string::npos)
      << shared.problem;
  EXPECT_FALSE(trust.is_own_group(1001, 1001));
  EXPECT_EQ(trust.of(1001, 1001, 0755).value, "user=alice") << "the group has no say";
  service->names[{Account::kGroup, 1002}] = "bob";
  service->names[{Account::kUser, 1002}] = "bob";
  service->names[{Account::kMembers, 1002}] = " bob";
  EXPECT_TRUE(trust.is_own_group(1002, 1002)) << "alone, and listed";
}

/// A number may be given to another account, who must not pass for the earlier one.
TEST_F(TrustTest, AsksAgainAtOnceWhenTheAccountsOfThisHostChange) {
  const testing::TemporaryDirectory directory;
  std::ofstream(directory.path() + "/passwd") << "alice:x:1001:";
  Trust trust(TrustPolicy::kUser, asking(service), directory.path());
  EXPECT_EQ(trust.of(1001, 2001, 0700).value, "user=alice");
  const uint64_t before = trust.accounts();
  service->names[{Account::kUser, 1001}] = "mallory";
  EXPECT_EQ(trust.of(1001, 2001, 0700).value, "user=alice") << "nothing has changed";
  std::ofstream(directory.path() + "/passwd.new") << "mallory:x:1001:";
  std::filesystem::rename(directory.path() + "/passwd.new", directory.path() + "/passwd");
  EXPECT_NE(trust.accounts(), before);
  service->held.with([](bool& now) { now = true; });
  EXPECT_FALSE(trust.of(1001, 2001, 0700).known) << "the earlier name does not count any more";
  EXPECT_TRUE(trust.is_asking(1001, 2001));
  service->held.notify_with([](bool& now) { now = false; });
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!trust.of(1001, 2001, 0700).known && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(trust.of(1001, 2001, 0700).value, "user=mallory");
}

TEST_F(TrustTest, IsTheGroupsNameWhereItsMembersAloneMayWrite) {
  service->names[{Account::kGroupsOf, 1001}] = "1001 2001 2002";
  service->names[{Account::kGroupsOf, 1002}] = "1002 20010";
  Trust trust(TrustPolicy::kGroup, asking(service));
  EXPECT_EQ(trust.of(1001, 2001, 02775).value, "group=team");
  EXPECT_EQ(trust.of(1001, 2002, 0750).value, "group=#2002");
  EXPECT_FALSE(trust.of(1001, 2001, 02777).known) << "everybody may write";
  const Fact outsider = trust.of(1002, 2001, 02775);
  EXPECT_FALSE(outsider.known) << "his directory got the group from the one above";
  EXPECT_NE(outsider.problem.find("is not in its group (team)"), std::string::npos) << outsider.problem;
  EXPECT_TRUE(trust.is_member(1001, 2001));
  EXPECT_FALSE(trust.is_member(1002, 2001));
  EXPECT_FALSE(trust.is_member(1003, 2001)) << "not asked yet, or nobody";
}

TEST_F(TrustTest, AsksAServiceThatFailsOnceAMinute) {
  service->fails = true;
  Trust trust(TrustPolicy::kUser, asking(service));
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(trust.of(1001, 0, 0700).known);
  EXPECT_EQ(service->asked, 1) << "each question is a process";
  EXPECT_FALSE(trust.of(1002, 0, 0700, Milliseconds(0)).known);
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
  EXPECT_TRUE(trust.is_asking(1001, 0));
  EXPECT_FALSE(trust.is_asking(1002, 0)) << "nobody has asked";
  service->held.notify_with([](bool& now) { now = false; });
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!trust.of(1001, 0, 0700).known && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(trust.of(1001, 0, 0700).value, "user=alice");
  EXPECT_FALSE(trust.is_asking(1001, 0));
}

TEST_F(TrustTest, TakesNoNameThatCouldPassForAnotherLine) {
  const std::string too_long(300, 'a');
  for (const std::string& name : {std::string("a\nuser=root"), std::string("a=b"), std::string("#1002"),
                                  std::string("a b"), std::string("a\xc2\x9b"), too_long}) {
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
  EXPECT_EQ(ask_name_service(Account::kGroupsOf, 65534).value_or("no answer"), "65534");
  EXPECT_EQ(ask_name_service(Account::kGroupsOf, 4'000'000'001).value_or("no answer"), "");
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
