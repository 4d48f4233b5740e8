// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "fingerprint/common/in_root.h"
#include "fingerprint/processes/opened_process.h"
#include "fingerprint/processes/writers_process.h"
#include "inductorfs/base/fd.h"
#include "support/lacks.h"
#include "support/patience.h"
#include "writers_fixture.h"

extern char** environ;

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::judge_to_the_end;
using testing::Site;
using testing::write_text;
namespace fs = std::filesystem;

std::optional<SymbolPlace> environ_in(const std::string& path) {
  return find_environ(Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)));
}

/// A /proc of files. Process 7 is the child of 5.
class FakeProcTest : public ::testing::Test {
 protected:
  void SetUp() override { INDUCTORFS_NEEDS_OPENAT2(); }
  void add(pid_t pid, pid_t parent, const std::string& maps, const std::string& environment = {}) {
    const std::string folder = proc_ + "/" + std::to_string(pid);
    write_text(folder + "/stat", stat_line(pid, parent, "a) (b 7 S 1", 100));
    write_text(folder + "/status", "Name:\tx\nUmask:\t0022\nTgid:\t" + std::to_string(pid) +
                                       "\nNgid:\t0\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n");
    write_text(folder + "/maps", maps);
    write_text(folder + "/environ", environment);
    fs::remove(folder + "/root");
    fs::create_symlink("/", folder + "/root");
  }
  static std::string stat_line(pid_t pid, pid_t parent, const std::string& name, uint64_t start) {
    std::string text = std::to_string(pid) + " (" + name + ") S " + std::to_string(parent);
    for (int field = 5; field <= 52; ++field) {
      text += " " + std::to_string(field == 22 ? start : field == 26 || field == 28 ? 4096U : 0U);
    }
    return text + "\n";
  }
  static std::string line(const std::string& path, const std::string& range = "1000-2000") {
    return range + " r--p 00000000 fe:00 247134                     " + path + "\n";
  }
  std::unique_ptr<testing::WritersOfMount> open(const std::string& package_reader = {}) {
    testing::OptionsOfTests options = testing::writers_options();
    options.proc = proc_;
    if (!package_reader.empty()) options.package_reader = package_reader;
    return testing::open_patient_writers(options, testing::facts_of(site_), counters_);
  }

  TemporaryDirectory temporary_;
  std::string proc_ = temporary_ / "proc";
  Site site_{temporary_ / "site"};
  Counters counters_;
};

TEST_F(FakeProcTest, ReadsAProcessWithOddNames) {
  add(7, 5,
      line("[heap]") + line("/lib/x y/libfoo.so") + line(site_.libtorch()) + "7f-80 garbage\n\n" +
          line("/usr/lib/libc.so.6") + line("/x/_ssl.cpython-312-aarch64-linux-gnu.so"));
  const auto writer = open()->identify(7);
  ASSERT_TRUE(writer);
  EXPECT_EQ(writer->process().torch.path, site_.torch());
  EXPECT_EQ(writer->process().libc.path, "/usr/lib/libc.so.6");
  EXPECT_EQ(writer->process().soabi, "cpython-312-aarch64-linux-gnu");
  EXPECT_EQ(writer->process().identity.start, 100U);
  EXPECT_EQ(writer->process().root, proc_ + "/7/root") << "no word of its mount namespace";
}

/// Nothing in its line of /proc shows that such a process has run another program since.
TEST_F(FakeProcTest, LooksAgainAtAProcessWhoseAddressesAreTheSameAfterAnExec) {
  const Site other(temporary_ / "other");
  const auto torch_after_exec = [&](const Site& before, const Site& after) {
    const auto writers = open();
    add(7, 5, line(before.libtorch()));
    EXPECT_EQ(writers->identify(7)->process().torch.path, before.torch());
    add(7, 5, line(after.libtorch()));
    return writers->identify(7)->process().torch.path;
  };
  EXPECT_EQ(torch_after_exec(site_, other), site_.torch()) << "one look at a process, as long as an exec can be seen";
  write_text(proc_ + "/7/personality", "00040000\n");  // ADDR_NO_RANDOMIZE
  EXPECT_EQ(torch_after_exec(site_, other), other.torch());
  write_text(proc_ + "/7/personality", "00000000\n");
  write_text(proc_ + "/sys/kernel/randomize_va_space", "0\n");
  EXPECT_EQ(torch_after_exec(site_, other), other.torch());
}

