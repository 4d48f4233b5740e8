// SPDX-License-Identifier: Apache-2.0
// Small blobs that become members of solid blocks, and what happens to both.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "gather_fixture.h"
#include "inductorfs/base/guarded.h"
#include "redis_fixture.h"
#include "support/scripted_server.h"

namespace inductorfs::remote {
namespace {

class RedisGather : public RedisFixture {
 protected:
  void put(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      digests.push_back(framed.add(text));
      send("blob/" + digests.back().to_hex(), digests.back());
    }
  }
  void put_like(uint32_t count) {
    std::vector<std::string> texts;
    for (uint32_t i = 0; i < count; ++i) texts.push_back(like_text(i));
    put(texts);
  }
  /// Publishes a path with bytes of `framed`.
  void send(const std::string& path, const codec::Digest& digest) {
    const auto outcome = remote.index->publish(group_of(scope, {entry_of(path, digest)}), framed, soon());
    ASSERT_TRUE(outcome) << outcome.error().to_string();
  }
  GatherReport gather() {
    const auto report = remote.blobs->gather(digests, soon());
    EXPECT_TRUE(report) << report.error().to_string();
    return report.value_or(GatherReport{});
  }
  [[nodiscard]] std::vector<std::string> texts() const {
    std::vector<std::string> all;
    for (const codec::Digest& digest : digests) all.push_back(framed.raw(digest));
    return all;
  }
  codec::MemberFrame member(size_t index) {
    const auto frame = codec::MemberFrame::parse(run({"GET", key_of(digests[index])}).text.substr(kPieceHeadSize));
    EXPECT_TRUE(frame);
    return frame.value_or(codec::MemberFrame{});
  }
  void put_member(size_t index, const codec::MemberFrame& frame) {
    run({"SET", key_of(digests[index]), PieceHead::of(codec::kMemberFrameSize).encode() + frame.encode()});
  }
  [[nodiscard]] int64_t stored() {
    int64_t bytes = 0;
    for (const redis::Reply& key : run({"KEYS", "ifs1:b:*"}).items) bytes += run({"STRLEN", key.text}).integer;
    return bytes;
  }
  /// Forgets the blocks that were fetched.
  void begin_anew() { reopen(); }
  static std::string error(ErrorCode code) { return "error " + std::to_string(static_cast<int>(code)); }

