// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/facts/named_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "fingerprint/facts/facts.h"
#include "inductorfs/fingerprint/variables.h"
#include "writers_fixture.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::Environment;
using testing::facts_of;
using testing::judge_to_the_end;
using testing::Program;
using testing::Site;
using testing::write_text;
namespace fs = std::filesystem;

const std::vector<Facet> kGraphs = {Facet::kTorch, Facet::kTriton, Facet::kPython, Facet::kEnvironment};
const std::vector<Facet> kKernels = {Facet::kTriton, Facet::kGpuArch, Facet::kEnvironment};
const std::vector<Facet> kLibraries = {Facet::kTorch, Facet::kPython, Facet::kLibc, Facet::kCpu, Facet::kEnvironment};
constexpr const char* kPtxas = "TRITON_PTXAS_PATH";

std::string elf(const std::string& text) {
  return "\x7f"
         "ELF" +
         text;
}
std::string content(const std::string& text) { return content_value(codec::digest_of(elf(text))); }
std::string own_ptxas(const Site& site) { return site.triton() + "/backends/nvidia/bin/ptxas"; }

/// A mount whose Triton has a ptxas, and a job that names one.
class NamedFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { INDUCTORFS_NEEDS_OWN_PROC(); }
  NamedFilesTest() { write_text(own_ptxas(site_), elf("ptxas 13.2")); }

  void open(const Environment& declared = {}, testing::OptionsOfTests options = testing::writers_options()) {
    ProbeOptions probe;
    probe.environment = declared;
    Fingerprint facts = facts_of(site_);
    facts.set(Facet::kEnvironment, environment_fact(probe, facts));
    options.environment_age = Milliseconds{0};
    writers_ = testing::open_patient_writers(options, facts, counters_);
  }
  Judgement judge(const Environment& environment, const std::vector<Facet>& facets = kGraphs) {
    Program program(environment);
    site_.load_torch(program);
    return judge_to_the_end(*writers_, writers_->identify(program.pid()).get(), facets);
  }
  /// The reason for which the artefacts of a job stay private because its ptxas is not known.
  std::string not_known(const std::string& path) {
    const Judgement judgement = judge({{kPtxas, path}});
    EXPECT_EQ(judgement.match, Match::kUnknown) << judgement.why;
    EXPECT_NE(judgement.why.find(kPtxas), std::string::npos) << judgement.why;
    return judgement.why;
  }
  std::string file(const std::string& name, const std::string& text) {
    write_text(temporary_ / name, text);
    return temporary_ / name;
  }

  TemporaryDirectory temporary_;
  Site site_{temporary_ / "site"};
  Counters counters_;
  std::unique_ptr<testing::WritersOfMount> writers_;
};

TEST_F(NamedFilesTest, ACopyOfTheUsualToolMeansTheSame) {
  open();
  const std::string copy = file("cuda/bin/ptxas", elf("ptxas 13.2"));
  const Judgement judgement = judge({{kPtxas, copy}});
  EXPECT_EQ(judgement.match, Match::kMatches) << judgement.why;
  EXPECT_EQ(judge({{kPtxas, own_ptxas(site_)}}).match, Match::kMatches) << "the file itself";
}

TEST_F(NamedFilesTest, AToolOfOtherContentIsAnotherEnvironment) {
  open();
  const std::string other = file("cuda/bin/ptxas", elf("ptxas 12.8"));
  const Judgement judgement = judge({{kPtxas, other}});
  EXPECT_EQ(judgement.match, Match::kDiffers);
  EXPECT_NE(judgement.why.find("TRITON_PTXAS_PATH is \"" + other + "\" (" + content("ptxas 12.8") +
                               ") in the writer and unset for this mount"),
            std::string::npos)
      << judgement.why;
  EXPECT_EQ(judge({{kPtxas, other}}, kKernels).match, Match::kMatches) << "Triton's own key holds it";
  EXPECT_EQ(judge({{kPtxas, other}}, kLibraries).match, Match::kMatches) << "no C++ library depends on it";
}

TEST_F(NamedFilesTest, AMountDeclaresAToolByItsContent) {
  open({{kPtxas, file("mine/ptxas", elf("ptxas 12.8"))}});
  EXPECT_EQ(judge({{kPtxas, file("job/ptxas", elf("ptxas 12.8"))}}).match, Match::kMatches);
  const Judgement judgement = judge({});
  EXPECT_EQ(judgement.match, Match::kDiffers);
  EXPECT_NE(judgement.why.find("TRITON_PTXAS_PATH is unset in the writer"), std::string::npos) << judgement.why;
  EXPECT_EQ(judge({{kPtxas, own_ptxas(site_)}}).match, Match::kDiffers);

  open({{kPtxas, content("ptxas 12.8")}});
  EXPECT_EQ(judge({{kPtxas, file("job/ptxas", elf("ptxas 12.8"))}}).match, Match::kMatches)
      << "a host without the file";
}