TEST_F(FakeProcTest, ReachesPackagesThroughTheRootOfAContainer) {
  const Site inside(temporary_ / "container/opt/site");
  add(7, 5,
      line("/opt/site/torch/lib/libtorch_cpu.so") + line("/opt/site/torch/_C." + std::string(testing::kSoabi) + ".so"));
  fs::remove(proc_ + "/7/root");
  fs::create_directory_symlink(temporary_ / "container", proc_ + "/7/root");
  const auto writers = open();
  const auto writer = writers->identify(7);
  ASSERT_TRUE(writer);
  EXPECT_EQ(writer->process().torch.path, "/opt/site/torch");
  const Facet facets[] = {Facet::kTorch, Facet::kTriton, Facet::kPython};
  EXPECT_EQ(judge_to_the_end(*writers, writer.get(), facets).match, Match::kMatches)
      << judge_to_the_end(*writers, writer.get(), facets).why;
  // The container is gone: what was read of its files before is still known.
  fs::remove_all(proc_ + "/7");
  EXPECT_EQ(writers->glance(writer.get(), facets).match, Match::kMatches);
}

/// A short job: its only artefact is renamed, and the process and its container are gone before anybody reads a
/// package.
TEST_F(FakeProcTest, ReadsThePackageOfAContainerThatIsGone) {
  const Site inside(temporary_ / "container/opt/site");
  add(7, 5,
      line("/opt/site/torch/lib/libtorch_cpu.so") + line("/opt/site/torch/_C." + std::string(testing::kSoabi) + ".so"));
  fs::remove(proc_ + "/7/root");
  fs::create_directory_symlink(temporary_ / "container", proc_ + "/7/root");
  const auto writers = open();
  const auto writer = writers->identify(7);
  ASSERT_TRUE(writer);
  fs::remove_all(proc_ + "/7");
  const Facet facets[] = {Facet::kTorch, Facet::kTriton, Facet::kPython};
  const Judgement judgement = judge_to_the_end(*writers, writer.get(), facets);
  EXPECT_EQ(judgement.match, Match::kMatches) << judgement.why;
}

/// A distribution's torch in a container: no RECORD, and an absolute link to its library. The container is gone before
/// the package is read.
TEST_F(FakeProcTest, ReadsTheLinkedLibraryOfAContainerThatIsGone) {
  const std::string root = temporary_ / "container";
  const Site inside(root + "/opt/site");
  inside.remove_record();
  site_.remove_record();
  fs::create_directories(root + "/usr/lib");
  fs::rename(inside.libtorch(), root + "/usr/lib/libtorch_cpu.so.9");
  fs::create_symlink("/usr/lib/libtorch_cpu.so.9", inside.libtorch());
  add(7, 5, line("/usr/lib/libtorch_cpu.so.9") + line("/opt/site/torch/_C." + std::string(testing::kSoabi) + ".so"));
  fs::remove(proc_ + "/7/root");
  fs::create_directory_symlink(root, proc_ + "/7/root");
  const auto writers = open();
  const auto writer = writers->identify(7);
  ASSERT_TRUE(writer);
  fs::remove_all(proc_ + "/7");
  const Facet facets[] = {Facet::kTorch, Facet::kTriton, Facet::kPython};
  const Judgement judgement = judge_to_the_end(*writers, writer.get(), facets);
  EXPECT_EQ(judgement.match, Match::kMatches) << judgement.why;
}