  FramedSource framed;
  std::vector<codec::Digest> digests;
};

TEST_F(RedisGather, BlobsTakeLessAndComeBackByteForByte) {
  put_like(50);
  const int64_t before = stored();
  const GatherReport report = gather();
  EXPECT_EQ(report.blobs, 50U);
  EXPECT_EQ(report.blocks, 1U);
  EXPECT_EQ(report.bytes_before, static_cast<uint64_t>(before));
  EXPECT_EQ(report.bytes_after, static_cast<uint64_t>(stored()));
  EXPECT_LT(stored() * 4, before);
  EXPECT_EQ(fetched(remote, digests), texts());
}

TEST_F(RedisGather, OneByOneTheyCostOneFetchOfTheirBlock) {
  put_like(20);
  gather();
  const uint64_t before = count("remote.fetch_bytes");
  for (const codec::Digest& digest : digests) EXPECT_EQ(fetched(remote, {digest}).front(), framed.raw(digest));
  EXPECT_EQ(count("remote.fetch_blocks"), 1U);
  EXPECT_EQ(count("remote.fetch_blobs"), 20U);
  EXPECT_LT(count("remote.fetch_bytes") - before, static_cast<uint64_t>(stored()) + 1);
}

TEST_F(RedisGather, AgainGathersNothing) {
  put_like(20);
  gather();
  const int64_t before = stored();
  EXPECT_EQ(gather().blobs, 0U);
  EXPECT_EQ(stored(), before);
}

TEST_F(RedisGather, WhatIsNamedTwiceIsOneMember) {
  put_like(10);
  const auto once = digests;
  digests.insert(digests.end(), once.begin(), once.end());
  EXPECT_EQ(gather().blobs, 10U);
  digests = once;
  EXPECT_EQ(fetched(remote, once), texts());
}

TEST_F(RedisGather, WhatHasNothingInCommonStaysAsItIs) {
  for (uint32_t i = 0; i < 20; ++i) put({test_bytes(3000, i + 1)});
  const int64_t before = stored();
  EXPECT_EQ(gather().blocks, 0U);
  EXPECT_EQ(stored(), before);
  EXPECT_EQ(fetched(remote, digests), texts());
}

TEST_F(RedisGather, ABlockHasItsLimitAndLargeBlobsStayOut) {
  const std::string common = test_bytes(300'000, 5);
  for (uint32_t i = 0; i < 8; ++i) put({common + test_bytes(10, i)});
  put({std::string(2'000'000, 'x')});
  const GatherReport report = gather();
  EXPECT_EQ(report.blobs, 8U);
  EXPECT_EQ(report.blocks, 3U);
  for (size_t i = 0; i < 8; ++i) EXPECT_LE(member(i).offset + member(i).size, codec::kSolidBlockLimit);
  FakeSink sink;
  remote.blobs->fetch(digests, sink, soon());
  EXPECT_EQ(codec::decode_frame(sink.frames[digests.back()], digests.back(), 2'000'000).value(),
            framed.raw(digests.back()));
  digests.pop_back();
  EXPECT_EQ(fetched(remote, digests), texts());
}

TEST_F(RedisGather, AMemberWhoseBlockIsGoneIsGoneAndIsSentAgain) {
  put_like(10);
  gather();
  run({"DEL", key_of(member(0).block)});
  begin_anew();
  EXPECT_EQ(fetched(remote, {digests[3]}).front(), error(ErrorCode::kNotFound));
  const int reads = framed.reads;
  send("again", digests[3]);
  EXPECT_EQ(framed.reads, reads + 1) << "a place without its block is no blob";
  EXPECT_EQ(fetched(remote, {digests[3]}).front(), framed.raw(digests[3]));
  EXPECT_EQ(fetched(remote, {digests[4]}).front(), error(ErrorCode::kNotFound));
}

TEST_F(RedisGather, ASweepRemovesTheMembersOfABlockThatIsGone) {
  put_like(10);
  gather();
  run({"DEL", key_of(member(0).block)});
  const auto swept = remote.index->sweep(scope, true, soon());
  ASSERT_TRUE(swept) << swept.error().to_string();
  EXPECT_EQ(swept->gone, 10U);
}

TEST_F(RedisGather, AMemberThatIsThereIsNotSentAgain) {
  put_like(10);
  gather();
  const int reads = framed.reads;
  send("another path", digests[3]);
  EXPECT_EQ(framed.reads, reads);
}

TEST_F(RedisGather, ABlockIsRenewedWithAnyOfItsMembers) {
  options.blob_lifetime = std::chrono::seconds(1000);
  reopen();
  put_like(10);
  gather();
  const std::string block = key_of(member(0).block);
  EXPECT_GT(run({"TTL", block}).integer, 900);
  EXPECT_GT(run({"TTL", key_of(digests[2])}).integer, 900);
  run({"EXPIRE", block, "10"});
  ASSERT_TRUE(remote.blobs->renew(std::vector{digests[2]}, soon()));
  EXPECT_GT(run({"TTL", block}).integer, 900) << "also when the member itself is fresh";
}

TEST_F(RedisGather, ADamagedBlockIsCorruptForItsMembersOnly) {
  put_like(10);
  gather();
  put({"by itself"});
  const std::string block = key_of(member(0).block);
  const std::string good = run({"GET", block}).text;
  std::string bad = good;
  bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 1);
  for (const std::string& value : {bad, good.substr(0, good.size() - 1), std::string("IFSP"), std::string("x")}) {
    run({"SET", block, value});
    begin_anew();
    const auto got = fetched(remote, digests);
    for (size_t i = 0; i < 10; ++i) EXPECT_EQ(got[i], error(ErrorCode::kCorrupt)) << value.size();
    EXPECT_EQ(got[10], "by itself");
  }
  run({"SET", block, good});
  begin_anew();
  EXPECT_EQ(fetched(remote, digests), texts());
}

TEST_F(RedisGather, AReportedMemberIsSentByItself) {
  put_like(10);
  gather();
  ASSERT_TRUE(remote.index->report_lost(scope, "blob/" + digests[3].to_hex(), digests[3], soon()));
  EXPECT_EQ(fetched(remote, {digests[3]}).front(), error(ErrorCode::kNotFound));
  send("again", digests[3]);
  EXPECT_EQ(fetched(remote, digests), texts());
}

TEST_F(RedisGather, ManyBlocksAreFetchedOnceEachWhereTheStartsOrderIsTheirs) {
  for (uint32_t i = 0; i < 12; ++i) {
    const std::string common = test_bytes(80'000, 1000 + i / 6);
    for (uint32_t k = 0; k < 10; ++k) put({common + std::to_string(i) + "/" + std::to_string(k)});
  }
  ASSERT_GT(gather().blocks, 8U);
  const uint64_t blocks = count("remote.gathered_blocks");
  std::vector<std::string> all;
  for (size_t at = 0; at < digests.size(); at += 16) {
    for (auto& text : fetched(remote, {digests.begin() + at, digests.begin() + std::min(at + 16, digests.size())})) {
      all.push_back(std::move(text));
    }
  }
  EXPECT_EQ(all, texts());
  EXPECT_EQ(count("remote.fetch_blocks"), blocks);
}

TEST_F(RedisGather, AMemberDoesNotWaitForALargeBlob) {
  put_like(10);
  gather();
  const codec::Digest large = framed.add(test_bytes(9'000'000, 3));
  send("large", large);
  /// Notes who came first.
  class Order final : public BlobSink {
   public:
    Result<void> piece(const codec::Digest&, std::string_view) override { return {}; }
    void done(const codec::Digest& digest, Result<void> outcome) override {
      EXPECT_TRUE(outcome);
      digests.push_back(digest);
    }
    std::vector<codec::Digest> digests;
  } order;
  std::vector<codec::Digest> wanted = {large};
  wanted.insert(wanted.end(), digests.begin(), digests.end());
  remote.blobs->fetch(wanted, order, soon());
  ASSERT_EQ(order.digests.size(), 11U);
  EXPECT_EQ(order.digests.back(), large);
}

TEST_F(RedisGather, WhileOneHostGathersAnotherLeavesIt) {
  put_like(10);
  const std::string turn = gathering_key(options.prefix, *std::ranges::min_element(digests));
  run({"SET", turn, "another", "PX", "60000"});
  EXPECT_EQ(gather().blobs, 0U);
  EXPECT_EQ(run({"GET", turn}).text, "another");
  run({"DEL", turn});
  EXPECT_EQ(gather().blobs, 10U);
  EXPECT_EQ(run({"EXISTS", turn}).integer, 0);
}

TEST_F(RedisGather, ABlockOfManyPiecesIsNone) {
  put_like(10);
  gather();
  const std::string block = key_of(member(0).block);
  run({"SET", block, PieceHead::of(3 * kPieceBytes).encode() + std::string(kPieceBytes, 'x')});
  begin_anew();
  EXPECT_EQ(fetched(remote, {digests[1]}).front(), error(ErrorCode::kCorrupt));
}

TEST_F(RedisGather, PlacesThatLieAreCorrupt) {
  put_like(10);
  gather();
  codec::MemberFrame lie = member(3);
  lie.offset += lie.size * 7;  // behind the block's end
  put_member(3, lie);
  lie = member(4);
  lie.digest = digests[5];
  put_member(4, lie);
  lie = member(6);
  lie.block = digests[7];  // itself a member
  put_member(6, lie);
  lie = member(8);
  lie.block = codec::digest_of("nothing");
  put_member(8, lie);
  const auto got = fetched(remote, digests);
  EXPECT_EQ(got[2], framed.raw(digests[2]));
  EXPECT_EQ(got[3], error(ErrorCode::kCorrupt));
  EXPECT_EQ(got[4], error(ErrorCode::kCorrupt));
  EXPECT_EQ(got[6], error(ErrorCode::kCorrupt));
  EXPECT_EQ(got[8], error(ErrorCode::kNotFound));
  EXPECT_EQ(got[9], framed.raw(digests[9]));
}

TEST_F(RedisGather, ABlobOverTheLimitOfABlockIsNoBlock) {
  put_like(10);
  put({std::string(codec::kSolidBlockLimit + 1, 'x')});
  codec::MemberFrame lie{digests[0], 10, digests[10], 0};
  put_member(0, lie);
  EXPECT_EQ(fetched(remote, {digests[0]}).front(), error(ErrorCode::kCorrupt));
}

TEST_F(RedisGather, AnothersBytesAreGivenUnderTheDigestThatTheyHaveNot) {
  put_like(10);
  gather();
  codec::MemberFrame lie = member(3);
  lie.offset = member(4).offset;
  put_member(3, lie);
  FakeSink sink;
  remote.blobs->fetch({&digests[3], 1}, sink, soon());
  const auto raw = codec::decode_frame(sink.frames[digests[3]], digests[3], codec::kSolidBlockLimit);
  ASSERT_FALSE(raw) << "whoever takes the frame finds out";
  EXPECT_EQ(raw.error().code(), ErrorCode::kCorrupt);
}

TEST_F(RedisGather, WhatIsGoneOrDamagedIsLeftAlone) {
  put_like(10);
  run({"DEL", key_of(digests[3])});
  const std::string damaged = run({"GET", key_of(digests[4])}).text.substr(0, 60);
  run({"SET", key_of(digests[4]), damaged});
  run({"DEL", key_of(digests[5])});
  run({"LPUSH", key_of(digests[5]), "a list"});
  EXPECT_EQ(gather().blobs, 7U);
  EXPECT_EQ(run({"EXISTS", key_of(digests[3])}).integer, 0);
  EXPECT_EQ(run({"GET", key_of(digests[4])}).text, damaged);
}

TEST_F(RedisGather, AMemberThatIsRemovedLeavesNoByteOfItsOwn) {
  put_like(10);
  gather();
  const std::string block = key_of(member(0).block);
  ASSERT_TRUE(remote.operators->remove_blob(digests[3], soon()));
  EXPECT_EQ(run({"EXISTS", block, key_of(digests[3])}).integer, 0);
  begin_anew();
  EXPECT_EQ(fetched(remote, {digests[4]}).front(), error(ErrorCode::kNotFound));
  send("again", digests[4]);
  EXPECT_EQ(fetched(remote, {digests[4]}).front(), framed.raw(digests[4]));
}

TEST_F(RedisGather, AServerThatIsFullLosesNothing) {
  put_like(10);
  run({"CONFIG", "SET", "maxmemory", "1"});
  EXPECT_FALSE(remote.blobs->gather(digests, soon()));
  EXPECT_EQ(fetched(remote, digests), texts());
}

TEST_F(RedisGather, AReaderWritesNothing) {
  put_like(10);
  options.read_only = true;
  reopen();
  const auto refused = remote.blobs->gather(digests, soon());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kNotPermitted);
  options.read_only = false;
  reopen();
  gather();
  options.read_only = true;
  reopen();
  EXPECT_EQ(fetched(remote, digests), texts());
}

/// A server that has these strings, for what happens between two commands. Safe for concurrent use.
class Strings {
 public:
  /// What a SET answers; empty: as Redis does.
  std::function<std::string(const std::vector<std::string>& command)> on_set;
  /// Changes a value on its way to the reader; may be empty.
  std::function<void(const std::string& key, std::string& value)> on_read;
  Guarded<std::map<std::string, std::string>> values;