TEST_F(NamedFilesTest, AToolThatIsReplacedIsReadAgain) {
  open();
  const std::string path = file("cuda/bin/ptxas", elf("ptxas 13.2"));
  Program program(Environment{{kPtxas, path}});
  site_.load_torch(program);
  const auto judge_it = [&] { return judge_to_the_end(*writers_, writers_->identify(program.pid()).get(), kGraphs); };
  EXPECT_EQ(judge_it().match, Match::kMatches) << judge_it().why;
  fs::rename(file("new", elf("ptxas 13.3, longer")), path);
  EXPECT_EQ(judge_it().match, Match::kDiffers);
}

TEST_F(NamedFilesTest, AFileThatCannotBeReadIsNotKnown) {
  open();
  const std::string absent = temporary_ / "absent";
  EXPECT_NE(not_known(absent).find(absent + " does not exist"), std::string::npos);
  EXPECT_NE(not_known("ptxas").find("is not an absolute path"), std::string::npos);
  EXPECT_NE(not_known(temporary_.path()).find("is not a regular file"), std::string::npos);
  EXPECT_NE(not_known(file("script", "#!/bin/sh\nexec ptxas \"$@\"\n")).find("is no ELF program"), std::string::npos);
  const std::string fifo = temporary_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0666), 0);
  EXPECT_NE(not_known(fifo).find("is not a regular file"), std::string::npos);
  const std::string endless = file("endless", elf("x"));
  ASSERT_EQ(truncate(endless.c_str(), off_t{1} << 43), 0);
  EXPECT_NE(not_known(endless).find("has more than"), std::string::npos);
  EXPECT_EQ(judge({{kPtxas, absent}}, kLibraries).match, Match::kMatches) << "no C++ library depends on it";
}

TEST_F(NamedFilesTest, AMountThatDoesNotKnowItsToolSharesNothingThatDependsOnIt) {
  open({{kPtxas, temporary_ / "absent"}});
  const Judgement judgement = judge({{kPtxas, temporary_ / "absent"}});
  EXPECT_EQ(judgement.match, Match::kUnknown);
  EXPECT_NE(judgement.why.find("this mount does not know what its TRITON_PTXAS_PATH names"), std::string::npos)
      << judgement.why;
  EXPECT_EQ(judge({}, kLibraries).match, Match::kMatches);
}

TEST_F(NamedFilesTest, TheToolThatTorchNamesInEveryJobMeansTheSame) {
  write_text(site_.torch() + "/bin/ptxas", elf("ptxas of torch"));
  open();
  EXPECT_EQ(judge({{kPtxas, site_.torch() + "/bin/ptxas"}}).match, Match::kMatches);
  EXPECT_EQ(judge({{kPtxas, file("copy", elf("ptxas of torch"))}}).match, Match::kMatches);
  EXPECT_EQ(judge({{kPtxas, own_ptxas(site_)}}).match, Match::kDiffers) << "torch would not take Triton's own";
  const Site other(temporary_ / "other");
  write_text(other.torch() + "/bin/ptxas", elf("ptxas of another torch"));
  EXPECT_EQ(judge({{kPtxas, other.torch() + "/bin/ptxas"}}).match, Match::kDiffers) << "the name alone says nothing";
}

TEST_F(NamedFilesTest, OtherFilesAreComparedInTheSameWay) {
  const std::string bitcode = "BC\xc0\xde";
  write_text(site_.triton() + "/backends/nvidia/lib/libdevice.10.bc", bitcode + "device functions");
  open();
  EXPECT_EQ(judge({{"TRITON_LIBDEVICE_PATH", file("a.bc", bitcode + "device functions")}}).match, Match::kMatches);
  EXPECT_EQ(judge({{"TRITON_LIBDEVICE_PATH", file("b.bc", bitcode + "others")}}).match, Match::kDiffers);
  // This Triton has no ptxas-blackwell of its own: what it would take without the variable is nothing.
  EXPECT_EQ(judge({{"TRITON_PTXAS_BLACKWELL_PATH", file("c", elf("ptxas 13.2"))}}).match, Match::kDiffers);
}

