// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/examiner.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "fingerprint/processes/look_messages.h"
#include "fingerprint/processes/looker.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/message.h"
#include "inductorfs/base/sanitized.h"
#include "support/emulator.h"
#include "support/forked_examiner.h"
#include "support/temporary_directory.h"
#include "writers_fixture.h"

namespace inductorfs::fingerprint::testing {
namespace {

constexpr Milliseconds kLong{20'000};

struct Ends {
  Fd worker;
  Fd examiner;
};

Ends new_ends(int type = SOCK_SEQPACKET) {
  std::array<int, 2> ends{-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

/// The connection of the next question.
Fd next_question(int socket) {
  pollfd item{socket, POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, static_cast<int>(kLong.count())), 1);
  Question question;
  Fd connection;
  Fd further;
  EXPECT_EQ(receive_question(socket, question, connection, further), Received::kQuestion);
  return connection;
}

/// The examiner's own line, for this very process.
std::string taken() {
  const ProcReader reader("/proc");
  Taken taken;
  taken.owner = ::getuid();
  taken.user = reader.user_of(::getpid()).value_or(FileUser{});
  taken.space = reader.space_of(::getpid());
  taken.root = reader.root_of(::getpid());
  return to_text(taken) + "\n";
}

void say(const Fd& connection, std::string_view text) {
  EXPECT_EQ(::send(connection.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

Process own_process() {
  Process process;
  process.pid = ::getpid();
  const auto stat = ProcReader("/proc").stat_of(process.pid);
  if (stat) process.identity = stat->identity;
  return process;
}

TEST(Examiner, IsNotBelievedWhatItCannotMean) {
  const Process own = own_process();
  Process another = own;
  ++another.pid;
  for (const std::string& lie :
       {std::string("nonsense\n"), std::string("[]\n"), std::string("7\n"), std::string("{}\n"),
        std::string(R"({"pid":"x"})") + "\n", std::string(R"({"values":7,"live":true,"files":[]})") + "\n",
        std::string(R"({"facts":"nonsense"})") + "\n", std::string(R"({"held":-1})") + "\n",
        R"({"pid":)" + std::string(400'000, '[') + "\n", to_text(another) + "\n"}) {
    SCOPED_TRACE(lie);
    const Ends ends = new_ends();
    const auto looker = far_looker(
        ends.worker.get(), [] {}, kLong);
    std::jthread liar([&] {
      for (int i = 0; i < 4; ++i) say(next_question(ends.examiner.get()), taken() + lie);
    });
    const auto looked = looker->look_at(own.pid, own.identity);
    EXPECT_TRUE(!looked.found && !looked.is_late);
    EXPECT_FALSE(looker->variables_of(own).found);
    EXPECT_FALSE(looker->hold(own).found);
    PackageRequest request;
    request.process = own;
    EXPECT_FALSE(looker->read_package(request));
  }
}

TEST(Examiner, ThatHasEndedIsAskedAgainWhenAnotherOneIsThere) {
  const Ends ends = new_ends();
  const Process own = own_process();
  const auto looker = far_looker(
      ends.worker.get(), [] {}, kLong);
  std::jthread examiners([&] {
    for (int i = 0; i < 3; ++i) (void)next_question(ends.examiner.get());  // it is hung up on
    say(next_question(ends.examiner.get()), taken());                      // and in the middle
    say(next_question(ends.examiner.get()), taken() + to_text(own).substr(0, 7));
    say(next_question(ends.examiner.get()), taken() + std::string(kFailed) + "\n");
    say(next_question(ends.examiner.get()), taken() + to_text(own) + "\n");
  });
  const auto looked = looker->look_at(own.pid, own.identity);
  ASSERT_TRUE(looked.found.has_value());
  EXPECT_EQ(looked.found->pid, own.pid);
}

TEST(Examiner, ThatTakesNoQuestionIsTold) {
  const Ends ends = new_ends();
  const Process own = own_process();
  std::atomic<int> told{0};
  const auto looker = far_looker(
      ends.worker.get(), [&told] { ++told; }, Milliseconds(2500));
  const auto looked = looker->look_at(own.pid, own.identity);
  EXPECT_TRUE(looked.is_late && !looked.found);
  EXPECT_EQ(told, 1);
}

/// A child may be in the hands of the process that it looks at.
TEST(Examiner, IsAskedWhoseAProcessIsAndNotItsChild) {
  const Ends ends = new_ends();
  const Process own = own_process();
  Process lie = own;
  lie.owner = lie.user.user = 4711;
  lie.user.reads_all = true;
  lie.space = "mnt:[1]";
  lie.root = "/proc/1/root";
  const auto looker = far_looker(
      ends.worker.get(), [] {}, kLong);
  std::jthread liar([&] { say(next_question(ends.examiner.get()), taken() + to_text(lie) + "\n"); });
  const auto looked = looker->look_at(own.pid, own.identity);
  ASSERT_TRUE(looked.found.has_value());
  EXPECT_EQ(looked.found->owner, ::getuid());
  EXPECT_EQ(looked.found->user.user, ::getuid());
  EXPECT_EQ(looked.found->space, ProcReader("/proc").space_of(own.pid));
  EXPECT_EQ(looked.found->root, ProcReader("/proc").root_of(own.pid));
}

/// To read of another file could block for ever: of a pipe, of a disk that does not answer, of the kernel's log.
TEST(Examiner, IsGivenNoOtherFileForTheSignOfAnExec) {
  const Process own = own_process();
  std::array<int, 2> pipe{-1, -1};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const Fd ends_of_pipe[] = {Fd(pipe[0]), Fd(pipe[1])};
  const inductorfs::testing::TemporaryDirectory folder;
  const std::string name = folder.path() + "/proc/" + std::to_string(own.pid) + "/pagemap";
  write_text(name, "x");
  const Fd of_disk(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  const Fd of_another(::open("/proc/1/pagemap", O_RDONLY | O_CLOEXEC));
  const Fd another(::open(("/proc/" + std::to_string(own.pid) + "/maps").c_str(), O_RDONLY | O_CLOEXEC));
  const Fd right(::open(("/proc/" + std::to_string(own.pid) + "/pagemap").c_str(), O_RDONLY | O_CLOEXEC));
  for (const Fd* sent : {&ends_of_pipe[0], &of_disk, &of_another, &another, &right}) {
    SCOPED_TRACE(sent->get());
    const Ends ends = new_ends();
    const auto looker = far_looker(
        ends.worker.get(), [] {}, kLong);
    std::jthread examiner([&] {
      const Fd connection = next_question(ends.examiner.get());
      EXPECT_TRUE(send_message(connection.get(), taken(), std::array{sent->get(), -1}));
      say(connection, to_text(own) + "\n");
    });
    const auto looked = looker->look_at(own.pid, {own.identity.start, 0, 1});
    ASSERT_TRUE(looked.found.has_value());
    EXPECT_EQ(looked.found->identity, own.identity) << "whoever asks need not know the program";
    EXPECT_EQ(looked.found->memory != nullptr, sent == &right);
  }
}

#ifndef INDUCTORFS_SANITIZED  // which makes calls of its own
TEST(Examiner, HasWhatOnlyReadsDoNothingElse) {
  INDUCTORFS_NEEDS_NO_EMULATOR("filters of system calls");
  ExaminerTask acts;
  acts.answer = [](const ExaminerCall&) {
    const std::string text = read_file(AT_FDCWD, "/proc/self/stat", 4096).value_or("");
    const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return std::string(text.empty() ? "reads nothing" : "reads") + (fd ? ", acts" : "");
  };
  ExaminerTask reads = acts;
  reads.only_reads = true;
  const inductorfs::testing::ForkedExaminer examiner({{"acts", acts}, {"reads", reads}});
  for (const auto& [task, answer] : {std::pair{"acts", "reads, acts"}, {"reads", "reads"}}) {
    EXPECT_EQ(examiner.link()->ask(task, {}, Deadline::after(kLong)).value_or(""), answer);
  }
}
#endif

TEST(Examiner, WhoseChildrenCrashIsAskedTwice) {
  const Ends ends = new_ends();
  const Process own = own_process();
  const auto looker = far_looker(
      ends.worker.get(), [] {}, kLong);
  std::jthread examiner([&] {
    for (int i = 0; i < 2; ++i) say(next_question(ends.examiner.get()), taken() + std::string(kFailed) + "\n");
  });
  EXPECT_TRUE(looker->look_at(own.pid, own.identity).is_late);
}

TEST(Examiner, ThatIsAtAQuestionIsLeftAtIt) {
  const Ends ends = new_ends();
  const Process own = own_process();
  std::atomic<int> told{0};
  const auto looker = far_looker(
      ends.worker.get(), [&told] { ++told; }, Milliseconds(2500));
  Fd connection;
  std::jthread examiner([&] {
    connection = next_question(ends.examiner.get());
    say(connection, taken());
  });
  EXPECT_TRUE(looker->look_at(own.pid, own.identity).is_late);
  EXPECT_EQ(told, 0);
}

TEST(Examiner, AnswersAWorkerThatLies) {
  const OptionsOfTests options = writers_options();
  const int socket = examiner_for(options);
  const Process own = own_process();
  for (const std::string& lie :
       {std::string("nonsense"), std::string("{}"), std::string(R"({"ask":9})"), std::string(kQuestionLimit + 1, 'x'),
        std::string(R"({"ask":0,"facet":"torch","held":0,"task":"","request":"","pid":-1,)"
                    R"("identity":{"start":0,"stack":0,"code":0}})"),
        to_text(Question{Ask::kPackage, own, Facet::kTrust, 77}),
        to_text(Question{Ask::kHold, own, Facet::kTorch, 77})}) {
    SCOPED_TRACE(lie.substr(0, 100));
    const Ends ends = new_ends(SOCK_STREAM);
    (void)send_question(socket, lie, ends.examiner.get());
  }
  (void)::send(socket, "without a connection", 20, MSG_NOSIGNAL);
  const auto looker = far_looker(
      socket, [] {}, kLong);
  const auto looked = looker->look_at(own.pid, own.identity);
  ASSERT_TRUE(looked.found.has_value());
  EXPECT_EQ(looked.found->identity, own.identity);
}

TEST(Examiner, LooksAtNoOtherProcessOfThatNumber) {
  const auto looker = far_looker(
      examiner_for(writers_options()), [] {}, kLong);
  Process own = own_process();
  ++own.identity.start;
  const auto looked = looker->look_at(own.pid, own.identity);
  EXPECT_TRUE(!looked.found && !looked.is_late);
  EXPECT_FALSE(looker->hold(own).found);
}

/// The number may have been another examiner's, for the files of another process.
TEST(Examiner, HoldsNoFilesForAnotherProcessOfTheNumber) {
  const OptionsOfTests options = writers_options();
  const int socket = examiner_for(options);
  const auto looker = far_looker(
      socket, [] {}, kLong);
  const Process own = own_process();
  const auto held = looker->hold(own);
  ASSERT_TRUE(held.found.has_value());
  PackageRequest request;
  request.facet = Facet::kLibc;
  request.held = *held.found;
  request.process = own;
  request.process.libc.path = "/no/such/file";
  tell(request.process);
  EXPECT_TRUE(looker->read_package(request).has_value());
  ++request.process.identity.start;
  EXPECT_FALSE(looker->read_package(request).has_value());
}

/// A worker that was taken over would have it read what only root may read, and hear versions and digests of it.
TEST(Examiner, ReadsNoFilesButThoseThatItsChildrenHaveFound) {
  const auto looker = far_looker(
      examiner_for(writers_options()), [] {}, kLong);
  const Process own = own_process();
  const auto looked = looker->look_at(own.pid, own.identity);
  ASSERT_TRUE(looked.found.has_value());
  ASSERT_FALSE(looked.found->told.seal.empty());
  PackageRequest found;
  found.facet = Facet::kLibc;
  found.process = *looked.found;
  EXPECT_TRUE(looker->read_package(found).has_value());

  Process of_another = own;
  ++of_another.pid;
  tell(of_another);
  const std::vector<Told> lies = {{},
                                  {found.process.told.text, {}},
                                  {to_text(own), found.process.told.seal},
                                  of_another.told,
                                  {of_another.told.text, found.process.told.seal}};
  for (const Told& lie : lies) {
    SCOPED_TRACE(lie.text + " " + lie.seal);
    PackageRequest request = found;
    request.process.told = lie;
    EXPECT_FALSE(looker->read_package(request).has_value());
    request = found;
    request.process.named = {named_text({{"CXX", "/etc/shadow", {}}}, {}), lie.seal};
    EXPECT_FALSE(looker->read_package(request).has_value());
  }
}

TEST(Examiner, SaysAllOfAProcess) {
  Process process = own_process();
  process.owner = 7;
  process.space = "mnt:[1]";
  process.mounts = "m";
  process.root = "/proc/1/root";
  process.other_root = true;
  process.torch = {"/t\xC3\xBC\xFF", true, "1"};
  process.triton = {"/r", false, "2"};
  process.libc = {"/c", false, "3"};
  process.libstdcxx = {"/s", false, "4"};
  process.site = {"/p", false, "5"};
  process.engines = {{"/e", true, "6"}};
  process.soabi = "cpython-311";
  process.environ_address = UINT64_MAX;
  process.files = {{"V", "/f", "7"}};
  process.compiler = {"g++", "/bin", {"CPATH"}};
  process.user = {1, 2, {3, 4}, true};
  process.whole = false;
  process.shows_exec = false;
  process.is_forked = true;
  const auto read = process_from(to_text(process));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(to_text(*read), to_text(process));
  EXPECT_EQ(read->engines.front().path, "/e");
  EXPECT_EQ(read->torch.path, process.torch.path) << "names of files are of any bytes";
  EXPECT_EQ(read->user.groups, process.user.groups);
  EXPECT_EQ(read->environ_address, UINT64_MAX);
  EXPECT_FALSE(read->whole || read->shows_exec);
  EXPECT_TRUE(read->is_forked);
}

}  // namespace
}  // namespace inductorfs::fingerprint::testing