/// A tool in a container whose path is one of links, as in NVIDIA's images; the container is gone before it is read.
TEST_F(FakeProcTest, ReadsTheToolOfAContainerThatIsGone) {
  const std::string root = temporary_ / "container";
  const Site inside(root + "/opt/site");
  const std::string tool =
      "\x7f"
      "ELF ptxas";
  write_text(inside.triton() + "/backends/nvidia/bin/ptxas", tool);
  write_text(root + "/cuda-13/bin/ptxas", tool);
  fs::create_directories(root + "/usr/local");
  fs::create_directory_symlink("/cuda-13", root + "/usr/local/cuda");
  const std::string name = "TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas";
  const std::string maps =
      line("/opt/site/torch/lib/libtorch_cpu.so") + line("/opt/site/torch/_C." + std::string(testing::kSoabi) + ".so");
  add(7, 5, maps, name + std::string(1, '\0'));
  fs::remove(proc_ + "/7/root");
  fs::create_directory_symlink(root, proc_ + "/7/root");
  const auto writers = open();
  const auto writer = writers->identify(7);
  ASSERT_TRUE(writer);
  fs::remove_all(proc_ + "/7");
  const Facet facets[] = {Facet::kTorch, Facet::kTriton, Facet::kPython, Facet::kEnvironment};
  const Judgement judgement = judge_to_the_end(*writers, writer.get(), facets);
  // The tool is what is used without the variable, or it would be a difference; this /proc has no memory to read.
  EXPECT_EQ(judgement.match, Match::kUnknown) << judgement.why;
  EXPECT_EQ(judgement.why, kMemoryNotRead);
}

TEST_F(FakeProcTest, NamesTheFileOfAContainerAsTheProcessDoes) {
  const Site inside(temporary_ / "container/opt/site");
  add(7, 5, line("/opt/site/torch/lib/libtorch_cpu.so"));
  fs::remove(inside.torch() + "/version.py");
  fs::remove(proc_ + "/7/root");
  fs::create_directory_symlink(temporary_ / "container", proc_ + "/7/root");
  const auto writers = open();
  const Facet facets[] = {Facet::kTorch};
  const Judgement judgement = judge_to_the_end(*writers, writers->identify(7).get(), facets);
  EXPECT_EQ(judgement.match, Match::kUnknown);
  EXPECT_NE(judgement.why.find(" /opt/site/torch/version.py cannot be read"), std::string::npos) << judgement.why;
}

/// After chroot(2) alone the kernel's names of mapped files begin with the root.
TEST_F(FakeProcTest, TakesTheRootOffThePathsOfAProcessThatChangedItsRootAlone) {
  const std::string root = temporary_ / "container";
  const Site inside(root + "/opt/site");
  add(7, 5, line(inside.libtorch()) + line(inside.torch() + "/_C." + std::string(testing::kSoabi) + ".so"));
  fs::remove(proc_ + "/7/root");
  fs::create_directory_symlink(root, proc_ + "/7/root");
  fs::create_directories(proc_ + "/7/ns");
  fs::create_symlink("mnt:[1]", proc_ + "/7/ns/mnt");
  const auto writers = open();
  const auto writer = writers->identify(7);
  ASSERT_TRUE(writer);
  EXPECT_EQ(writer->process().torch.path, "/opt/site/torch");
  const Facet facets[] = {Facet::kTorch, Facet::kTriton, Facet::kPython};
  const Judgement judgement = judge_to_the_end(*writers, writer.get(), facets);
  EXPECT_EQ(judgement.match, Match::kMatches) << judgement.why;

  // In our own mount namespace these paths lead there from here.
  fs::remove(proc_ + "/7/ns/mnt");
  fs::create_symlink(fs::read_symlink("/proc/self/ns/mnt"), proc_ + "/7/ns/mnt");
  const auto others = open();
  const auto neighbour = others->identify(7);
  ASSERT_TRUE(neighbour);
  EXPECT_EQ(neighbour->process().root, "");
  EXPECT_EQ(neighbour->process().torch.path, inside.torch());
  EXPECT_EQ(judge_to_the_end(*others, neighbour.get(), facets).match, Match::kMatches);
}

TEST_F(FakeProcTest, DoesNotKnowThePackageOfAContainerThatIsGone) {
  const Site inside(temporary_ / "container/opt/site");
  add(7, 5, line("/opt/site/torch/lib/libtorch_cpu.so"));
  fs::remove(proc_ + "/7/root");
  fs::create_directory_symlink(temporary_ / "container", proc_ + "/7/root");
  // Reading begins when the process is identified: here it reads nothing before the container is gone.
  const std::string gone = temporary_ / "gone";
  const std::string reader = temporary_ / "reader";
  testing::write_script(reader, "until [ -e " + gone + " ]; do sleep 0.01; done\nexec " PACKAGE_READER_PATH " \"$@\"");
  const auto writers = open(reader);
  const auto writer = writers->identify(7);
  fs::remove_all(temporary_ / "container");
  fs::remove_all(proc_ + "/7");
  write_text(gone, "");
  const Facet facets[] = {Facet::kTorch};
  const Judgement judgement = judge_to_the_end(*writers, writer.get(), facets);
  EXPECT_EQ(judgement.match, Match::kUnknown);
  EXPECT_NE(judgement.why.find("cannot be read"), std::string::npos) << judgement.why;
}

