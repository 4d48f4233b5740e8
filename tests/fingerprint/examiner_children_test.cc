// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "fingerprint/processes/looker.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/fingerprint/examiner.h"
#include "stuck_proc.h"
#include "support/lacks.h"
#include "support/patience.h"
#include "writers_fixture.h"

/// The processes that an examiner looks with, in the hands of what they look at.
namespace inductorfs::fingerprint::testing {
namespace {

using inductorfs::testing::kSlowness;
using inductorfs::testing::TemporaryDirectory;
namespace fs = std::filesystem;

constexpr Milliseconds kLong{20'000 * kSlowness};
constexpr pid_t kWell = 8;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The word behind `label`, which ends a line's name; empty when there is none.
std::string value_of(const std::string& text, const std::string& label) {
  const size_t at = text.find(label);
  std::istringstream rest(at == std::string::npos ? std::string() : text.substr(at + label.size()));
  std::string word;
  rest >> word;
  return word;
}

/// Processes that look, of this process's examiners.
std::set<pid_t> children() {
  std::set<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string status = text_of(entry.path() / "status");
    if (value_of(status, "Name:") != "inductorfs-look" || value_of(status, "State:") == "Z") continue;
    const std::string parent = text_of("/proc/" + value_of(status, "PPid:") + "/status");
    if (value_of(parent, "PPid:") == std::to_string(::getpid())) found.insert(std::stoi(name));
  }
  return found;
}

std::set<std::string> files_of(const std::string& process) {
  std::set<std::string> files;
  std::error_code gone;  // the descriptor of the listing itself
  for (const auto& entry : fs::directory_iterator(process + "/fd")) files.insert(fs::read_symlink(entry.path(), gone));
  return files;
}

class ExaminerChildren : public ::testing::Test {
 protected:
  void SetUp() override { INDUCTORFS_NEEDS_OWN_PROC(); }
  std::shared_ptr<Looker> open(Milliseconds deadline) {
    OptionsOfTests options = writers_options();
    options.proc = proc_.path();
    options.package_deadline = deadline;
    return far_looker(
        examiner_for(options), [] {}, kLong);
  }
  /// Adds a process that can be looked at at once.
  void add_well() {
    proc_.add(kWell);
    write_text(proc_.path() + "/" + std::to_string(kWell) + "/maps",
               "1000-2000 r--p 00000000 fe:00 1    " + site_.libtorch() + "\n");
  }
  static Looked<Process> look(Looker& looker, pid_t pid) {
    ProcessIdentity identity;
    identity.start = 100;
    return looker.look_at(pid, identity);
  }
  static std::future<Looked<Process>> look_at_stuck(const std::shared_ptr<Looker>& looker) {
    return std::async(std::launch::async, [looker] { return look(*looker, StuckProc::kStuck); });
  }
  /// A child that waits for the lock, and is none of `but`; 0: none came.
  [[nodiscard]] static pid_t stuck_child(const std::set<pid_t>& but = {}, long in = SYS_openat) {
    for (const Deadline deadline = Deadline::after(kLong); !deadline.passed(); std::this_thread::yield()) {
      for (const pid_t pid : children()) {
        // Another one may look at another process at this moment.
        const std::string call = text_of("/proc/" + std::to_string(pid) + "/syscall");
        if (call.starts_with(std::to_string(in) + " ") && !but.contains(pid)) return pid;
      }
    }
    return 0;
  }

  static void expect_rights(pid_t pid, uint64_t rights) {
    const uint64_t own = std::stoull(value_of(text_of("/proc/self/status"), "CapEff:"), nullptr, 16);
    const std::string has = value_of(text_of("/proc/" + std::to_string(pid) + "/status"), "CapPrm:");
    ASSERT_FALSE(has.empty());
    EXPECT_EQ(std::stoull(has, nullptr, 16), own & rights);
  }
  static void expect_no_children() {
    const Deadline deadline = Deadline::after(kLong);
    while (!children().empty() && !deadline.passed()) std::this_thread::yield();
    EXPECT_TRUE(children().empty());
  }

