// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/processes/writers_packages.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "fingerprint/common/background.h"
#include "fingerprint/common/key_memory.h"
#include "fingerprint/facts/facts.h"
#include "fingerprint/processes/look_messages.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/fingerprint/libstdcxx.h"
#include "support/lacks.h"
#include "support/patience.h"
#include "writers_fixture.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::kSlowness;
using inductorfs::testing::TemporaryDirectory;
using testing::judge_to_the_end;
using testing::Program;
using testing::read_package;
using testing::Site;
using testing::write_script;
using testing::write_text;
namespace fs = std::filesystem;

constexpr Facet kPackages[] = {Facet::kTorch, Facet::kTriton};

/// Packages alone, in this process.
class ReadsPackages final : public Looker {
 public:
  Looked<Process> look_at(pid_t, const ProcessIdentity&) override { return {}; }
  std::optional<ProcessIdentity> identity_of(pid_t) override { return std::nullopt; }
  Looked<Variables> variables_of(const Process&) override { return {}; }
  Looked<std::shared_ptr<const Held>> hold(const Process&) override { return {}; }
  std::optional<Fact> read_package(const PackageRequest& request) override {
    PackageRequest with_reader = request;
    with_reader.program = PACKAGE_READER_PATH;
    return testing::read_package(with_reader);
  }
};

/// Packages whose files somebody chose so that reading them does not end.
class PackagesTest : public ::testing::Test {
 protected:
  void SetUp() override { INDUCTORFS_NEEDS_OWN_PROC(); }
  std::unique_ptr<testing::WritersOfMount> open(testing::OptionsOfTests options = testing::writers_options()) {
    return testing::open_patient_writers(options, testing::facts_of(site_), counters_);
  }
  static Judgement judge(testing::WritersOfMount& writers, const Program& program) {
    return judge_to_the_end(writers, writers.identify(program.pid()).get(), kPackages);
  }
  void expect_others_fit(testing::WritersOfMount& writers) {
    Program program;
    site_.load_torch(program);
    const Judgement judgement = judge(writers, program);
    EXPECT_EQ(judgement.match, Match::kMatches) << judgement.why;
  }

  TemporaryDirectory temporary_;
  Site site_{temporary_ / "site"};
  Site evil_{temporary_ / "evil"};
  Counters counters_;
};

TEST_F(PackagesTest, DoesNotWaitForTheOtherEndOfAFifo) {
  const auto writers = open();
  for (const std::string& name : {std::string("/version.py"), std::string("/a.py"), std::string("/b/__init__.py")}) {
    const Site evil(temporary_ / ("evil" + fs::path(name).stem().string()));
    Program program;
    evil.load_torch(program);
    fs::remove(evil.torch() + name);
    ASSERT_EQ(mkfifo((evil.torch() + name).c_str(), 0666), 0);
    const Judgement judgement = judge(*writers, program);
    EXPECT_TRUE(judgement.match == Match::kUnknown || judgement.match == Match::kDiffers)
        << name << ": " << judgement.why;
    EXPECT_EQ(judgement.why.find("within"), std::string::npos) << "no deadline was needed: " << judgement.why;
  }
  expect_others_fit(*writers);
}

TEST_F(PackagesTest, DoesNotReadAFileWithoutEnd) {
  const auto writers = open();
  Program program;
  evil_.load_torch(program);
  ASSERT_EQ(truncate(evil_.libtriton().c_str(), off_t{1} << 43), 0);
  const Judgement judgement = judge(*writers, program);
  EXPECT_EQ(judgement.match, Match::kUnknown) << judgement.why;
  EXPECT_NE(judgement.why.find("has more than"), std::string::npos) << judgement.why;
  expect_others_fit(*writers);
}

/// 20 KiB on the disk, and two of them took two GiB of root's memory.
TEST_F(PackagesTest, ReadsACompilerThatClaimsToBeLargeInPieces) {
  const std::string root = temporary_ / "container";
  const std::string driver = root + "/usr/bin/g++";
  write_text(driver, std::string("\x7f"
                                 "ELF\0gcc version %s\0cc1plus\0",
                                 28));
  fs::permissions(driver, fs::perms::owner_all);
  ASSERT_EQ(truncate(driver.c_str(), off_t{400} << 20), 0);
  PackageRequest request;
  request.facet = Facet::kCompiler;
  request.process.root = root;
  request.process.compiler.command = "g++";
  request.process.compiler.search = "/usr/bin";
  request.program = PACKAGE_READER_PATH;
  const Fact fact = read_package(request);
  EXPECT_NE(fact.problem.find("cc1plus below"), std::string::npos) << "it was read to its end: " << fact.problem;
  rusage own{};
  rusage used{};
  ASSERT_EQ(getrusage(RUSAGE_SELF, &own), 0);
  ASSERT_EQ(getrusage(RUSAGE_CHILDREN, &used), 0);
  EXPECT_LT(used.ru_maxrss, own.ru_maxrss + (128 << 10)) << "KiB of the largest child, which begins as a copy of us";
}