TEST_F(FakeProcTest, TellsAContainersLibcApart) {
  write_text(temporary_ / "container/lib/libc.so.6", "GNU C Library (X) stable release version 2.17, by Roland");
  add(7, 5, line(site_.libtorch()) + line("/lib/libc.so.6"));
  const auto here = open();
  const Facet facets[] = {Facet::kLibc};
  fs::remove(proc_ + "/7/root");
  fs::create_directory_symlink(temporary_ / "container", proc_ + "/7/root");
  const Judgement judgement = judge_to_the_end(*here, here->identify(7).get(), facets);
  EXPECT_EQ(judgement.match, Match::kDiffers);
  EXPECT_NE(judgement.why.find("2.17"), std::string::npos) << judgement.why;
}

TEST_F(FakeProcTest, ClimbsToTheNearestAncestorWithAPackage) {
  add(5, 4, line(site_.libtorch()), "TRITON_F32_DEFAULT=ieee");
  add(6, 5, line("/bin/sh"));
  add(7, 6, line("/usr/bin/ld"));
  const auto writer = open()->identify(7);
  ASSERT_TRUE(writer);
  EXPECT_EQ(writer->process().pid, 5);
}

TEST_F(FakeProcTest, ClimbsAFewStepsOnlyAndNeverInACircle) {
  add(7, 8, line("/bin/a"));
  add(8, 7, line("/bin/b"));
  const auto writer = open()->identify(7);
  ASSERT_TRUE(writer);
  EXPECT_EQ(writer->process().pid, 7);
  EXPECT_FALSE(writer->process().has_package());
}

TEST_F(FakeProcTest, TakesTheFirstEnvironmentWhereItCannotReadMemory) {
  std::string environment;
  for (const char* text : {"HOME=/h", "TRITON_F32_DEFAULT=ieee", "TRITON_F32_DEFAULT=tf32", "=", "", "garbage"}) {
    environment.append(text).push_back('\0');
  }
  add(7, 5, line(site_.libtorch()), environment + "DISABLE_PTXAS_OPT=");
  const auto writer = open()->identify(7);
  ASSERT_TRUE(writer);
  EXPECT_FALSE(writer->environment().live);
  EXPECT_EQ(writer->environment().values,
            (std::map<std::string, std::string>{{"TRITON_F32_DEFAULT", "ieee"}, {"DISABLE_PTXAS_OPT", ""}}));
  EXPECT_EQ(counters_.get("writers.start_environment").get(), 1U);
}

/// It may have set TRITON_DEFAULT_FP_FUSION=0 since: what was made under it is a full hit without it.
TEST_F(FakeProcTest, DoesNotKnowTheVariablesOfAProcessWhoseMemoryItCannotRead) {
  add(7, 5, line(site_.libtorch()) + line(site_.torch() + "/_C." + std::string(testing::kSoabi) + ".so"));
  const auto writers = open();
  const auto writer = writers->identify(7);
  const Facet graph[] = {Facet::kTorch, Facet::kTriton, Facet::kEnvironment};
  const Judgement judgement = judge_to_the_end(*writers, writer.get(), graph);
  EXPECT_EQ(judgement.match, Match::kUnknown);
  EXPECT_NE(judgement.why.find("kernel.yama.ptrace_scope=0"), std::string::npos) << judgement.why;
  const Facet source[] = {Facet::kTorch, Facet::kTriton};
  EXPECT_EQ(judge_to_the_end(*writers, writer.get(), source).match, Match::kMatches) << "no variable changes it";

  const JobFacts job = writers->job_of(7, std::chrono::seconds(20) * inductorfs::testing::kSlowness);
  ASSERT_EQ(job.kind, JobFacts::Kind::kKnown) << job.why;
  EXPECT_TRUE(job.facts.get(Facet::kTorch).known);
  EXPECT_FALSE(job.facts.get(Facet::kEnvironment).known);
  EXPECT_EQ(job.facts.get(Facet::kEnvironment).problem, kMemoryNotRead);
}

