// SPDX-License-Identifier: Apache-2.0
#include "answer.h"

#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <optional>

namespace inductorfs::supervisor {
namespace {

constexpr uint64_t kUnique = 0x1234'5678'9abc;
constexpr uint64_t kSomeFile = 77;

struct Reply {
  fuse_out_header header{};
  std::array<char, kAnswerLimit> body{};
};

std::optional<Reply> reply_to(uint32_t opcode, uint64_t node = kSomeFile, const Root& root = {}) {
  fuse_in_header header{};
  header.len = sizeof header;
  header.opcode = opcode;
  header.unique = kUnique;
  header.nodeid = node;
  std::array<char, kAnswerLimit> room{};
  const auto bytes = answer({reinterpret_cast<const char*>(&header), sizeof header}, root, room);
  if (bytes.empty()) return std::nullopt;
  Reply reply;
  std::memcpy(&reply.header, bytes.data(), sizeof reply.header);
  std::memcpy(reply.body.data(), bytes.data() + sizeof reply.header, bytes.size() - sizeof reply.header);
  EXPECT_EQ(reply.header.len, bytes.size());
  EXPECT_EQ(reply.header.unique, kUnique);
  return reply;
}

int error_of(uint32_t opcode, uint64_t node = kSomeFile) { return -reply_to(opcode, node)->header.error; }

TEST(Responder, SaysThatNamesAreAbsent) { EXPECT_EQ(error_of(FUSE_LOOKUP), ENOENT); }

TEST(Responder, AnswersNoMessageThatHasNoAnswer) {
  for (const uint32_t opcode : {FUSE_FORGET, FUSE_BATCH_FORGET, FUSE_INTERRUPT}) {
    EXPECT_FALSE(reply_to(opcode).has_value()) << opcode;
  }
}

TEST(Responder, LetsGoWhatWasOpen) {
  for (const uint32_t opcode : {FUSE_RELEASE, FUSE_RELEASEDIR}) EXPECT_EQ(error_of(opcode), 0) << opcode;
}

TEST(Responder, SaysOfOpenWhatAWorkerSays) {
  for (const uint32_t opcode : {FUSE_OPEN, FUSE_OPENDIR, FUSE_FLUSH}) EXPECT_EQ(error_of(opcode), ENOSYS) << opcode;
}

TEST(Responder, KnowsTheRoot) {
  const auto reply = reply_to(FUSE_GETATTR, FUSE_ROOT_ID, Root{1000, 1001, 01777});
  ASSERT_TRUE(reply.has_value());
  ASSERT_EQ(reply->header.error, 0);
  ASSERT_EQ(reply->header.len, sizeof(fuse_out_header) + sizeof(fuse_attr_out));
  fuse_attr_out out{};
  std::memcpy(&out, reply->body.data(), sizeof out);
  EXPECT_TRUE(S_ISDIR(out.attr.mode));
  EXPECT_EQ(out.attr.mode & 07777U, 01777U);
  EXPECT_EQ(out.attr.uid, 1000U);
  EXPECT_EQ(out.attr.gid, 1001U);
  EXPECT_EQ(out.attr_valid, 0U) << "the next worker knows better";
  EXPECT_EQ(error_of(FUSE_GETATTR), EIO);
}

TEST(Responder, GivesAnEmptyFileSystem) {
  const auto reply = reply_to(FUSE_STATFS);
  ASSERT_EQ(reply->header.error, 0);
  fuse_statfs_out out{};
  std::memcpy(&out, reply->body.data(), sizeof out);
  EXPECT_EQ(out.st.bfree, 0U);
  EXPECT_EQ(out.st.namelen, 255U);
}

TEST(Responder, RefusesEverythingElse) {
  for (const uint32_t opcode : {FUSE_READ, FUSE_WRITE, FUSE_CREATE, FUSE_UNLINK, FUSE_RENAME2, FUSE_READDIRPLUS,
                                FUSE_SETATTR, FUSE_FSYNC, FUSE_IOCTL}) {
    EXPECT_EQ(error_of(opcode), EIO) << opcode;
  }
}

TEST(Responder, HasRoomForWhatItTellsOfAWorker) {
  std::array<char, kAnswerLimit> room{};
  for (const std::span<const char> line : {held_line(2'147'483'647, room), no_worker_line(-64, 100'000, room)}) {
    ASSERT_FALSE(line.empty());
    EXPECT_EQ(line.back(), '\n') << "cut";
  }
  const std::span<const char> line = held_line(4711, room);
  EXPECT_NE(std::string(line.begin(), line.end()).find("\"held\":4711,"), std::string::npos);
}

TEST(Responder, IgnoresWhatIsNoMessage) {
  std::array<char, kAnswerLimit> room{};
  const std::array<char, 8> cut{};
  EXPECT_TRUE(answer(cut, {}, room).empty());
  EXPECT_TRUE(answer({}, {}, room).empty());
}

}  // namespace
}  // namespace inductorfs::supervisor
