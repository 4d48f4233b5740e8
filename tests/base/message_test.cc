// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/message.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

namespace inductorfs {
namespace {

struct Pair {
  Pair() {
    std::array<int, 2> ends{-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    ours.reset(ends[0]);
    theirs.reset(ends[1]);
  }
  Fd ours;
  Fd theirs;
};

ino_t inode_of(int fd) {
  struct stat found {};
  EXPECT_EQ(::fstat(fd, &found), 0);
  return found.st_ino;
}

size_t open_descriptors() {
  size_t count = 0;
  for (int fd = 0; fd < 256; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

TEST(Message, TakesDescriptorsAlong) {
  Pair pair;
  const Pair other;
  ASSERT_TRUE(send_message(pair.ours.get(), "both", std::array{other.ours.get(), other.theirs.get()}));
  ASSERT_TRUE(send_message(pair.ours.get(), "the second", std::array{-1, other.theirs.get()}));
  ASSERT_TRUE(send_message(pair.ours.get(), "none", std::array{-1}));
  std::array<char, 16> room{};
  std::array<Fd, 2> got;
  const ReceivedMessage first = receive_message(pair.theirs.get(), room, got);
  EXPECT_EQ(std::string(room.data(), static_cast<size_t>(first.size)), "both");
  EXPECT_TRUE(first.whole);
  EXPECT_EQ(inode_of(got[0].get()), inode_of(other.ours.get()));
  EXPECT_EQ(inode_of(got[1].get()), inode_of(other.theirs.get()));
  EXPECT_EQ(::fcntl(got[1].get(), F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(receive_message(pair.theirs.get(), room, got).size, 10);
  EXPECT_EQ(inode_of(got[0].get()), inode_of(other.theirs.get())) << "the first that came";
  EXPECT_FALSE(got[1]);
  EXPECT_EQ(receive_message(pair.theirs.get(), room, got).size, 4);
  EXPECT_FALSE(got[0]);
}

TEST(Message, ThatIsTooLongOrHasMoreDescriptorsIsNotWholeAndLeavesNoneOpen) {
  Pair pair;
  std::array<char, 4> room{};
  Fd got;
  const size_t before = open_descriptors();
  ASSERT_TRUE(send_message(pair.ours.get(), "more than that", {}));
  const ReceivedMessage cut = receive_message(pair.theirs.get(), room, {&got, 1});
  EXPECT_EQ(cut.size, 4);
  EXPECT_FALSE(cut.whole);
  ASSERT_TRUE(send_message(pair.ours.get(), "two", std::array{0, 1}));
  EXPECT_FALSE(receive_message(pair.theirs.get(), room, {&got, 1}).whole);
  EXPECT_TRUE(got);
  got.reset();
  EXPECT_EQ(open_descriptors(), before);
}

TEST(Message, ThatIsEmptyIsNoEnd) {
  Pair pair;
  std::array<char, 4> room{};
  ASSERT_TRUE(send_message(pair.ours.get(), "", {}));
  const ReceivedMessage empty = receive_message(pair.theirs.get(), room, {});
  EXPECT_EQ(empty.size, 0);
  EXPECT_FALSE(empty.is_end);
  EXPECT_EQ(receive_message(pair.theirs.get(), room, {}, MSG_DONTWAIT).size, -1);
  EXPECT_EQ(errno, EAGAIN);
  pair.ours.reset();
  const ReceivedMessage end = receive_message(pair.theirs.get(), room, {});
  EXPECT_EQ(end.size, 0);
  EXPECT_TRUE(end.is_end);
  EXPECT_FALSE(send_message(pair.theirs.get(), "to nobody", {}));
}

}  // namespace
}  // namespace inductorfs