TEST_F(FakeProcTest, HasNothingToSayOfAProcessItMayNotSee) {
  add(7, 5, line(site_.libtorch()));
  fs::remove(proc_ + "/7/maps");
  EXPECT_EQ(open()->identify(7), nullptr);
  add(8, 5, "");
  EXPECT_EQ(open()->identify(8), nullptr) << "a kernel thread";
  add(9, 5, line(site_.libtorch()));
  fs::remove(proc_ + "/9/environ");
  EXPECT_EQ(open()->identify(9), nullptr) << "its environment is part of what it is";
}

TEST_F(FakeProcTest, DoesNotTakeGarbageForAProcess) {
  for (const char* text : {"", "7", "7 (x)", "7 (x) S", "7 (x) S a b c", "7 (x S 1 2 3", ")", "\n\n\n"}) {
    add(7, 5, line(site_.libtorch()));
    write_text(proc_ + "/7/stat", text);
    EXPECT_EQ(open()->identify(7), nullptr) << text;
    fs::remove_all(proc_ + "/7");
  }
  add(7, 5, line(site_.libtorch()));
  for (const char* text : {"", "Tgid:\t7", "x\nTgid:\tseven\n", "x\nTgid:\t-7\n", "x\nTgid:\t99999999999999\n"}) {
    write_text(proc_ + "/7/status", text);
    EXPECT_EQ(open()->identify(7), nullptr) << text;
  }
}

TEST_F(FakeProcTest, TakesOnlyPackagesOfTheRightForm) {
  add(7, 5,
      line("/opt/libtorch/lib/libtorch_cpu.so") + line("/x/torch/libtorch_cpu.so") + line("libtorch_cpu.so") +
          line("/lib/libtorch_cpu.so") + line("/torchlib/libtorch_cpu.so") + line("/x/triton/libtriton.so") +
          line("/_C/libtriton.so") + line("/x/nottorch/lib/libtorch.so"));
  const auto writer = open()->identify(7);
  ASSERT_TRUE(writer);
  EXPECT_FALSE(writer->process().has_package()) << writer->process().torch.path << writer->process().triton.path;
}

TEST_F(FakeProcTest, KnowsADistributionsTorchByItsExtensionModule) {
  const std::string module = "/_C." + std::string(testing::kSoabi) + ".so";
  add(7, 5,
      line("/usr/lib/libtorch_cpu.so.2.6") + line("/usr/lib/python3/functorch" + module) +
          line(site_.torch() + module));
  const auto writer = open()->identify(7);
  ASSERT_TRUE(writer);
  EXPECT_EQ(writer->process().torch.path, site_.torch());
  EXPECT_EQ(writer->process().soabi, testing::kSoabi);
}

