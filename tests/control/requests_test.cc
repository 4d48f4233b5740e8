// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/control/requests.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "inductorfs/config/json.h"

namespace inductorfs::control {
namespace {

constexpr uid_t kOwner = 1000;

class FakeMount final : public MountControl {
 public:
  std::string status(const Peer* guest) override {
    guest_uid = guest != nullptr ? std::optional(guest->uid) : std::nullopt;
    return R"({"mountpoint":"/m"})";
  }
  std::string where() override { return R"({"mountpoint":"/m","also":[]})"; }
  Result<std::string> show_to(uid_t user, const std::function<bool()>&) override {
    shown_to = user;
    return std::string(R"({"failed":""})");
  }
  Result<std::string> explain(const std::string& path, const Peer* guest) override {
    if (guest != nullptr) return fail(ErrorCode::kNotPermitted, "closed to " + std::to_string(guest->uid));
    explained = path;
    return std::string("{}");
  }
  std::string stats(std::optional<uid_t> user) override {
    seen_by = user;
    return R"({"all":{}})";
  }
  std::string jobs(std::optional<uid_t> user) override {
    seen_by = user;
    return R"({"jobs":[]})";
  }
  std::string misses(uint64_t job, std::optional<uid_t> user) override {
    asked_job = job;
    seen_by = user;
    return "{}";
  }
  Result<std::string> sync(Deadline deadline, const std::function<bool()>&) override {
    sync_left = deadline.left();
    if (!outcome) return fail(outcome.error());
    return std::string(R"({"published":3})");
  }
  Result<void> unmount(bool lazy) override {
    unmounts.push_back(lazy);
    return outcome;
  }
  Result<std::string> upgrade(const std::string& program, const Fd&) override {
    programs.push_back(program);
    if (!outcome) return fail(outcome.error());
    return std::string(R"({"pid":7})");
  }

  Result<std::string> warm(const WarmSelection& selection, Milliseconds slice, const std::function<bool()>&) override {
    warmed.emplace_back(selection, slice);
    if (!outcome) return fail(outcome.error());
    return std::string(R"({"done":true})");
  }

  Result<std::string> ask_cluster(const std::string& request, const std::function<bool()>&) override {
    cluster_requests.push_back(request);
    return std::string(R"({"nodes":[]})");
  }

