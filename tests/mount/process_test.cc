// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/process.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "inductorfs/places/mountpoint.h"
#include "support/patience.h"
#include "support/temporary_directory.h"

namespace inductorfs::mount {
namespace {

constexpr std::chrono::seconds kPatience{30 * testing::kSlowness};

/// Forks, runs `life` in the child, and gives what the starting process learns.
template <typename Life>
Result<std::string> outcome_of(Life&& life, std::chrono::seconds patience = kPatience) {
  Result<Forked> forked = fork_daemon();
  if (!forked) return fail(forked.error());
  if (forked->child) {
    life(forked->readiness);
    ::_exit(0);
  }
  const Result<std::string> outcome = await_ready(*forked, patience, "/store/log");
  (void)::waitpid(forked->pid, nullptr, 0);  // await_ready may have done it
  return outcome;
}

TEST(Readiness, ReachesTheStartingProcess) {
  EXPECT_TRUE(outcome_of([](Readiness& readiness) { readiness.ready(); }).has_value());
}

TEST(Readiness, CarriesAWarningAsOneLine) {
  EXPECT_EQ(outcome_of([](Readiness& readiness) { readiness.ready(); }).value_or("?"), "");
  const std::string warning = outcome_of([](Readiness& readiness) { readiness.ready("what;\nremedy"); }).value_or("?");
  EXPECT_EQ(warning, "what;\nremedy");
  const std::string line = warning_line(warning);
  EXPECT_TRUE(line.starts_with("inductorfs: warning: what;")) << line;
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(Readiness, CarriesTheErrorWithItsLine) {
  const Result<std::string> outcome =
      outcome_of([](Readiness& readiness) { readiness.failed(Error(ErrorCode::kBusy, "what: where: remedy")); });
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(error_line(outcome.error()), "inductorfs: what: where: remedy\n");
}

TEST(Readiness, CarriesAnErrorWithoutText) {
  const Result<std::string> outcome =
      outcome_of([](Readiness& readiness) { readiness.failed(Error(ErrorCode::kNotFound)); });
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(error_line(outcome.error()),
            "inductorfs: the mount could not begin, and knows no more than not_found: see its log\n");
}

TEST(Readiness, TellsADaemonThatDiedWithoutAWord) {
  const Result<std::string> exited = outcome_of([](Readiness&) { ::_exit(9); });
  ASSERT_FALSE(exited.has_value());
  EXPECT_NE(exited.error().what().find("with code 9: /store/log"), std::string::npos) << exited.error().what();

  const Result<std::string> killed = outcome_of([](Readiness&) { (void)::raise(SIGKILL); });
  ASSERT_FALSE(killed.has_value());
  EXPECT_NE(killed.error().what().find("signal 9"), std::string::npos) << killed.error().what();
}

TEST(Readiness, EndsADaemonThatTakesTooLong) {
  Result<Forked> forked = fork_daemon();
  ASSERT_TRUE(forked.has_value());
  if (forked->child) {
    for (;;) (void)::pause();
  }

  const Result<std::string> outcome = await_ready(*forked, std::chrono::seconds(0), "/store/log");

  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code(), ErrorCode::kTimedOut);
  int status = 0;
  EXPECT_EQ(::waitpid(forked->pid, &status, 0), forked->pid);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(ForkDaemon, GivesTheChildASessionOfItsOwn) {
  EXPECT_TRUE(outcome_of([](Readiness& readiness) {
                if (::getsid(0) == ::getpid()) readiness.ready();
              }).has_value());
}

TEST(Settle, LeavesNothingThatLeadsIntoTheMount) {
  const testing::TemporaryDirectory directory;
  const Result<std::string> outcome = outcome_of([&](Readiness& readiness) {
    (void)::setenv("TORCHINDUCTOR_CACHE_DIR", "/m", 1);
    (void)::setenv("TRITON_CACHE_DIR", "/elsewhere", 1);
    (void)::setenv("TMPDIR", "/m/tmp", 1);
    (void)::setenv("TEMP", "/other", 1);
    const bool settled = settle("/m", false).has_value();
    std::array<char, 64> here{};
    const bool at_root = ::getcwd(here.data(), here.size()) != nullptr && std::string(here.data()) == "/";
    struct stat output {};
    struct stat null {};
    (void)::fstat(STDOUT_FILENO, &output);
    (void)::stat("/dev/null", &null);
    rlimit limit{};
    (void)::getrlimit(RLIMIT_NOFILE, &limit);
    struct sigaction pipe {};
    (void)::sigaction(SIGPIPE, nullptr, &pipe);
    const bool clean = std::getenv("TORCHINDUCTOR_CACHE_DIR") == nullptr &&
                       std::getenv("TRITON_CACHE_DIR") == nullptr && std::getenv("TMPDIR") == nullptr &&
                       std::getenv("TEMP") != nullptr;
    if (settled && at_root && clean && output.st_rdev == null.st_rdev && ::umask(0) == 0 &&
        limit.rlim_cur == limit.rlim_max && pipe.sa_handler == SIG_IGN) {
      readiness.ready();
    }
  });
  EXPECT_TRUE(outcome.has_value()) << outcome.error().what();
}

TEST(Settle, KeepsTheOutputsOfAForegroundProcess) {
  const Result<std::string> outcome = outcome_of([](Readiness& readiness) {
    struct stat before {};
    struct stat after {};
    (void)::fstat(STDERR_FILENO, &before);
    const bool settled = settle("/m", true).has_value();
    (void)::fstat(STDERR_FILENO, &after);
    if (settled && before.st_ino == after.st_ino) readiness.ready();
  });
  EXPECT_TRUE(outcome.has_value());
}

TEST(NotifySystemd, SendsOneDatagram) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "notify";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::setenv("NOTIFY_SOCKET", path.c_str(), 1), 0);