TEST_F(FakeProcTest, StopsAtTheLimitOfMappedFiles) {
  std::string maps;
  for (int i = 0; i < 100'000; ++i)
    maps += line("/lib/some/long/path/of/a/library/that/is/not/torch/libnothing.so.1.2.3.4.5");
  maps += std::string(20'000'000, 'x');
  add(7, 5, line(site_.libtorch()) + maps + line(site_.libtriton()));
  const auto writer = open()->identify(7);
  ASSERT_TRUE(writer);
  EXPECT_FALSE(writer->process().whole);
  EXPECT_EQ(writer->process().torch.path, site_.torch());
}

TEST_F(FakeProcTest, IsNotHeldUpByWildPointers) {
  add(7, 5, line("/proc/self/exe") + line(site_.libtorch()));
  // `mem` is small, so everything that its array points to is out of reach, or garbage.
  std::string memory(1 << 16, '\xff');
  for (size_t i = 0; i < 8192; ++i) {
    const uint64_t pointer = i * 0x9e3779b97f4a7c15ULL;
    std::memcpy(memory.data() + i * 8, &pointer, 8);
  }
  write_text(proc_ + "/7/mem", memory);
  const ProcReader reader(proc_);
  auto opened = reader.open(7, {100, 0, 0}, Opening::kBoth);
  ASSERT_TRUE(opened);
  for (const uint64_t address : {uint64_t{8}, uint64_t{16}, uint64_t{1} << 15, ~uint64_t{0}, uint64_t{1} << 63}) {
    opened->process.environ_address = address;
    const auto environment = environment_of(*opened);
    ASSERT_TRUE(environment);
    EXPECT_TRUE(environment->values.empty());
  }
}

TEST_F(FakeProcTest, ReadsTheArrayInMemory) {
  add(7, 5, line(site_.libtorch()));
  std::string memory(1 << 14, '\0');
  const auto put_word = [&memory](size_t at, uint64_t value) { std::memcpy(memory.data() + at, &value, 8); };
  const auto put_text = [&memory](size_t at, const std::string& text) { text.copy(memory.data() + at, text.size()); };
  put_word(64, 128);
  const uint64_t pointers[] = {12000, 1000, 1100, 1200, 8190, 16380, 1 << 20, 0};
  for (size_t i = 0; i < std::size(pointers); ++i) put_word(128 + i * 8, pointers[i]);
  put_text(12000, "TRITON_F32_DEFAULT=first");
  put_text(1000, "TRITON_F32_DEFAULT=second");
  put_text(1100, "HOME=/h");
  put_text(1200, "DISABLE_PTXAS_OPT=1");
  put_text(8190, "PTXAS_OPTIONS=across a page");
  put_text(16380, "CPAT");
  write_text(proc_ + "/7/mem", memory);
  auto opened = ProcReader(proc_).open(7, {100, 0, 0}, Opening::kBoth);
  ASSERT_TRUE(opened);
  opened->process.environ_address = 64;
  const auto environment = environment_of(*opened);
  ASSERT_TRUE(environment);
  EXPECT_TRUE(environment->live);
  EXPECT_EQ(environment->values,
            (std::map<std::string, std::string>{
                {"TRITON_F32_DEFAULT", "first"}, {"DISABLE_PTXAS_OPT", "1"}, {"PTXAS_OPTIONS", "across a page"}}));
}

/// /proc says of a process that hides itself that it is root's: its packages would be read with root's rights.
TEST(ProcReader, NamesTheUserOfAProcessThatHidesItself) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("the right to become another user");
  std::optional<testing::OtherUser> other;
  other.emplace(1001, 1002, [] { return ::prctl(PR_SET_DUMPABLE, 0) == 0; });
  ASSERT_TRUE(other->is_ready());
  const pid_t child = other->pid();
  const ProcReader reader("/proc");
  struct stat status {};
  EXPECT_EQ(::stat(("/proc/" + std::to_string(child) + "/stat").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 0U) << "as the kernel shows it";
  const auto stat = reader.stat_of(child);
  EXPECT_TRUE(stat && stat->owner == 1001);
  const auto user = reader.user_of(child);
  EXPECT_TRUE(user && user->user == 1001 && user->group == 1002);
  other.reset();
  EXPECT_FALSE(reader.user_of(child)) << "nobody's files are read as root's";
}

/// A number that is cut in the middle is another group's.
TEST_F(FakeProcTest, DropsAGroupWhoseNumberIsCut) {
  add(7, 5, "");
  std::string text = "Name:\tx\nUid:\t1001\t1001\t1001\t1001\nGid:\t7\t7\t7\t7\nGroups:\t";
  for (int group = 0; group < 1500; ++group) text += "427700 ";
  write_text(proc_ + "/7/status", text + "\nCapEff:\t000001ffffffffff\n");
  const auto user = ProcReader(proc_).user_of(7);
  ASSERT_TRUE(user);
  EXPECT_FALSE(user->groups.empty());
  EXPECT_TRUE(std::ranges::all_of(user->groups, [](gid_t group) { return group == 427700; }));
  EXPECT_FALSE(user->reads_all) << "what it may do stands behind that";
}

/// A container that ends at once: below what was mounted in it lies another torch, the image's own.
TEST(ProcReader, HoldsWhatIsMountedInANamespaceThatEnds) {
  INDUCTORFS_NEEDS_OPENAT2();
  const TemporaryDirectory temporary;
  write_text(temporary / "version.py", "below");
  write_text(temporary / "mounted", "mounted");
  int ready[2];
  int life[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(life), 0);
  const std::string from = temporary / "mounted";
  const std::string to = temporary / "version.py";
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::close(life[1]);
    const bool done = ::unshare(CLONE_NEWNS) == 0 && ::mount("", "/", "", MS_REC | MS_PRIVATE, nullptr) == 0 &&
                      ::mount(from.c_str(), to.c_str(), "", MS_BIND, nullptr) == 0;
    char byte = done ? 'y' : 'n';
    (void)!::write(ready[1], &byte, 1);
    (void)!::read(life[0], &byte, 1);
    ::_exit(0);
  }
  char byte = 'n';
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  const ProcReader reader("/proc");
  Process process;
  process.pid = child;
  process.root = "/proc/" + std::to_string(child) + "/root";
  const auto stat = reader.stat_of(child);
  if (stat) process.identity = stat->identity;
  const auto held = reader.hold(process);
  for (const int end : {life[0], life[1], ready[0], ready[1]}) (void)::close(end);
  (void)::waitpid(child, nullptr, 0);
  if (byte != 'y') INDUCTORFS_LACKS("the right to make a mount namespace");
  ASSERT_TRUE(held);
  const auto root = InRoot::open("/proc/self/fd/" + std::to_string(held->root.get()));
  ASSERT_TRUE(root);
  EXPECT_EQ(root->read_regular(to, 100).value_or("absent"), "mounted");
  EXPECT_FALSE(reader.hold(process)) << "it has ended";
}

