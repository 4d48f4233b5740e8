// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>

#include "fake_file_system.h"
#include "fake_kernel.h"
#include "inductorfs/fuse/session.h"

namespace inductorfs::fuse {
namespace {

using std::string_literals::operator""s;
constexpr uint32_t kAllFlags = ~0U;
constexpr uint64_t kRoot = 1;

class SessionLoopback : public ::testing::Test {
 protected:
  void open(std::chrono::microseconds spin = std::chrono::microseconds(50)) {
    SessionOptions options;
    options.threads = 2;
    options.spin = spin;
    auto opened = Session::open(kernel_.take_device(), options, files_, counters_);
    ASSERT_TRUE(opened) << opened.error().to_string();
    session_ = std::move(*opened);
    session_->start([this] { ended_.set_value(); });
  }
  void open_and_init() {
    open();
    (void)kernel_.init(kAllFlags);  // its answer is another test's
  }
  uint64_t counted(const std::string& name) { return counters_.get(name).get(); }

  testing::FakeKernel kernel_;
  testing::FakeFileSystem files_;
  Counters counters_;
  std::promise<void> ended_;
  std::unique_ptr<Session> session_;
};

TEST_F(SessionLoopback, NegotiatesFormA) {
  open();

  const fuse_init_out init = kernel_.init(kAllFlags);

  EXPECT_EQ(init.major, 7U);
  EXPECT_NE(init.flags & FUSE_PARALLEL_DIROPS, 0U);
  EXPECT_NE(init.flags & FUSE_EXPLICIT_INVAL_DATA, 0U);
  EXPECT_EQ(init.flags & (FUSE_ATOMIC_O_TRUNC | FUSE_AUTO_INVAL_DATA | FUSE_DO_READDIRPLUS), 0U);
  EXPECT_EQ(init.max_write, 1U << 20);
  EXPECT_EQ(init.max_pages, 256U);
  EXPECT_EQ(init.max_background, 64U);
  EXPECT_EQ(init.max_readahead, 1U << 20);
}

TEST_F(SessionLoopback, AnswersWhatIsThereForEver) {
  const auto node = files_.add_file("a", "12345");
  open_and_init();

  const auto answer = kernel_.ask(FUSE_LOOKUP, kRoot, "a\0"s);
  const auto entry = answer.as<fuse_entry_out>();

  EXPECT_EQ(answer.error, 0);
  EXPECT_EQ(entry.nodeid, static_cast<uint64_t>(node));
  EXPECT_EQ(entry.attr.size, 5U);
  EXPECT_GT(entry.entry_valid, 86'400U * 365);
  EXPECT_GT(entry.attr_valid, 86'400U * 365);
  EXPECT_EQ(files_.references(node), 1U);
  EXPECT_EQ(files_.last_caller().uid, 12U);
  EXPECT_EQ(files_.last_caller().gid, 34U);
}

TEST_F(SessionLoopback, LetsTheKernelKeepAnAbsence) {
  open_and_init();

  const auto answer = kernel_.ask(FUSE_LOOKUP, kRoot, "missing\0"s);

  EXPECT_EQ(answer.error, 0) << "ENOENT would not be kept";
  EXPECT_EQ(answer.as<fuse_entry_out>().nodeid, 0U);
  EXPECT_GT(answer.as<fuse_entry_out>().entry_valid, 86'400U * 365);
}

TEST_F(SessionLoopback, SaysENOENTWhenAnAbsenceMayNotBeKept) {
  files_.forbid_kept_absences();
  open_and_init();
  EXPECT_EQ(kernel_.ask(FUSE_LOOKUP, kRoot, "missing\0"s).error, -ENOENT);
}

TEST_F(SessionLoopback, LeavesOpeningToTheKernel) {
  const auto node = static_cast<uint64_t>(files_.add_file("a", ""));
  open_and_init();
  const std::string body(64, '\0');

  EXPECT_EQ(kernel_.ask(FUSE_OPEN, node, body).error, -ENOSYS);
  EXPECT_EQ(kernel_.ask(FUSE_OPENDIR, kRoot, body).error, -ENOSYS);
  EXPECT_EQ(kernel_.ask(FUSE_FLUSH, node, body).error, -ENOSYS);
  EXPECT_EQ(kernel_.ask(FUSE_RELEASE, node, body).error, 0);
  EXPECT_EQ(kernel_.ask(FUSE_IOCTL, node, body).error, -ENOTTY);
}

TEST_F(SessionLoopback, OpensItselfForAKernelThatWouldPassENOSYSOn) {
  const auto node = static_cast<uint64_t>(files_.add_file("a", ""));
  open();
  (void)kernel_.init(0);  // its answer is another test's
  const std::string body(64, '\0');

  const auto file = kernel_.ask(FUSE_OPEN, node, body);
  const auto directory = kernel_.ask(FUSE_OPENDIR, kRoot, body);

  EXPECT_EQ(file.error, 0);
  EXPECT_NE(file.as<fuse_open_out>().open_flags & FOPEN_KEEP_CACHE, 0U);
  EXPECT_EQ(directory.error, 0);
  EXPECT_NE(directory.as<fuse_open_out>().open_flags & FOPEN_CACHE_DIR, 0U);
}

TEST_F(SessionLoopback, NeverAsksTheFileSystemForSecurityAttributes) {
  const auto node = static_cast<uint64_t>(files_.add_file("a", ""));
  open_and_init();
  const std::string body(8, '\0');

  EXPECT_EQ(kernel_.ask(FUSE_GETXATTR, node, body + "security.capability\0"s).error, -ENODATA);
  EXPECT_EQ(kernel_.ask(FUSE_GETXATTR, node, body + "system.posix_acl_access\0"s).error, -EOPNOTSUPP);
  EXPECT_EQ(kernel_.ask(FUSE_SETXATTR, node, body + "security.capability\0"s).error, -EOPNOTSUPP);
  EXPECT_EQ(kernel_.ask(FUSE_REMOVEXATTR, node, "security.capability\0"s).error, -ENODATA);
}

TEST_F(SessionLoopback, TurnsAnExceptionIntoEIOAndGoesOn) {
  files_.throw_at("bad");
  files_.add_file("good", "");
  open_and_init();

  EXPECT_EQ(kernel_.ask(FUSE_LOOKUP, kRoot, "bad\0"s).error, -EIO);
  EXPECT_EQ(kernel_.ask(FUSE_LOOKUP, kRoot, "good\0"s).error, 0);
}

TEST_F(SessionLoopback, AnswersEIOForALookupThatTheFileSystemDrops) {
  files_.drop_lookup("a");
  open_and_init();
  EXPECT_EQ(kernel_.ask(FUSE_LOOKUP, kRoot, "a\0"s).error, -EIO);
}

TEST_F(SessionLoopback, ServesOthersWhileALookupWaits) {
  files_.add_file("slow", "");
  files_.add_file("fast", "");
  files_.defer_lookup("slow");
  open_and_init();

  const uint64_t slow = kernel_.send(FUSE_LOOKUP, kRoot, "slow\0"s);
  ASSERT_TRUE(files_.wait_until_waiting("slow", 1));
  const auto fast = kernel_.ask(FUSE_LOOKUP, kRoot, "fast\0"s);
  EXPECT_NE(fast.unique, slow);
  EXPECT_EQ(fast.error, 0);

  files_.release("slow");
  const auto late = kernel_.receive();
  ASSERT_TRUE(late);
  EXPECT_EQ(late->unique, slow);
  EXPECT_EQ(late->error, 0);
}

TEST_F(SessionLoopback, AnswersALateLookupAfterItsThreadsHaveStopped) {
  files_.add_file("slow", "");
  files_.defer_lookup("slow");
  open_and_init();
  const uint64_t slow = kernel_.send(FUSE_LOOKUP, kRoot, "slow\0"s);
  ASSERT_TRUE(files_.wait_until_waiting("slow", 1));

  session_.reset();
  files_.release("slow");

  const auto late = kernel_.receive();
  ASSERT_TRUE(late);
  EXPECT_EQ(late->unique, slow);
}

TEST_F(SessionLoopback, DoesNotCutALookupShortForAnInterruptOfSomebodyAlive) {
  files_.add_file("slow", "");
  files_.defer_lookup("slow");
  open_and_init();
  const uint64_t slow = kernel_.send(FUSE_LOOKUP, kRoot, "slow\0"s);
  ASSERT_TRUE(files_.wait_until_waiting("slow", 1));

  fuse_interrupt_in interrupt{};
  interrupt.unique = slow;
  kernel_.send(FUSE_INTERRUPT, 0, interrupt, "");
  EXPECT_EQ(kernel_.ask(FUSE_GETATTR, kRoot, std::string(16, '\0')).error, 0) << "the interrupt was taken before this";
  files_.release("slow");

  const auto late = kernel_.receive();
  ASSERT_TRUE(late);
  EXPECT_EQ(late->error, 0);
}

TEST_F(SessionLoopback, ClearsPrivilegesWhenTheKernelSaysSo) {
  const auto node = files_.add_file("a", "");
  files_.set_mode(node, S_IFREG | 06755);
  open_and_init();
  fuse_write_in write{};
  write.size = 3;

  kernel_.send(FUSE_WRITE, static_cast<uint64_t>(node), write, "abc");
  EXPECT_EQ(kernel_.receive()->error, 0);
  EXPECT_EQ(files_.mode_of(node), mode_t{S_IFREG | 06755});

  write.write_flags = FUSE_WRITE_KILL_SUIDGID;
  kernel_.send(FUSE_WRITE, static_cast<uint64_t>(node), write, "abc");
  EXPECT_EQ(kernel_.receive()->error, 0);
  EXPECT_EQ(files_.mode_of(node), mode_t{S_IFREG | 0755});
}

TEST_F(SessionLoopback, SaysWhoWrites) {
  const auto node = files_.add_file("a", "");
  open_and_init();
  fuse_write_in write{};
  write.size = 3;

  kernel_.send(FUSE_WRITE, static_cast<uint64_t>(node), write, "abc");

  EXPECT_EQ(kernel_.receive()->error, 0);
  EXPECT_EQ(files_.last_caller().uid, 12U);
  EXPECT_EQ(files_.last_caller().pid, 56);
}

TEST_F(SessionLoopback, ClearsPrivilegesWithAChangeOfOwner) {
  const auto node = files_.add_file("a", "");
  files_.set_mode(node, S_IFREG | 06755);
  open_and_init();
  fuse_setattr_in change{};
  change.valid = FATTR_UID;
  change.uid = 7;

  kernel_.send(FUSE_SETATTR, static_cast<uint64_t>(node), change, "");

  EXPECT_EQ(kernel_.receive()->error, 0);
  EXPECT_EQ(files_.mode_of(node), mode_t{S_IFREG | 0755});
}

TEST_F(SessionLoopback, TellsTheKernelOfAChangedName) {
  open_and_init();

  session_->forget_name(vfs::kRootNode, "name");

  const auto notification = kernel_.receive();
  ASSERT_TRUE(notification);
  EXPECT_EQ(notification->unique, 0U);
  EXPECT_EQ(notification->error, FUSE_NOTIFY_INVAL_ENTRY);
  EXPECT_EQ(counted("fuse.notify_name"), 1U);
}

TEST_F(SessionLoopback, CountsEachRequestOnceButNotForgets) {
  const auto node = files_.add_file("a", "");
  open_and_init();
  EXPECT_EQ(kernel_.ask(FUSE_LOOKUP, kRoot, "a\0"s).error, 0);
  const uint64_t before = counted("fuse.requests");

  fuse_forget_in forget{};
  forget.nlookup = 1;
  kernel_.send(FUSE_FORGET, static_cast<uint64_t>(node), forget, "");
  EXPECT_EQ(kernel_.ask(FUSE_IOCTL, static_cast<uint64_t>(node), std::string(64, '\0')).error, -ENOTTY);
  EXPECT_EQ(kernel_.ask(FUSE_GETATTR, kRoot, std::string(16, '\0')).error, 0);

  EXPECT_EQ(counted("fuse.requests"), before + 2);
  EXPECT_EQ(counted("fuse.ioctl"), 1U);
  EXPECT_EQ(counted("fuse.lookup"), 1U);
}

TEST_F(SessionLoopback, RefusesAnUnknownOperationAndGoesOn) {
  open_and_init();
  EXPECT_EQ(kernel_.ask(3999, kRoot, "").error, -ENOSYS);
  EXPECT_EQ(kernel_.ask(FUSE_GETATTR, kRoot, std::string(16, '\0')).error, 0);
}

TEST_F(SessionLoopback, EndsWhenTheKernelHangsUp) {
  open_and_init();
  auto ended = ended_.get_future();

  kernel_.hang_up();

  EXPECT_EQ(ended.wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST_F(SessionLoopback, StopsWithoutTheKernelAndSaysNothingOfAnEnd) {
  open_and_init();
  auto ended = ended_.get_future();

  session_->stop();
  session_->stop();

  EXPECT_EQ(ended.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
}

TEST_F(SessionLoopback, StopsBeforeItWasStarted) {
  auto opened = Session::open(kernel_.take_device(), {}, files_, counters_);
  ASSERT_TRUE(opened);
  (*opened)->stop();
}

}  // namespace
}  // namespace inductorfs::fuse
