// SPDX-License-Identifier: Apache-2.0
#include "remote/client/slot_map.h"

#include <gtest/gtest.h>

#include <string>

namespace inductorfs::remote {
namespace {

using redis::HostPort;
using redis::Reply;

Reply number(int64_t value) {
  Reply reply;
  reply.kind = Reply::Kind::kInteger;
  reply.integer = value;
  return reply;
}
Reply text(const std::string& value) {
  Reply reply;
  reply.kind = Reply::Kind::kString;
  reply.text = value;
  return reply;
}
Reply list(std::vector<Reply> items) {
  Reply reply;
  reply.kind = Reply::Kind::kArray;
  reply.items = std::move(items);
  return reply;
}
Reply node(const std::string& host, int64_t port) { return list({text(host), number(port), text("id"), list({})}); }
Reply range(int64_t first, int64_t last, Reply master) {
  return list({number(first), number(last), std::move(master), node("replica", 1)});
}

const HostPort kAsked{"asked", 7000};

TEST(Slot, IsThatOfTheClusterSpecification) {
  EXPECT_EQ(slot_of_key("123456789"), 0x31C3 % kSlots) << "the check value of the specification";
  EXPECT_EQ(slot_of_key("foo"), 12182);
  EXPECT_EQ(slot_of_key(""), 0);
}

TEST(Slot, IsThatOfTheHashTagAlone) {
  EXPECT_EQ(slot_of_key("ifs1:{foo}:meta"), slot_of_key("foo"));
  EXPECT_EQ(slot_of_key("{foo}{bar}"), slot_of_key("foo"));
  EXPECT_EQ(slot_of_key("foo{}{bar}"), slot_of_key(std::string_view("foo{}{bar}"))) << "an empty tag is none";
  EXPECT_NE(slot_of_key("foo{}{bar}"), slot_of_key("bar"));
  EXPECT_NE(slot_of_key("foo{bar"), slot_of_key("bar"));
  EXPECT_EQ(slot_of_key("foo{{bar}}zap"), slot_of_key("{bar")) << "from the first { to the first }";
}

TEST(Slot, OfACommandIsThatOfItsFirstKey) {
  EXPECT_EQ(slot_of({"GET", "foo"}), 12182);
  EXPECT_EQ(slot_of({"EVAL", "return 1", "2", "foo", "{foo}x", "argument"}), 12182);
  EXPECT_EQ(slot_of({"XREAD", "COUNT", "1", "STREAMS", "foo", "0-0"}), 12182);
  EXPECT_EQ(slot_of({"SPUBLISH", "foo", ""}), 12182);
  EXPECT_FALSE(slot_of({"TIME"}));
  EXPECT_FALSE(slot_of({"INFO", "server"}));
  EXPECT_FALSE(slot_of({"EVAL", "return 1", "0"}));
}

TEST(SlotMap, NamesTheMasterOfEachSlot) {
  const auto map = parse_slots(list({range(0, 99, node("10.0.0.1", 7001)), range(200, 16383, node("b.example", 7002)),
                                     range(100, 150, node("10.0.0.1", 7001))}),
                               kAsked);
  ASSERT_TRUE(map) << map.error().to_string();
  ASSERT_EQ(map->masters.size(), 2U);
  EXPECT_EQ(map->masters[map->owners[0]], (HostPort{"10.0.0.1", 7001}));
  EXPECT_EQ(map->owners[150], map->owners[99]);
  EXPECT_EQ(map->masters[map->owners[16383]], (HostPort{"b.example", 7002}));
  EXPECT_EQ(map->owners[199], SlotMap::kNobody);
  EXPECT_EQ(map->uncovered(), 49U);
}

TEST(SlotMap, ANodeThatDoesNotKnowItsAddressIsTheOneThatWasAsked) {
  const auto map = parse_slots(list({range(0, 1, node("", 7001)), range(2, 3, node("?", 7002))}), kAsked);
  ASSERT_TRUE(map);
  EXPECT_EQ(map->masters[map->owners[0]], (HostPort{"asked", 7001}));
  EXPECT_EQ(map->owners[2], SlotMap::kNobody) << "nobody can be asked at ?";
}

TEST(SlotMap, RefusesWhatIsNotTheAnswer) {
  const auto code = [](const Reply& reply) {
    const auto map = parse_slots(reply, kAsked);
    return map ? std::optional<ErrorCode>() : map.error().code();
  };
  EXPECT_EQ(code(text("OK")), ErrorCode::kCorrupt);
  EXPECT_EQ(code(list({number(1)})), ErrorCode::kCorrupt);
  EXPECT_EQ(code(list({list({number(0), number(1)})})), ErrorCode::kCorrupt);
  EXPECT_EQ(code(list({list({text("0"), number(1), node("a", 1)})})), ErrorCode::kCorrupt);
  EXPECT_EQ(code(list({range(-1, 1, node("a", 1))})), ErrorCode::kCorrupt);
  EXPECT_EQ(code(list({range(2, 1, node("a", 1))})), ErrorCode::kCorrupt);
  EXPECT_EQ(code(list({range(0, 16384, node("a", 1))})), ErrorCode::kCorrupt);
  EXPECT_EQ(code(list({range(0, 5, node("a", 1)), range(5, 9, node("b", 1))})), ErrorCode::kCorrupt);
  for (const int64_t port : {int64_t{0}, int64_t{-1}, int64_t{65536}}) {
    EXPECT_EQ(code(list({range(0, 1, node("a", port))})), ErrorCode::kCorrupt) << port;
  }
  for (const std::string& host : {std::string("a b"), std::string("/run/redis.sock"), std::string("a\n"),
                                  std::string("a\0b", 3), std::string(254, 'a'), std::string("user@host")}) {
    EXPECT_EQ(code(list({range(0, 1, node(host, 1))})), ErrorCode::kCorrupt) << host;
  }
}

TEST(SlotMap, IsBounded) {
  std::vector<Reply> ranges;
  for (int i = 0; i <= static_cast<int>(kMastersLimit); ++i) ranges.push_back(range(i, i, node("a", i + 1)));
  EXPECT_FALSE(parse_slots(list(ranges), kAsked));
  ranges.pop_back();
  EXPECT_TRUE(parse_slots(list(ranges), kAsked));
}

TEST(RedirectText, IsRead) {
  const auto moved = parse_redirect("MOVED 3999 127.0.0.1:6381", kAsked);
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->kind, Redirect::Kind::kMoved);
  EXPECT_EQ(moved->slot, 3999);
  EXPECT_EQ(moved->to, (HostPort{"127.0.0.1", 6381}));
  const auto ask = parse_redirect("ASK 0 ::1:7000", kAsked);
  ASSERT_TRUE(ask);
  EXPECT_EQ(ask->kind, Redirect::Kind::kAsk);
  EXPECT_EQ(ask->to, (HostPort{"::1", 7000}));
  EXPECT_EQ(parse_redirect("MOVED 1 :7000", kAsked)->to, (HostPort{"asked", 7000}));
}

TEST(RedirectText, ThatIsNoneIsRefused) {
  for (const char* const bad :
       {"", "MOVED", "MOVED ", "MOVED 1", "MOVED 1 host", "MOVED 1 host:", "MOVED 1 host:0", "MOVED 1 host:65536",
        "MOVED 1 host:70000000000", "MOVED 16384 host:1", "MOVED -1 host:1", "MOVED x host:1", "MOVED 1 ?:7000",
        "MOVED 1 /run/redis.sock:1", "MOVED 1 a b:1", "MOVED 1 host:1x", "ASKING 1 host:1", "moved 1 host:1"}) {
    EXPECT_FALSE(parse_redirect(bad, kAsked)) << bad;
  }
}

}  // namespace
}  // namespace inductorfs::remote
