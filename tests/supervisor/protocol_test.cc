// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/supervisor/protocol.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace inductorfs::supervisor {
namespace {

class Link : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    ours_.reset(ends[0]);
    theirs_.reset(ends[1]);
  }
  Fd ours_;
  Fd theirs_;
  Word word_{};
  Fd descriptor_;
};

TEST_F(Link, CarriesWordsInOrder) {
  EXPECT_EQ(receive_word(theirs_.get(), word_, {&descriptor_, 1}), Receipt::kNothing);
  ASSERT_TRUE(send_word(ours_.get(), Word::kUpgradeTaken));
  ASSERT_TRUE(send_word(ours_.get(), Word::kUpgradeRefused));
  EXPECT_EQ(receive_word(theirs_.get(), word_, {&descriptor_, 1}), Receipt::kWord);
  EXPECT_EQ(word_, Word::kUpgradeTaken);
  EXPECT_FALSE(descriptor_);
  EXPECT_EQ(receive_word(theirs_.get(), word_, {&descriptor_, 1}), Receipt::kWord);
  EXPECT_EQ(word_, Word::kUpgradeRefused);
  EXPECT_EQ(receive_word(theirs_.get(), word_, {&descriptor_, 1}), Receipt::kNothing);
}

TEST_F(Link, CarriesADescriptorThatNoProgramInherits) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, 0), 0);
  const Fd reader(ends[0]);
  {
    const Fd writer(ends[1]);
    ASSERT_TRUE(send_word(ours_.get(), Word::kDevice, writer.get()));
  }
  ASSERT_EQ(receive_word(theirs_.get(), word_, {&descriptor_, 1}), Receipt::kWord);
  EXPECT_EQ(word_, Word::kDevice);
  ASSERT_TRUE(descriptor_);
  EXPECT_NE(::fcntl(descriptor_.get(), F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(::write(descriptor_.get(), "x", 1), 1);
  char got = 0;
  ASSERT_EQ(::read(reader.get(), &got, 1), 1);
  EXPECT_EQ(got, 'x');
}

TEST_F(Link, TellsItsEnd) {
  ASSERT_TRUE(send_word(ours_.get(), Word::kUpgrade));
  ours_.reset();
  EXPECT_EQ(receive_word(theirs_.get(), word_, {&descriptor_, 1}), Receipt::kWord) << "what was said last is heard";
  EXPECT_EQ(receive_word(theirs_.get(), word_, {&descriptor_, 1}), Receipt::kEnded);
  EXPECT_FALSE(send_word(theirs_.get(), Word::kUpgrade));
}

TEST_F(Link, IgnoresWhatIsNoWord) {
  ASSERT_EQ(::send(ours_.get(), "something else", 14, 0), 14);
  EXPECT_EQ(receive_word(theirs_.get(), word_, {&descriptor_, 1}), Receipt::kNothing);
}

}  // namespace
}  // namespace inductorfs::supervisor