  TemporaryDirectory temporary_;
  Site site_{temporary_ / "site"};
  StuckProc proc_{temporary_ / "proc"};
};

TEST_F(ExaminerChildren, HaveNoMoreThanALookTakes) {
  const auto looker = open(kLong);
  auto looked = look_at_stuck(looker);
  const pid_t pid = stuck_child();
  ASSERT_GT(pid, 0);
  expect_rights(pid, 1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH | 1U << CAP_SYS_PTRACE | 1U << CAP_SETUID |
                         1U << CAP_SETGID);
  const std::string folder = "/proc/" + std::to_string(pid);
  const std::string maps = proc_.path() + "/" + std::to_string(StuckProc::kStuck) + "/maps";
  Fd lines(::open(maps.c_str(), O_WRONLY | O_CLOEXEC));  // it is open now, and nothing is in it
  ASSERT_EQ(stuck_child({}, SYS_read), pid);
  EXPECT_EQ(text_of(folder + "/oom_score_adj"), "1000\n");
#ifndef INDUCTORFS_TEST_SANITIZED  // which needs much address space
  EXPECT_EQ(value_of(text_of(folder + "/limits"), "Max data size"), std::to_string(512 << 20));
  // What runs this test may have a filter, too. The number is told from Linux 5.9 on.
  const auto filters_of = [](const std::string& at) { return value_of(text_of(at + "/status"), "Seccomp_filters:"); };
  EXPECT_EQ(value_of(text_of(folder + "/status"), "Seccomp:"), "2");
  EXPECT_TRUE(filters_of(folder).empty() || filters_of(folder) != filters_of("/proc/self")) << filters_of(folder);
#endif
  expect_rights(pid, 0);
  // But for what whoever runs this test has left open.
  std::vector<std::string> files;
  const std::set<std::string> inherited = files_of("/proc/self");
  std::ranges::set_difference(files_of(folder), inherited, std::back_inserter(files));
  std::erase(files, maps);
  std::erase(files, fs::canonical(maps));
  EXPECT_EQ(files.size(), 1U) << "the connection of its question, and not " << ::testing::PrintToString(files);
  EXPECT_TRUE(!files.empty() && files.front().starts_with("socket:"));
  lines.reset();
  (void)looked.get();
}

/// What was opened of a process is empty when it runs another program.
TEST_F(ExaminerChildren, LookAgainAtAProcessThatRunsAnotherProgramMeanwhile) {
  proc_.set_size(StuckProc::kStuck, 1, 4096);
  const auto looker = open(kLong);
  auto looked = look_at_stuck(looker);
  const pid_t first = stuck_child();
  ASSERT_GT(first, 0);
  while (!proc_.let_go("")) std::this_thread::yield();
  ASSERT_GT(stuck_child({first}), 0);
  while (!proc_.let_go("1000-2000 r--p 00000000 fe:00 1    " + site_.libtorch() + "\n")) std::this_thread::yield();
  const auto answer = looked.get();
  ASSERT_TRUE(answer.found);
  EXPECT_EQ(answer.found->torch.path, site_.torch());
}

/// As one that a user's program makes crash.
TEST_F(ExaminerChildren, ThatCrashAreTwoAndDisturbNobody) {
  add_well();
  const auto looker = open(kLong);
  auto looked = look_at_stuck(looker);
  std::set<pid_t> crashed;
  while (crashed.size() < 2) {
    const pid_t pid = stuck_child(crashed);
    ASSERT_GT(pid, 0);
    EXPECT_TRUE(look(*looker, kWell).found.has_value());
    ASSERT_EQ(::kill(pid, SIGSEGV), 0);
    crashed.insert(pid);
  }
  const auto answer = looked.get();
  EXPECT_TRUE(answer.is_late && !answer.found);
  EXPECT_TRUE(look(*looker, kWell).found.has_value());
  expect_no_children();
}

TEST_F(ExaminerChildren, ThatHangAreKilledAndMakeRoomForOthersOfTheUser) {
  add_well();
  const auto looker = open(Milliseconds(1500 * kSlowness));  // for the one that is well, too
  std::vector<std::future<Looked<Process>>> stuck;
  for (int i = 0; i < 6; ++i) stuck.push_back(look_at_stuck(looker));
  ASSERT_GT(stuck_child(), 0);
  EXPECT_TRUE(look(*looker, kWell).found.has_value()) << "it waits for its turn";
  for (auto& one : stuck) EXPECT_TRUE(one.get().is_late);
  expect_no_children();
}

#ifndef INDUCTORFS_TEST_SANITIZED  // which reports what is not got instead
TEST_F(ExaminerChildren, ThatGetNoMemoryEndWithoutTheExaminer) {
  add_well();
  const auto looker = open(kLong);
  auto looked = look_at_stuck(looker);
  std::set<pid_t> hungry;
  while (hungry.size() < 2) {
    const pid_t pid = stuck_child(hungry);
    ASSERT_GT(pid, 0);
    const rlimit none{0, 0};
    ASSERT_EQ(::prlimit(pid, RLIMIT_DATA, &none, nullptr), 0);
    hungry.insert(pid);
    // A line without an end, of more than is left over: the pipe takes 64 KiB at once.
    std::ofstream maps(proc_.path() + "/" + std::to_string(StuckProc::kStuck) + "/maps");
    const std::string piece(size_t{64} << 10, 'x');
    (void)::signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 64 && maps; ++i) maps << piece << std::flush;
    EXPECT_FALSE(maps) << "it has read all";
  }
  const auto answer = looked.get();
  EXPECT_TRUE(answer.is_late && !answer.found);
  EXPECT_TRUE(look(*looker, kWell).found.has_value());
}
#endif

/// The reader of a package runs with the user's rights, and is not the examiner's child but its child's.
TEST_F(ExaminerChildren, ThatReadTooLongLeaveNoReader) {
  const std::string number = temporary_ / "pid";
  const std::string fifo = temporary_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  OptionsOfTests options = writers_options();
  options.package_deadline = Milliseconds(2000);
  options.package_reader = temporary_ / "reader";
  write_text(options.package_reader, "#!/bin/sh\necho $$ > " + number + "\nread line < " + fifo + "\n");
  fs::permissions(options.package_reader, fs::perms::owner_all);
  const auto looker = far_looker(
      examiner_for(options), [] {}, kLong);
  PackageRequest request;
  request.process.pid = ::getpid();
  const auto stat = ProcReader("/proc").stat_of(::getpid());
  ASSERT_TRUE(stat.has_value());
  request.process.identity = stat->identity;
  request.process.torch.path = site_.torch();
  tell(request.process);
  auto reading = std::async(std::launch::async, [&] { return looker->read_package(request); });
  const Deadline deadline = Deadline::after(kLong);
  while (text_of(number).empty() && !deadline.passed()) std::this_thread::yield();
  const std::string pid = value_of(text_of(number), "");
  const auto looking = children();
  ASSERT_TRUE(!pid.empty() && !looking.empty());
  const uint64_t rights = 1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH | 1U << CAP_SYS_PTRACE | 1U << CAP_SETUID |
                          1U << CAP_SETGID | 1U << CAP_KILL;
  expect_rights(*looking.begin(), rights);
  const auto fact = reading.get();
  ASSERT_TRUE(fact.has_value());
  EXPECT_FALSE(fact->known);
  while (fs::exists("/proc/" + pid) && !deadline.passed()) std::this_thread::yield();
  EXPECT_FALSE(fs::exists("/proc/" + pid));
}

/// As one that has unmapped its torch: what it has mapped says nothing of where its files are.
TEST_F(ExaminerChildren, ReadInTheRootOfAProcessThatHasNothingMapped) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("the right to make a mount namespace");
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::unshare(CLONE_NEWNS) != 0) ::_exit(1);
    while (true) ::pause();
  }
  ASSERT_GT(pid, 0);
  const ProcReader reader("/proc");
  const Deadline deadline = Deadline::after(kLong);
  while (reader.space_of(pid) == reader.space_of(::getpid()) && !deadline.passed()) std::this_thread::yield();
  OptionsOfTests options = writers_options();
  options.package_reader = temporary_ / "reader";
  const std::string told = temporary_ / "told";
  write_text(options.package_reader, "#!/bin/sh\nenv > " + told + "\n");
  fs::permissions(options.package_reader, fs::perms::owner_all);
  const auto looker = far_looker(
      examiner_for(options), [] {}, kLong);
  PackageRequest request;
  request.process.pid = pid;
  const auto stat = reader.stat_of(pid);
  request.process.identity = stat ? stat->identity : ProcessIdentity{};
  request.process.torch.path = site_.torch();
  tell(request.process);
  (void)looker->read_package(request);
  const std::string root = R"("root":"/proc/)" + std::to_string(pid) + R"(/root")";
  EXPECT_NE(text_of(told).find(root), std::string::npos) << text_of(told);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
}

}  // namespace
}  // namespace inductorfs::fingerprint::testing