  std::vector<std::string> cluster_requests;
  Result<void> outcome;
  std::string explained;
  std::optional<uid_t> guest_uid;
  std::optional<uid_t> seen_by;
  std::optional<uid_t> shown_to;
  uint64_t asked_job = 0;
  std::vector<std::pair<WarmSelection, Milliseconds>> warmed;
  Milliseconds sync_left{0};
  std::vector<bool> unmounts;
  std::vector<std::string> programs;
};

class Requests : public ::testing::Test {
 protected:
  Answer answer(std::string_view request, uid_t uid = kOwner) {
    Peer peer;
    peer.uid = uid;
    peer.gone = [] { return false; };
    return answer_request(mount_, request, peer, kOwner);
  }
  ErrorCode refusal(std::string_view request, uid_t uid = kOwner) {
    const Result<std::string> result = parse_answer(answer(request, uid).line);
    EXPECT_FALSE(result.has_value());
    return result ? ErrorCode::kInternal : result.error().code();
  }
  FakeMount mount_;
};

TEST_F(Requests, CarryTheStatus) {
  const Result<std::string> result = parse_answer(answer(status_request()).line);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(*result, R"({"mountpoint":"/m"})");
}

TEST_F(Requests, ShowPlacesToNobodyButWhoeverAsks) {
  ASSERT_TRUE(parse_answer(answer(R"({"op":"places","user":0})", kOwner + 1).line));
  EXPECT_EQ(mount_.shown_to, kOwner + 1);
  ASSERT_TRUE(parse_answer(answer(places_request()).line));
  EXPECT_EQ(mount_.shown_to, kOwner);
}

TEST_F(Requests, CarryAProgramWithItsDescriptor) {
  Peer peer;
  peer.uid = kOwner;
  peer.gone = [] { return false; };
  const std::string request = upgrade_request("/opt/inductorfs");
  const auto refused = parse_answer(answer_request(mount_, request, peer, kOwner).line);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalid);
  EXPECT_TRUE(mount_.programs.empty());
  peer.descriptor = std::make_shared<const Fd>(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(parse_answer(answer_request(mount_, request, peer, kOwner).line));
  EXPECT_EQ(mount_.programs, std::vector<std::string>{"/opt/inductorfs"});
}

TEST_F(Requests, CarryAPathOfAnyBytes) {
  const std::string path("a/\xff\n\"\\\0z", 8);
  ASSERT_TRUE(parse_answer(answer(explain_request(path)).line).has_value());
  EXPECT_EQ(mount_.explained, path);
}

TEST_F(Requests, TellWhoAsksForTheStatusAndAnExplanation) {
  constexpr uid_t kOther = 1001;
  EXPECT_EQ(refusal(explain_request("a"), kOther), ErrorCode::kNotPermitted);
  EXPECT_TRUE(parse_answer(answer(status_request(), kOther).line).has_value());
  EXPECT_EQ(mount_.guest_uid, kOther);
  for (const uid_t user : {uid_t{0}, kOwner}) {
    EXPECT_TRUE(parse_answer(answer(explain_request("a"), user).line).has_value());
    EXPECT_TRUE(parse_answer(answer(status_request(), user).line).has_value());
    EXPECT_EQ(mount_.guest_uid, std::nullopt);
  }
}

TEST_F(Requests, ShowEachUserHisOwnJobs) {
  constexpr uid_t kOther = 1001;
  EXPECT_TRUE(parse_answer(answer(stats_request(), kOther).line).has_value());
  EXPECT_EQ(mount_.seen_by, kOther);
  mount_.seen_by.reset();
  EXPECT_TRUE(parse_answer(answer(jobs_request(), kOther).line).has_value());
  EXPECT_EQ(mount_.seen_by, kOther);
  EXPECT_TRUE(parse_answer(answer(misses_request(17), kOther).line).has_value());
  EXPECT_EQ(mount_.asked_job, 17U);
  EXPECT_EQ(mount_.seen_by, kOther);
  for (const uid_t owner : {kOwner, uid_t{0}}) {
    EXPECT_TRUE(parse_answer(answer(misses_request(0), owner).line).has_value());
    EXPECT_EQ(mount_.seen_by, std::nullopt);
  }
  EXPECT_TRUE(parse_answer(answer(R"({"op":"misses","job":-4})").line).has_value());
  EXPECT_EQ(mount_.asked_job, 0U);
}

TEST_F(Requests, CarryTheTimeOfASync) {
  ASSERT_TRUE(parse_answer(answer(sync_request(Milliseconds(5000))).line).has_value());
  EXPECT_GT(mount_.sync_left, Milliseconds(3000));
  EXPECT_LE(mount_.sync_left, Milliseconds(5000));
}

TEST_F(Requests, CarryWhatASyncDid) {
  EXPECT_EQ(parse_answer(answer(sync_request(Milliseconds(1))).line).value_or(""), R"({"published":3})");
}

TEST_F(Requests, CarryErrorsWithCodeAndText) {
  mount_.outcome = fail(ErrorCode::kUnavailable, "3 groups are queued");

  const Result<std::string> result = parse_answer(answer(sync_request(Milliseconds(1))).line);

  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(result.error().what(), "3 groups are queued");
}

TEST_F(Requests, HoldTheConnectionOnlyWhenTheDaemonEnds) {
  EXPECT_TRUE(answer(unmount_request(false)).hold_until_exit);
  EXPECT_FALSE(answer(status_request()).hold_until_exit);
  mount_.outcome = fail(ErrorCode::kBusy, "in use");
  EXPECT_FALSE(answer(unmount_request(true)).hold_until_exit);
  EXPECT_EQ(mount_.unmounts, (std::vector<bool>{false, true}));
}

TEST_F(Requests, RefuseChangesToOtherUsers) {
  EXPECT_EQ(refusal(sync_request(Milliseconds(1)), 1001), ErrorCode::kNotPermitted);
  EXPECT_EQ(refusal(unmount_request(true), 1001), ErrorCode::kNotPermitted);
  EXPECT_TRUE(mount_.unmounts.empty());
  EXPECT_TRUE(parse_answer(answer(unmount_request(false), 0).line).has_value());
  EXPECT_TRUE(parse_answer(answer(status_request(), 1001).line).has_value());
}

TEST_F(Requests, LetEverybodyListTheClusterAndTheOwnerOrder) {
  EXPECT_EQ(parse_answer(answer(R"({"op":"nodes"})", 1001).line).value_or(""), R"({"nodes":[]})");
  for (const char* order : {"freeze", "lift", "purge"}) {
    const std::string request = std::string(R"({"op":")") + order + R"(","why":"x"})";
    EXPECT_EQ(refusal(request, 1001), ErrorCode::kNotPermitted) << order;
    EXPECT_TRUE(parse_answer(answer(request).line)) << order;
    EXPECT_EQ(mount_.cluster_requests.back(), request);
  }
  EXPECT_EQ(mount_.cluster_requests.size(), 4U);
}

TEST_F(Requests, RefuseNonsense) {
  for (const char* text : {"", "{", "[]", "null", "7", "\xff", R"({"op":7})", R"({"op":"explain","path":"zz"})",
                           R"({"op":"explain"})", R"({"op":"format"})", "{}"}) {
    EXPECT_FALSE(parse_answer(answer(text).line).has_value()) << text;
  }
}

TEST_F(Requests, TakeOddMembersAsAbsent) {
  ASSERT_TRUE(parse_answer(answer(R"({"op":"unmount","lazy":"yes"})").line).has_value());
  EXPECT_EQ(mount_.unmounts, std::vector<bool>{false});
  ASSERT_TRUE(parse_answer(answer(R"({"op":"sync","timeout_ms":-5})").line).has_value());
  EXPECT_EQ(mount_.sync_left, Milliseconds(0));
}

TEST_F(Requests, AreOneLineEach) {
  for (const std::string& request :
       {status_request(), where_request(), explain_request("a\nb"), unmount_request(true)}) {
    EXPECT_EQ(request.find('\n'), std::string::npos);
  }
  mount_.outcome = fail(ErrorCode::kBusy, "two\nlines");
  EXPECT_EQ(answer(unmount_request(false)).line.find('\n'), std::string::npos);
}

TEST(ParseAnswer, RefusesWhatIsNone) {
  for (const char* text : {"", "ok", "[]", "{\"ok\":false}"}) EXPECT_FALSE(parse_answer(text).has_value()) << text;
}

TEST_F(Requests, WarmTheStoreForRootAndTheOwner) {
  WarmSelection selection;
  selection.pattern = "triton/**";
  selection.family = "triton";
  selection.scope = "0123456789";
  selection.limit = UINT64_MAX - 1;
  for (const uid_t uid : {kOwner, uid_t{0}}) {
    EXPECT_TRUE(parse_answer(answer(warm_request(selection, Milliseconds(1000)), uid).line).has_value());
    ASSERT_FALSE(mount_.warmed.empty());
    EXPECT_EQ(mount_.warmed.back().first, selection);
    EXPECT_EQ(mount_.warmed.back().second, Milliseconds(1000));
  }
  EXPECT_EQ(refusal(warm_request(selection, Milliseconds(1)), kOwner + 1), ErrorCode::kNotPermitted);
  EXPECT_EQ(refusal(R"({"op":"warm","pattern":"xyz"})"), ErrorCode::kInvalid);
  EXPECT_EQ(refusal(R"({"op":"warm","limit":-1})"), ErrorCode::kInvalid);
  EXPECT_EQ(mount_.warmed.size(), 2U);
  EXPECT_TRUE(parse_answer(answer(R"({"op":"warm","slice_ms":999999999})").line).has_value());
  EXPECT_LE(mount_.warmed.back().second, Milliseconds(5000));
}

}  // namespace
}  // namespace inductorfs::control