TEST_F(NamedFilesTest, AReaderThatDoesNotEndIsGivenUp) {
  testing::OptionsOfTests options = testing::writers_options();
  open({}, options);
  EXPECT_EQ(judge({}).match, Match::kMatches);
  options.package_deadline = Milliseconds{300};
  options.package_reader = temporary_ / "reader";
  const std::string fifo = temporary_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  testing::write_script(options.package_reader, "read line < " + fifo);
  open({}, options);
  const std::vector<Facet> facets = {Facet::kEnvironment, Facet::kTorch, Facet::kTriton};
  const Judgement judgement = judge({{kPtxas, file("ptxas", elf("ptxas 13.2"))}}, facets);
  EXPECT_EQ(judgement.match, Match::kUnknown);
  EXPECT_NE(judgement.why.find("could not be read within 300 ms"), std::string::npos) << judgement.why;
}

TEST_F(NamedFilesTest, LinksOfAContainerDoNotLeadOutOfIt) {
  const std::string root = temporary_ / "container";
  write_text(root + "/cuda-13/bin/ptxas", elf("inside"));
  fs::create_directories(root + "/usr/local");
  fs::create_directory_symlink("/cuda-13", root + "/usr/local/cuda");
  fs::create_symlink(file("outside", elf("outside")), root + "/stray");
  KeyMemory memory("");
  const auto inside = InRoot::open(root);
  ASSERT_TRUE(inside);
  const Fact fact =
      named_files_fact({{kPtxas, "/usr/local/cuda/bin/ptxas", {}}}, *inside, {"/torch", "/triton"}, memory);
  EXPECT_EQ(fact.value, std::string(kPtxas) + "=" + content("inside"));
  const Fact stray = named_files_fact({{kPtxas, "/stray", {}}}, *inside, {"/torch", "/triton"}, memory);
  EXPECT_EQ(stray.value, std::string(kPtxas) + "=" + not_known_value("/stray does not exist"));
}

TEST(NamedValue, IsNotKnownForAFileThatTheReaderDidNotName) {
  const Fact fact = known_fact(std::string(kPtxas) + "=" + std::string(kUsualFile), "");
  EXPECT_EQ(named_value(fact, kPtxas), "");
  EXPECT_EQ(named_value(fact, "TRITON_LIBDEVICE_PATH"), not_known_value("it was not read"));
  EXPECT_EQ(named_value(unknown_fact("too late"), kPtxas), not_known_value("too late"));
}

TEST(EnvironmentFact, StaysToTheByteWithoutSuchVariables) {
  ProbeOptions options;
  const Fact none = environment_fact(options, Fingerprint());
  EXPECT_EQ(none.value, "none");
  EXPECT_EQ(none.source, "declared for the mount");
  EXPECT_EQ(none.details, "");
  options.environment = {{"PTXAS_OPTIONS", "-O1"}, {"HOME", "/h"}};
  EXPECT_EQ(environment_fact(options, Fingerprint()).value, "PTXAS_OPTIONS=-O1");
}

TEST(EnvironmentFact, HasTheContentOfAToolAndSaysWhereItIs) {
  const TemporaryDirectory temporary;
  const Site site(temporary / "site");
  write_text(own_ptxas(site), elf("usual"));
  write_text(temporary / "copy", elf("usual"));
  write_text(temporary / "other", elf("other"));
  ProbeOptions options;
  options.reader.program = PACKAGE_READER_PATH;
  options.environment = {{kPtxas, temporary / "copy"}, {"PTXAS_OPTIONS", "-O1"}};
  const Fingerprint facts = facts_of(site);
  const Fact copy = environment_fact(options, facts);
  EXPECT_EQ(copy.value, "PTXAS_OPTIONS=-O1");
  EXPECT_EQ(values_of(copy.details, kNamedFileKey), std::vector<std::string>{temporary / "copy"});
  options.environment = {{kPtxas, own_ptxas(site)}};
  EXPECT_EQ(environment_fact(options, facts).value, "none");
  write_text(site.torch() + "/bin/ptxas", elf("of torch"));
  options.environment = {{kPtxas, site.torch() + "/bin/ptxas"}};
  EXPECT_EQ(environment_fact(options, facts).value, "none") << "torch names it in every job";
  fs::remove_all(site.torch() + "/bin");
  options.environment = {{kPtxas, temporary / "other"}, {"PTXAS_OPTIONS", "-O1"}};
  EXPECT_EQ(environment_fact(options, facts).value, "PTXAS_OPTIONS=-O1\nTRITON_PTXAS_PATH=" + content("other"));
  options.environment[kPtxas] = temporary / "absent";
  EXPECT_EQ(unknown_file_in(environment_fact(options, facts).value),
            std::string(kPtxas) + ": " + (temporary / "absent") + " does not exist");
}

}  // namespace
}  // namespace inductorfs::fingerprint
