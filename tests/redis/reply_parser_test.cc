// SPDX-License-Identifier: Apache-2.0
#include "reply_parser.h"

#include <gtest/gtest.h>

namespace inductorfs::redis {
namespace {

Reply parse_one(std::string_view bytes) {
  ReplyParser parser;
  EXPECT_TRUE(parser.feed(bytes));
  auto reply = parser.next();
  EXPECT_TRUE(reply && *reply) << bytes;
  EXPECT_TRUE(parser.drained()) << bytes;
  return reply && *reply ? std::move(**reply) : Reply{};
}

ErrorCode refusal(ReplyParser& parser, std::string_view bytes) {
  if (auto fed = parser.feed(bytes); !fed) return fed.error().code();
  while (true) {
    auto reply = parser.next();
    if (!reply) return reply.error().code();
    if (!*reply) return ErrorCode::kNoData;
  }
}

TEST(ReplyParser, ReadsEveryTypeOfRespTwo) {
  EXPECT_EQ(parse_one("+OK\r\n").kind, Reply::Kind::kStatus);
  EXPECT_EQ(parse_one(":-12\r\n").integer, -12);
  EXPECT_EQ(parse_one("$-1\r\n").kind, Reply::Kind::kNil);
  EXPECT_EQ(parse_one("*-1\r\n").kind, Reply::Kind::kNil);
  EXPECT_EQ(parse_one("*0\r\n").kind, Reply::Kind::kArray);
  EXPECT_TRUE(parse_one("-ERR no\r\n").is_error());
  EXPECT_EQ(parse_one(std::string_view("$3\r\na\0b\r\n", 9)).text, std::string_view("a\0b", 3));
}

TEST(ReplyParser, ReadsNestedArraysInOrder) {
  const Reply reply = parse_one("*3\r\n*2\r\n:1\r\n$1\r\nx\r\n$-1\r\n*1\r\n*1\r\n+deep\r\n");
  ASSERT_EQ(reply.items.size(), 3U);
  ASSERT_EQ(reply.items[0].items.size(), 2U);
  EXPECT_EQ(reply.items[0].items[0].integer, 1);
  EXPECT_EQ(reply.items[0].items[1].text, "x");
  EXPECT_EQ(reply.items[1].kind, Reply::Kind::kNil);
  EXPECT_EQ(reply.items[2].items.at(0).items.at(0).text, "deep");
}

TEST(ReplyParser, GivesTheSameRepliesWhereverTheBytesAreCut) {
  const std::string bytes = "*2\r\n$5\r\nhello\r\n*2\r\n:7\r\n-E x\r\n+OK\r\n";
  for (size_t cut = 1; cut < bytes.size(); ++cut) {
    ReplyParser parser;
    std::vector<Reply> replies;
    for (const auto part : {std::string_view(bytes).substr(0, cut), std::string_view(bytes).substr(cut)}) {
      ASSERT_TRUE(parser.feed(part));
      while (true) {
        auto reply = parser.next();
        ASSERT_TRUE(reply);
        if (!*reply) break;
        replies.push_back(std::move(**reply));
      }
    }
    ASSERT_EQ(replies.size(), 2U) << cut;
    EXPECT_EQ(replies[0].items.at(1).items.at(1).text, "E x");
    EXPECT_EQ(replies[1].text, "OK");
    EXPECT_TRUE(parser.drained());
  }
}

TEST(ReplyParser, IsNotDrainedInTheMiddleOfAnArray) {
  ReplyParser parser;
  ASSERT_TRUE(parser.feed("*2\r\n:1\r\n"));
  auto reply = parser.next();
  ASSERT_TRUE(reply);
  EXPECT_FALSE(*reply);
  EXPECT_FALSE(parser.drained());
}

TEST(ReplyParser, RefusesWhatIsNoProtocol) {
  for (const std::string_view bytes :
       {"HTTP/1.1 400 Bad Request\r\n", "garbage\r\n", "\r\n\r\n", "%1\r\n+a\r\n+b\r\n"}) {
    ReplyParser parser;
    EXPECT_EQ(refusal(parser, bytes), ErrorCode::kCorrupt) << bytes;
    EXPECT_FALSE(parser.next()) << "a parser must not recover from " << bytes;
  }
}

TEST(ReplyParser, RefusesDeepNesting) {
  ReplyParser parser;
  std::string bytes;
  for (int i = 0; i < 2000; ++i) bytes += "*1\r\n";
  EXPECT_EQ(refusal(parser, bytes), ErrorCode::kCorrupt);
  ReplyParser shallow({.depth = 2});
  EXPECT_EQ(refusal(shallow, "*1\r\n*1\r\n*1\r\n:1\r\n"), ErrorCode::kCorrupt);
}

TEST(ReplyParser, RefusesMoreElementsThanItsLimitBeforeTheyAreAllocated) {
  for (const std::string_view bytes : {"*2147483647\r\n", "*2000000000\r\n", "*-2147483648\r\n:1\r\n"}) {
    ReplyParser parser;
    const ErrorCode code = refusal(parser, bytes);
    EXPECT_TRUE(code == ErrorCode::kCorrupt || bytes[1] == '-') << bytes;
  }
  ReplyParser parser({.elements = 4});
  EXPECT_EQ(refusal(parser, "*2\r\n*2\r\n:1\r\n:2\r\n*1\r\n"), ErrorCode::kCorrupt) << "all levels count together";
  ReplyParser fresh({.elements = 4});
  EXPECT_EQ(refusal(fresh, "*3\r\n:1\r\n:2\r\n:3\r\n*3\r\n:1\r\n:2\r\n:3\r\n"), ErrorCode::kNoData)
      << "each reply has its own budget";
}

TEST(ReplyParser, RefusesAStringOverItsLimitWhileItArrives) {
  ReplyParser parser({.bulk_bytes = 1000});
  ASSERT_TRUE(parser.feed("$1000000000\r\n"));
  const std::string chunk(500, 'x');
  ErrorCode code = ErrorCode::kNoData;
  int fed = 0;
  while (code == ErrorCode::kNoData && fed < 100) {
    code = refusal(parser, chunk);
    ++fed;
  }
  EXPECT_EQ(code, ErrorCode::kCorrupt);
  EXPECT_LE(fed, 4);
  ReplyParser exact({.bulk_bytes = 1000});
  EXPECT_EQ(refusal(exact, "$1000\r\n" + std::string(1000, 'x') + "\r\n"), ErrorCode::kNoData);
  ReplyParser over({.bulk_bytes = 1000});
  EXPECT_EQ(refusal(over, "$1001\r\n" + std::string(1001, 'x') + "\r\n"), ErrorCode::kCorrupt);
}

TEST(ReplyParser, RefusesAReplyWhoseStringsAreTooLongTogether) {
  ReplyParser parser({.reply_bytes = 10});
  EXPECT_EQ(refusal(parser, "*3\r\n$4\r\naaaa\r\n$4\r\nbbbb\r\n$4\r\ncccc\r\n"), ErrorCode::kCorrupt);
}

TEST(AppendCommand, IsBinarySafeAndKeepsEmptyArguments) {
  std::string out;
  ASSERT_TRUE(append_command({"SET", std::string_view("a\0\r", 3), ""}, out));
  EXPECT_EQ(out, std::string("*3\r\n$3\r\nSET\r\n$3\r\na\0\r\r\n$0\r\n\r\n", 28));
}

TEST(AppendCommand, RefusesACommandOverItsLimit) {
  const std::string large(kCommandBytesLimit + 1, 'x');
  std::string out;
  const auto appended = append_command({"SET", "k", large}, out);
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.error().code(), ErrorCode::kTooLarge);
  EXPECT_TRUE(out.empty());
}

}  // namespace
}  // namespace inductorfs::redis