  void serve(inductorfs::testing::ScriptedClient& client) {
    for (auto command = client.command(); !command.empty(); command = client.command()) client.send(answer(command));
  }

 private:
  std::string answer(const std::vector<std::string>& command) {
    const auto bulk = [](const std::string& text) {
      return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
    };
    return values.with([&](std::map<std::string, std::string>& now) -> std::string {
      if (command[0] == "GETRANGE") {
        std::string value = now[command[1]].substr(0, std::stoul(command[3]) + 1);
        if (on_read) on_read(command[1], value);
        return bulk(value);
      }
      if (command[0] == "UNLINK") return ":" + std::to_string(now.erase(command[1])) + "\r\n";
      if (command[0] != "SET") return "+OK\r\n";
      if (const std::string told = on_set(command); !told.empty()) return told;
      now[command[1]] = command[2];
      return "+OK\r\n";
    });
  }
};

class GatherRaces : public ::testing::Test {
 protected:
  GatherRaces() {
    options.url = server.url();
    for (uint32_t i = 0; i < 6; ++i) {
      const std::string text = like_text(i);
      digests.push_back(codec::digest_of(text));
      const std::string frame = codec::encode_frame(text).value();
      strings.values.with([&](auto& now) {
        now[piece_key(options.prefix, digests.back(), 0)] = PieceHead::of(frame.size()).encode() + frame;
      });
    }
  }
  [[nodiscard]] size_t keys() {
    return strings.values.with([](const auto& now) { return now.size(); });
  }
  static bool is_place(const std::vector<std::string>& command) {
    return std::ranges::find(command, "XX") != command.end();
  }