/// Where such a program names `environ` itself, the one of libc is none that anybody uses.
TEST(OpenedProcess, HasNoVariablesWhereItsProgramMayNotBeRead) {
  INDUCTORFS_NEEDS_OWN_PROC();
  const TemporaryDirectory temporary;
  const Site site(temporary / "site");
  testing::Program program;
  site.load_torch(program);
  const ProcReader reader("/proc");
  const auto stat = reader.stat_of(program.pid());
  ASSERT_TRUE(stat);
  for (const bool is_readable : {true, false}) {
    auto opened = reader.open(program.pid(), stat->identity, Opening::kMaps);
    ASSERT_TRUE(opened);
    if (!is_readable) opened->executable.reset();
    ASSERT_TRUE(look_at(*opened));
    EXPECT_TRUE(opened->process.has_package());
    EXPECT_EQ(opened->process.environ_address != 0, is_readable);
  }
}

TEST(FindEnviron, FindsTheVariableOfTheCLibrary) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  uint64_t start = 0;
  std::string libc;
  while (libc.empty() && std::getline(maps, line)) {
    if (line.find("/libc.so.6") == std::string::npos && line.find("/libc-2") == std::string::npos) continue;
    start = std::stoull(line, nullptr, 16);
    libc = line.substr(line.find('/'));
  }
  ASSERT_FALSE(libc.empty());
  const auto place = environ_in(libc);
  ASSERT_TRUE(place);
  EXPECT_FALSE(place->fixed);
  // Either libc's own is in use, or this program has a copy and libc's was left at its first value.
  const auto copy = environ_in("/proc/self/exe");
  if (!copy) {
    EXPECT_EQ(*reinterpret_cast<char***>(start + place->offset), environ);
  }
}

TEST(FindEnviron, RefusesWhatIsNoProgram) {
  const TemporaryDirectory temporary;
  const std::string path = temporary / "file";
  for (const std::string& text : {std::string(),
                                  std::string("\x7f"
                                              "ELF"),
                                  std::string(64, '\xff'), std::string(4096, '\0')}) {
    write_text(path, text);
    EXPECT_FALSE(environ_in(path));
  }
  EXPECT_FALSE(environ_in(temporary / "absent"));
  EXPECT_FALSE(environ_in(temporary.path()));
  EXPECT_FALSE(environ_in("/dev/null"));
}

/// Every byte of the headers, changed one at a time: an answer or none, and never a read past what is there.
TEST(FindEnviron, SurvivesDamagedHeaders) {
  const TemporaryDirectory temporary;
  std::string program = testing::read_text(WRITERS_PROGRAM_PATH);
  ASSERT_GT(program.size(), 64U);
  const std::string path = temporary / "damaged";
  for (size_t i = 0; i < 64; ++i) {
    for (const char value : {'\0', '\x7f', '\xff'}) {
      std::string damaged = program.substr(0, 1 << 16);
      damaged[i] = value;
      write_text(path, damaged);
      (void)environ_in(path);
    }
  }
}

}  // namespace
}  // namespace inductorfs::fingerprint