TEST_F(PackagesTest, GivesUpAReaderThatDoesNotEnd) {
  testing::OptionsOfTests options = testing::writers_options();
  options.package_deadline = Milliseconds{300};
  options.package_reader = temporary_ / "reader";
  const std::string fifo = temporary_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  write_script(options.package_reader, "read line < " + fifo);
  const auto writers = open(options);
  Program program;
  evil_.load_torch(program);
  const auto writer = writers->identify(program.pid());
  EXPECT_EQ(writers->judge(writer.get(), kPackages).match, Match::kLater) << "and does not wait";
  const Judgement judgement = judge_to_the_end(*writers, writer.get(), kPackages);
  EXPECT_EQ(judgement.match, Match::kUnknown);
  EXPECT_NE(judgement.why.find(evil_.torch() + " could not be read within 300 ms"), std::string::npos) << judgement.why;
}

TEST_F(PackagesTest, ForgetsNobodysPackageForTheManyOfAnother) {
  Packages packages(Milliseconds{20'000 * kSlowness}, std::make_shared<ReadsPackages>());
  Process mine;
  mine.owner = 1000;
  mine.torch = {site_.torch(), false, "mine"};
  const Deadline deadline = Deadline::after(Milliseconds{20'000 * kSlowness});
  while (!packages.ask(Facet::kTorch, mine) && !deadline.passed()) std::this_thread::yield();
  ASSERT_TRUE(packages.known(Facet::kTorch, mine));
  Process theirs;
  theirs.owner = 2000;
  for (int i = 0; i < 200; ++i) {
    theirs.torch = {temporary_ / ("torch " + std::to_string(i)), false, std::to_string(i)};
    (void)packages.ask(Facet::kTorch, theirs);  // most of them are too many
  }
  EXPECT_TRUE(packages.known(Facet::kTorch, mine));
}

/// So that a binary that needs more is not shown in the container (host::limits_of).
TEST_F(PackagesTest, SaysWhatTheLibstdcxxOfAContainerOffers) {
  const std::string root = temporary_ / "container";
  write_text(root + "/lib/libc.so.6", "GNU C Library (X) stable release version 2.17, by Roland");
  write_text(root + "/usr/lib64/libstdc++.so.6.0.19", "GLIBCXX_3.4.9 GLIBCXX_3.4.19 CXXABI_1.3.7");
  fs::create_symlink("/usr/lib64/libstdc++.so.6.0.19", root + "/lib/libstdc++.so.6");
  PackageRequest request;
  request.facet = Facet::kLibc;
  request.process.root = root;
  request.process.libc.path = "/lib/libc.so.6";
  struct stat status {};
  ASSERT_EQ(stat((root + "/lib/libc.so.6").c_str(), &status), 0);
  request.process.libc.identity = identity_of(status);
  request.process.libstdcxx.path = "/lib/libstdc++.so.6";
  request.program = PACKAGE_READER_PATH;
  const Fact fact = read_package(request);
  EXPECT_EQ(fact.value, "name=glibc\nversion=2.17") << fact.problem;
  EXPECT_EQ(value_of(fact.details, kGlibcxxKey), "3.4.19");
  EXPECT_EQ(value_of(fact.details, kCxxabiKey), "1.3.7");
  request.process.libstdcxx.path.clear();
  EXPECT_EQ(read_package(request).details, "") << "this host's is not its";
}

TEST_F(PackagesTest, ReadsWithTheRightsOfTheProcess) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root, whose rights are at stake");
  fs::permissions(std::string(temporary_ / "."), fs::perms(0755));
  PackageRequest request;
  request.facet = Facet::kTorch;
  request.process.torch.path = site_.torch();
  request.process.user = {1001, 1001, {1002}};
  request.program = PACKAGE_READER_PATH;
  request.cache_file = temporary_ / "closed/cache";
  fs::create_directory(temporary_ / "closed");
  fs::permissions(std::string(temporary_ / "closed"), fs::perms(0700));
  const Fact fact = read_package(request);
  EXPECT_TRUE(fact.known) << fact.problem;

  const std::string secret = temporary_ / "secret";
  write_text(secret, "__version__ = 'root only'\n");
  fs::permissions(secret, fs::perms(0600));
  fs::remove(site_.torch() + "/version.py");
  fs::create_symlink(secret, site_.torch() + "/version.py");
  const Fact closed = read_package(request);
  EXPECT_FALSE(closed.known);
  EXPECT_EQ((closed.value + closed.problem + closed.details).find("root only"), std::string::npos);
  ASSERT_EQ(::chown(secret.c_str(), 0, 1002), 0);
  fs::permissions(secret, fs::perms(0640));
  EXPECT_TRUE(read_package(request).known) << "its groups count";
  request.process.user = {};
  fs::permissions(secret, fs::perms(0600));
  EXPECT_TRUE(read_package(request).known) << "root's own";
  ASSERT_EQ(::chown(secret.c_str(), 1002, 1002), 0);
  EXPECT_FALSE(read_package(request).known) << "the root user of a container without that capability";
  ASSERT_EQ(::chown(secret.c_str(), 1002, 1004), 0);
  fs::permissions(secret, fs::perms(0640));
  request.process.user.group = 1004;
  EXPECT_TRUE(read_package(request).known) << "by its group";
  request.process.user = {};
  request.process.user.reads_all = true;
  EXPECT_TRUE(read_package(request).known);
}

/// The reader writes nothing: who had it started remembers for its user, and for nobody else, what it says.
TEST_F(PackagesTest, RememberForItsUserWhatAReaderSays) {
  PackageRequest request;
  request.facet = Facet::kTorch;
  request.process.torch.path = site_.torch();
  request.process.user = {1001, 1001, {}};
  request.cache_file = temporary_ / "memory";
  request.program = temporary_ / "reader";
  std::string said = to_text(Facet::kTorch, known_fact("told", "here")) + "\n";
  const std::string large(size_t{5} << 10, 'x');
  for (const std::string& part : {std::string("a\nb"), std::string("m"), std::string("one"), std::string("c"),
                                  std::string("m"), large, std::string("d")}) {
    said.append(part).append(1, '\0');
  }
  write_text(temporary_ / "said", said);
  write_script(request.program, "cat " + std::string(temporary_ / "said"));
  EXPECT_EQ(read_package(request).value, "told");
  const KeyMemory his(request.cache_file, 1001);
  EXPECT_EQ(his.find("a\nb", "m").value_or(""), "one");
  EXPECT_FALSE(his.find("c", "m")) << "it has a limit";
  EXPECT_FALSE(KeyMemory(request.cache_file, 1002).find("a\nb", "m"));
  EXPECT_FALSE(KeyMemory(request.cache_file).find("a\nb", "m"));
  for (const char* garbage : {"", "{}", "[]", "7", "{\"facts\": 7}", "{\"facts\": \"7\"}", "\n"}) {
    write_text(temporary_ / "said", garbage);
    EXPECT_FALSE(read_package(request).known) << garbage;
  }
}

/// What a link of /proc leads to, the kernel opens for whoever may look at that process: the daemon may.
TEST_F(PackagesTest, FollowsNoLinkOfProcToAnotherUsersFiles) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root, whose rights are at stake");
  fs::permissions(std::string(temporary_ / "."), fs::perms(0755));
  const std::string hers = temporary_ / "hers";
  write_text(hers + "/version.py", "__version__ = 'hers'\n");
  ASSERT_EQ(::chown(hers.c_str(), 1003, 1003), 0);
  fs::permissions(hers, fs::perms(0700));
  const testing::OtherUser she(1003, 1003, [&hers] { return ::chdir(hers.c_str()) == 0; });
  ASSERT_TRUE(she.is_ready());
  const std::string link = "/proc/" + std::to_string(she.pid()) + "/cwd/version.py";
  EXPECT_EQ(testing::read_text(link), "__version__ = 'hers'\n") << "as root";
  fs::remove(site_.torch() + "/version.py");
  fs::create_symlink(link, site_.torch() + "/version.py");
  PackageRequest request;
  request.facet = Facet::kTorch;
  request.process.torch.path = site_.torch();
  request.process.user = {1001, 1001, {}};
  request.program = PACKAGE_READER_PATH;
  const Fact fact = read_package(request);
  EXPECT_FALSE(fact.known) << fact.value;
  EXPECT_EQ((fact.value + fact.problem + fact.details).find("hers'"), std::string::npos);
}

TEST_F(PackagesTest, AreKnownToEachUserByHisOwnRights) {
  Packages packages(Milliseconds{20'000 * kSlowness}, std::make_shared<ReadsPackages>());
  Process mine;
  mine.torch = {site_.torch(), false, "one"};
  mine.user = {1001, 1001, {5}};
  const Deadline deadline = Deadline::after(Milliseconds{20'000 * kSlowness});
  while (!packages.ask(Facet::kTorch, mine) && !deadline.passed()) std::this_thread::yield();
  EXPECT_TRUE(packages.known(Facet::kTorch, mine));
  Process theirs = mine;
  theirs.user.groups = {};
  EXPECT_FALSE(packages.known(Facet::kTorch, theirs));
}

/// A container's root user is no root of the host, and what its links say is meant inside.
TEST_F(PackagesTest, FollowsNoLinkOfAContainerToTheHost) {
  const std::string root = temporary_ / "container";
  fs::create_directories(root + "/opt");
  fs::copy(site_.torch(), root + "/opt/torch", fs::copy_options::recursive);
  PackageRequest request;
  request.facet = Facet::kTorch;
  request.process.root = root;
  request.process.torch.path = "/opt/torch";
  request.program = PACKAGE_READER_PATH;
  const std::string version = root + "/opt/torch/version.py";
  const std::string outside = temporary_ / "outside.py";
  fs::rename(version, outside);
  fs::create_symlink(outside, version);
  const Fact stray = read_package(request);
  EXPECT_FALSE(stray.known) << stray.value;
  EXPECT_NE(stray.problem.find("/opt/torch/version.py"), std::string::npos) << stray.problem;
  EXPECT_EQ(stray.problem.find(root), std::string::npos) << "paths are the process's: " << stray.problem;
  fs::create_directories(root + fs::path(outside).parent_path().string());
  fs::copy_file(outside, root + outside);
  EXPECT_FALSE(read_package(request).value.empty()) << "the link's file inside";
}

TEST_F(PackagesTest, SaysWhyAReaderFailed) {
  testing::OptionsOfTests options = testing::writers_options();
  options.package_reader = temporary_ / "reader";
  write_script(options.package_reader, "echo no memory >&2; exit 7");
  const auto writers = open(options);
  Program program;
  site_.load_torch(program);
  const Judgement judgement = judge(*writers, program);
  EXPECT_EQ(judgement.match, Match::kUnknown);
  EXPECT_NE(judgement.why.find("code 7: no memory"), std::string::npos) << judgement.why;
}

/// Threads of one user that hang; another user's work goes on.
TEST(Background, KeepsThreadsForOtherUsers) {
  struct Counts {
    int begun = 0;
    int others = 0;
    bool over = false;
  };
  const auto counts = std::make_shared<Guarded<Counts>>();
  const auto patience = [] { return std::chrono::steady_clock::now() + std::chrono::seconds(20) * kSlowness; };
  const auto wait = [&](auto&& condition) { return counts->wait_until(patience(), condition, condition); };
  Background background("test", 4, 2);
  int taken = 0;
  for (int i = 0; i < 1000; ++i) {
    taken +=
        background.run(1,
                       [counts, patience] {
                         counts->notify_with([](Counts& now) { ++now.begun; });
                         (void)counts->wait_until(
                             patience(), [](const Counts& now) { return now.over; }, [](const Counts&) { return 0; });
                       })
            ? 1
            : 0;
  }
  EXPECT_LT(taken, 1000) << "what one user may have waiting is limited";
  EXPECT_TRUE(wait([](const Counts& now) { return now.begun == 2; }));
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(background.run(2, [counts] { counts->notify_with([](Counts& now) { ++now.others; }); }));
  }
  EXPECT_TRUE(wait([](const Counts& now) { return now.others == 10; }));
  EXPECT_EQ(counts->with([](const Counts& now) { return now.begun; }), 2);
  counts->notify_with([](Counts& now) { now.over = true; });
  EXPECT_TRUE(wait([&](const Counts& now) { return now.begun == taken; })) << "what waited runs in the end";
}

}  // namespace
}  // namespace inductorfs::fingerprint