  notify_systemd("READY=1\nSTATUS=serving");
  ASSERT_EQ(::unsetenv("NOTIFY_SOCKET"), 0);

  std::array<char, 128> text{};
  const ssize_t size = ::recv(socket.get(), text.data(), text.size(), 0);
  ASSERT_GT(size, 0);
  EXPECT_EQ(std::string(text.data(), static_cast<size_t>(size)), "READY=1\nSTATUS=serving");
}

TEST(NotifySystemd, IsSilentWithoutSystemd) { notify_systemd("READY=1"); }

TEST(ErrorLine, IsOneLineWhateverIsInIt) {
  const std::string line = error_line(Error(ErrorCode::kInternal, "a\nb\x1b[31m: /p\xff"));
  EXPECT_EQ(line, "inductorfs: a\\x0ab\\x1b[31m: /p\\xff\n");
}

TEST(DeadMount, IsNoneWhereADirectoryAnswers) {
  const testing::TemporaryDirectory directory;
  EXPECT_FALSE(places::is_dead_mount(directory.path()));
  EXPECT_FALSE(places::is_dead_mount(directory / "absent"));
}

TEST(FreeMountpoint, RefusesAForeignMount) {
  EXPECT_TRUE(places::free_mountpoint("/no/such/mount").has_value());
  const Result<bool> freed = places::free_mountpoint("/proc");
  ASSERT_FALSE(freed.has_value());
  EXPECT_EQ(freed.error().code(), ErrorCode::kBusy);
}

TEST(ResolveMountpoint, FollowsLinksAndNamesTheRemedy) {
  const testing::TemporaryDirectory directory;
  ASSERT_EQ(::mkdir((directory / "real").c_str(), 0755), 0);
  ASSERT_EQ(::symlink((directory / "real").c_str(), (directory / "link").c_str()), 0);
  EXPECT_EQ(places::resolve_mountpoint(directory / "link").value(), directory / "real");

  const Result<std::string> absent = places::resolve_mountpoint(directory / "absent");
  ASSERT_FALSE(absent.has_value());
  EXPECT_EQ(absent.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(absent.error().what().find("mkdir -p"), std::string::npos);
  EXPECT_EQ(places::resolve_mountpoint("/dev/null").error().code(), ErrorCode::kNotDirectory);
  EXPECT_EQ(places::resolve_mountpoint("/dev/null/x").error().code(), ErrorCode::kNotDirectory);
}

TEST(OwnershipOf, IsThatOfTheDirectoryBelow) {
  const testing::TemporaryDirectory directory;
  ASSERT_EQ(::chmod(directory.path().c_str(), 01777), 0);
  const Result<config::Ownership> ownership = places::ownership_of(directory.path());
  ASSERT_TRUE(ownership.has_value());
  EXPECT_EQ(ownership->uid, ::geteuid());
  EXPECT_EQ(ownership->mode, 01777U);
}

}  // namespace
}  // namespace inductorfs::mount