  Strings strings;
  const inductorfs::testing::ScriptedServer server{[this](auto& client) { strings.serve(client); }};
  RemoteOptions options;
  Counters counters;
  std::vector<codec::Digest> digests;
};

TEST_F(GatherRaces, WhatWasRemovedMeanwhileDoesNotComeBack) {
  const std::string removed = piece_key(options.prefix, digests[2], 0);
  strings.on_set = [&](const auto& command) { return is_place(command) && command[1] == removed ? "$-1\r\n" : ""; };
  const auto remote = open_redis(options, counters).value();
  const auto report = remote.blobs->gather(digests, soon());
  ASSERT_TRUE(report) << report.error().to_string();
  EXPECT_EQ(report->blobs, 5U);
  EXPECT_EQ(report->blocks, 1U);
}

TEST_F(GatherRaces, ABlockThatIsNotThereIsAskedForTwiceBecauseItsNameMayHaveBeenDamagedOnItsWay) {
  constexpr size_t kNameOfBlock = kPieceHeadSize + codec::kFrameHeaderSize;
  strings.on_set = [](const auto&) { return ""; };
  const auto remote = open_redis(options, counters).value();
  ASSERT_TRUE(remote.blobs->gather(digests, soon()));
  int readings = 0;
  strings.on_read = [&](const std::string& key, std::string& value) {
    if (key == piece_key(options.prefix, digests[2], 0) && readings++ == 0) value[kNameOfBlock + 3] ^= 1;
  };
  EXPECT_EQ(fetched(remote, {digests[2]}).front(), like_text(2));
  EXPECT_EQ(readings, 2);
}

TEST_F(GatherRaces, ABlockThatNobodyNamesIsRemovedAgain) {
  for (const char* answer : {"$-1\r\n", "-OOM command not allowed\r\n"}) {
    strings.on_set = [&](const auto& command) { return is_place(command) ? answer : ""; };
    const auto remote = open_redis(options, counters).value();
    const auto report = remote.blobs->gather(digests, soon());
    EXPECT_EQ(report.has_value(), answer[0] == '$');
    EXPECT_EQ(keys(), digests.size()) << "neither the block nor the turn is left";
  }
}

}  // namespace
}  // namespace inductorfs::remote
