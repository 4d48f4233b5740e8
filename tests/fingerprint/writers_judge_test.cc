// SPDX-License-Identifier: Apache-2.0
#include <gnu/libc-version.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "fingerprint/facts/facts.h"
#include "fingerprint/processes/writers_packages.h"
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

const std::vector<Facet> kGraphs = {Facet::kTorch,  Facet::kTriton, Facet::kCuda,       Facet::kGpu,
                                    Facet::kCpuIsa, Facet::kPython, Facet::kEnvironment};
const std::vector<Facet> kKernels = {Facet::kTriton, Facet::kGpuArch, Facet::kEnvironment};
const std::vector<Facet> kLibraries = {Facet::kTorch, Facet::kPython, Facet::kLibc, Facet::kCpu, Facet::kEnvironment};
const std::vector<Facet> kServed = {Facet::kTorch, Facet::kTriton, Facet::kEngine};

class WritersJudgeTest : public ::testing::Test {
 protected:
  void SetUp() override { INDUCTORFS_NEEDS_OWN_PROC(); }
  void open(const Fingerprint& facts) {
    testing::OptionsOfTests options = testing::writers_options();
    options.environment_age = Milliseconds{0};
    writers_ = testing::open_patient_writers(options, facts, counters_);
  }
  Judgement judge(const Program& program, const std::vector<Facet>& facets) {
    return judge_to_the_end(*writers_, writers_->identify(program.pid()).get(), facets);
  }
  Judgement glance(const Program& program, const std::vector<Facet>& facets) {
    return writers_->glance(writers_->identify(program.pid()).get(), facets);
  }

  TemporaryDirectory temporary_;
  Site site_{temporary_ / "site"};
  Counters counters_;
  std::unique_ptr<testing::WritersOfMount> writers_;
};

TEST_F(WritersJudgeTest, FitsTheMountsOwnEnvironment) {
  open(facts_of(site_));
  Program program;
  site_.load_torch(program);
  EXPECT_EQ(glance(program, kGraphs).match, Match::kLater) << "the package was not read yet";
  EXPECT_EQ(judge(program, kGraphs).match, Match::kMatches) << judge(program, kGraphs).why;
  EXPECT_EQ(glance(program, kGraphs).match, Match::kMatches);
  EXPECT_EQ(glance(program, kKernels).match, Match::kMatches);
  EXPECT_EQ(glance(program, kLibraries).match, Match::kMatches) << "its C library is this process's own";
  EXPECT_EQ(judge(program, kLibraries).match, Match::kMatches) << judge(program, kLibraries).why;
}

TEST_F(WritersJudgeTest, FitsAnEqualTorchAtAnotherPath) {
  open(facts_of(site_));
  const Site other(temporary_ / "elsewhere/site");
  Program program;
  other.load_torch(program);
  EXPECT_EQ(judge(program, kGraphs).match, Match::kMatches) << judge(program, kGraphs).why;
}

TEST_F(WritersJudgeTest, KnowsATorchWithoutRecordByItsFiles) {
  site_.remove_record();
  const Fact mine = facts_of(site_).get(Facet::kTorch);
  ASSERT_TRUE(mine.known) << mine.problem;
  EXPECT_NE(mine.details.find("known_by=its files"), std::string::npos) << mine.details;
  open(facts_of(site_));
  const Site same(temporary_ / "same/site");
  same.remove_record();
  Program program;
  same.load_torch(program);
  EXPECT_EQ(judge(program, kGraphs).match, Match::kMatches) << judge(program, kGraphs).why;
  const Site patched(temporary_ / "patched/site");
  patched.remove_record();
  write_text(patched.libtorch(), "TORCJ");
  Program other;
  patched.load_torch(other);
  const Judgement judgement = judge(other, kGraphs);
  EXPECT_EQ(judgement.match, Match::kDiffers);
  EXPECT_NE(judgement.why.find("record="), std::string::npos) << judgement.why;
}

TEST_F(WritersJudgeTest, KnowsATorchByItsFilesWhereNoRecordIsToBeBelieved) {
  const Site bare(temporary_ / "bare/site");
  bare.remove_record();
  const std::string value = facts_of(bare).get(Facet::kTorch).value;
  ASSERT_FALSE(value.empty());
  // What an interrupted upgrade leaves, and an installation that only names the place of its source.
  write_text(temporary_ / "site/torch-9.9.8.dist-info/RECORD", "torch/a.py,sha256=AAB,2\n");
  EXPECT_EQ(facts_of(site_).get(Facet::kTorch).value, value);
  site_.remove_record();
  write_text(temporary_ / "site/torch-9.9.8.dist-info/RECORD", "__editable___torch_finder.py,sha256=AAC,9\n");
  EXPECT_EQ(facts_of(site_).get(Facet::kTorch).value, value);
}

TEST_F(WritersJudgeTest, TellsATorchOfEqualVersionAndOtherContentApart) {
  open(facts_of(site_));
  const Site other(temporary_ / "other");
  write_text(other.torch() + "/b/c.py", "CHANGED");
  Program program;
  other.load_torch(program);
  const Judgement judgement = judge(program, kGraphs);
  EXPECT_EQ(judgement.match, Match::kDiffers);
  EXPECT_NE(judgement.why.find(other.torch()), std::string::npos) << judgement.why;
  EXPECT_NE(judgement.why.find("key="), std::string::npos) << judgement.why;
  EXPECT_EQ(glance(program, kGraphs).match, Match::kDiffers) << "known now";
  EXPECT_EQ(judge(program, kKernels).match, Match::kMatches) << "its Triton is the same";
}

/// A hard link farm (uv, conda): the same libtorch_cpu.so, another module beside it.
TEST_F(WritersJudgeTest, IsNotMisledByAHardLinkOfTheMountsLibrary) {
  open(facts_of(site_));
  const Site other(temporary_ / "other");
  fs::remove(other.libtorch());
  fs::create_hard_link(site_.libtorch(), other.libtorch());
  write_text(other.torch() + "/a.py", "PATCHED");
  Program program;
  other.load_torch(program);
  EXPECT_EQ(judge(program, kGraphs).match, Match::kDiffers);
}

TEST_F(WritersJudgeTest, NoticesThatTheMountsOwnTorchWasUpgradedInPlace) {
  const Fingerprint facts = facts_of(site_);
  open(facts);
  write_text(site_.torch() + "/version.py", "__version__ = '9.9.10'\n");
  Program program;
  site_.load_torch(program);
  EXPECT_EQ(judge(program, kGraphs).match, Match::kDiffers);
  writers_->set_facts(facts_of(site_));
  EXPECT_EQ(judge(program, kGraphs).match, Match::kMatches) << judge(program, kGraphs).why;
}

TEST_F(WritersJudgeTest, DoesNotKnowATorchThatWasReplacedUnderTheJob) {
  open(facts_of(site_));
  Program program;
  site_.load_torch(program);
  fs::remove(site_.libtorch());
  write_text(site_.libtorch(), "ANOTHER");
  const Judgement judgement = judge(program, kGraphs);
  EXPECT_EQ(judgement.match, Match::kUnknown);
  EXPECT_NE(judgement.why.find("replaced"), std::string::npos) << judgement.why;
}

TEST_F(WritersJudgeTest, TellsAnotherTritonApart) {
  open(facts_of(site_));
  const Site other(temporary_ / "other");
  write_text(other.libtriton(), "OTHER");
  Program program;
  other.load_torch(program);
  program.tell("map " + other.libtriton());
  const Judgement judgement = judge(program, kKernels);
  EXPECT_EQ(judgement.match, Match::kDiffers);
  EXPECT_NE(judgement.why.find("triton"), std::string::npos);
}

TEST_F(WritersJudgeTest, CountsTheLackOfTritonAsAnEnvironmentToo) {
  Site plain(temporary_ / "plain");
  fs::remove_all(plain.triton());
  Program program;
  plain.load_torch(program);
  open(facts_of(site_));
  EXPECT_EQ(judge(program, kGraphs).match, Match::kDiffers);
  Fingerprint facts = facts_of(plain);
  facts.set(Facet::kTriton, known_fact("none", "test"));
  open(facts);
  EXPECT_EQ(judge(program, kGraphs).match, Match::kMatches) << judge(program, kGraphs).why;
  Program with;
  site_.load_torch(with);
  EXPECT_EQ(judge(with, kKernels).match, Match::kDiffers) << "the mount knows no Triton";
}

TEST_F(WritersJudgeTest, TellsAnotherEngineApartForWhatDependsOnEngines) {
  site_.install_vllm("AAA");
  open(facts_of(site_));
  Program program;
  site_.load_torch(program);
  EXPECT_EQ(glance(program, kServed).match, Match::kLater) << "it was not read yet";
  EXPECT_EQ(judge(program, kServed).match, Match::kMatches) << judge(program, kServed).why;
  const Site other(temporary_ / "other");
  other.install_vllm("AAB");
  Program different;
  other.load_torch(different);
  const Judgement judgement = judge(different, kServed);
  EXPECT_EQ(judgement.match, Match::kDiffers);
  EXPECT_NE(judgement.why.find("vllm=0.32.0 "), std::string::npos) << judgement.why;
  EXPECT_EQ(judge(different, kGraphs).match, Match::kMatches) << "torch's own artefacts are the same";
  const Site plain(temporary_ / "plain");
  Program without;
  plain.load_torch(without);
  EXPECT_EQ(judge(without, kServed).match, Match::kDiffers);
  EXPECT_EQ(judge(without, kGraphs).match, Match::kMatches);
  Program triton;
  triton.tell("map " + site_.libtriton());
  EXPECT_EQ(judge(triton, {Facet::kEngine}).match, Match::kUnknown);
}

/// A virtual environment over another installation has its engine elsewhere than its torch.
TEST_F(WritersJudgeTest, TakesAnEngineThatIsLoadedFromElsewhere) {
  const Site venv(temporary_ / "vllm/lib/site-packages");
  venv.install_vllm("AAA");
  open(facts_of(venv));
  Program program;
  site_.load_torch(program);
  EXPECT_EQ(judge(program, kServed).match, Match::kDiffers) << "there is none beside its torch";
  Program served;
  served.tell("map " + venv.libvllm());
  site_.load_torch(served);
  EXPECT_EQ(judge(served, kServed).match, Match::kMatches) << judge(served, kServed).why;
  fs::remove(venv.libvllm());
  write_text(venv.libvllm(), "D");
  Counters counters;
  const auto later = testing::open_patient_writers(testing::writers_options(), facts_of(venv), counters);
  const Judgement judgement = judge_to_the_end(*later, later->identify(served.pid()).get(), kServed);
  EXPECT_EQ(judgement.match, Match::kUnknown);
  EXPECT_NE(judgement.why.find("/site-packages/vllm was replaced after it was loaded"), std::string::npos)
      << judgement.why;
}

TEST_F(WritersJudgeTest, TakesNoCacheAndNoPackageInAPackageForAnEngine) {
  open(facts_of(site_));
  Program program;
  write_text(temporary_ / "cache/vllm/rank/x.so", "X");
  write_text(temporary_ / "other/flashinfer/__init__.py", "");
  write_text(temporary_ / "other/flashinfer/deep_gemm/__init__.py", "");
  write_text(temporary_ / "other/flashinfer/deep_gemm/_C.so", "X");
  program.tell("map " + (temporary_ / "cache/vllm/rank/x.so"));
  site_.load_torch(program);
  EXPECT_EQ(judge(program, kServed).match, Match::kMatches) << judge(program, kServed).why;
  Program other;
  other.tell("map " + (temporary_ / "other/flashinfer/deep_gemm/_C.so"));
  site_.load_torch(other);
  const auto writer = writers_->identify(other.pid());
  ASSERT_EQ(writer->process().engines.size(), 1U);
  EXPECT_EQ(writer->process().engines.front().path, temporary_ / "other/flashinfer");
}

TEST_F(WritersJudgeTest, TakesAWriterOfTritonAloneForItsKernels) {
  open(facts_of(site_));
  Program program;
  program.tell("map " + site_.libtriton());
  EXPECT_EQ(judge(program, kKernels).match, Match::kMatches) << judge(program, kKernels).why;
  EXPECT_EQ(judge(program, kGraphs).match, Match::kUnknown) << "it says nothing of torch";
}

TEST_F(WritersJudgeTest, DoesNotKnowAProcessWithoutTorchOrTriton) {
  open(facts_of(site_));
  Program program;
  const Judgement judgement = judge(program, kGraphs);
  EXPECT_EQ(judgement.match, Match::kUnknown);
  EXPECT_FALSE(judgement.why.empty());
  EXPECT_EQ(judge_to_the_end(*writers_, nullptr, kGraphs).match, Match::kUnknown);
  EXPECT_EQ(writers_->glance(nullptr, kGraphs).match, Match::kUnknown);
  EXPECT_FALSE(writers_->glance(nullptr, kGraphs).why.empty());
}

TEST_F(WritersJudgeTest, NamesTheVariableAndBothValues) {
  open(facts_of(site_));
  Program program;
  site_.load_torch(program);
  ASSERT_EQ(judge(program, kGraphs).match, Match::kMatches);
  program.tell("set TRITON_DEFAULT_FP_FUSION 0");
  const Judgement judgement = glance(program, kGraphs);
  EXPECT_EQ(judgement.match, Match::kDiffers);
  EXPECT_NE(judgement.why.find("TRITON_DEFAULT_FP_FUSION is \"0\" in the writer and unset for this mount"),
            std::string::npos)
      << judgement.why;
  EXPECT_EQ(judge(program, kKernels).match, Match::kMatches) << "Triton's own key holds it";
  EXPECT_EQ(judge(program, kLibraries).match, Match::kMatches) << "no C++ library depends on it";
  program.tell("set TRITON_DEFAULT_FP_FUSION true");
  EXPECT_EQ(judge(program, kGraphs).match, Match::kMatches) << "the same as unset";
}

TEST_F(WritersJudgeTest, HoldsTheWriterAgainstWhatTheMountDeclares) {
  open(facts_of(site_, {{"TRITON_DEFAULT_FP_FUSION", "off"}, {"PTXAS_OPTIONS", "-O1"}}));
  Program program(
      Environment{{"TRITON_DEFAULT_FP_FUSION", "False"}, {"PTXAS_OPTIONS", "-O1"}, {"TRITON_CACHE_DIR", "/x"}});
  site_.load_torch(program);
  EXPECT_EQ(judge(program, kGraphs).match, Match::kMatches) << judge(program, kGraphs).why;
  program.tell("unset PTXAS_OPTIONS");
  const Judgement judgement = judge(program, kGraphs);
  EXPECT_EQ(judgement.match, Match::kDiffers);
  EXPECT_NE(judgement.why.find("PTXAS_OPTIONS is unset in the writer and \"-O1\""), std::string::npos) << judgement.why;
}

TEST_F(WritersJudgeTest, HoldsTheCompilersVariablesAgainstWhatItMakes) {
  open(facts_of(site_));
  Program program(Environment{{"CPATH", "/opt/include"}});
  site_.load_torch(program);
  EXPECT_EQ(judge(program, kGraphs).match, Match::kMatches) << "module systems set CPATH on many clusters";
  EXPECT_EQ(judge(program, kLibraries).match, Match::kDiffers);
}

TEST_F(WritersJudgeTest, TellsAnotherInterpreterApart) {
  open(facts_of(site_));
  write_text(site_.torch() + "/_C.cpython-312-x86_64-linux-gnu.so", "EXTENSION");
  Program program;
  program.tell("map " + site_.torch() + "/_C.cpython-312-x86_64-linux-gnu.so");
  program.tell("map " + site_.libtorch());
  const std::vector<Facet> facets = {Facet::kPython};
  const Judgement judgement = judge(program, facets);
  EXPECT_EQ(judgement.match, Match::kDiffers);
  EXPECT_NE(judgement.why.find("cpython-312"), std::string::npos) << judgement.why;
  Program without;
  without.tell("map " + site_.libtorch());
  EXPECT_EQ(judge(without, facets).match, Match::kUnknown);
}

TEST_F(WritersJudgeTest, IsUnknownWhereTheMountDoesNotKnowAFacet) {
  Fingerprint facts = facts_of(site_);
  facts.set(Facet::kTorch, unknown_fact("no interpreter"));
  open(facts);
  Program program(Environment{{"TRITON_F32_DEFAULT", "ieee"}});
  site_.load_torch(program);
  const Judgement judgement = judge(program, {Facet::kTorch, Facet::kCpu});
  EXPECT_EQ(judgement.match, Match::kUnknown);
  EXPECT_NE(judgement.why.find("no interpreter"), std::string::npos);
  EXPECT_EQ(judge(program, kGraphs).match, Match::kDiffers) << "what differs decides";
}

TEST_F(WritersJudgeTest, StaysTrueAfterTheWriterHasEnded) {
  open(facts_of(site_));
  Program program;
  site_.load_torch(program);
  const auto writer = writers_->identify(program.pid());
  program.end();
  EXPECT_EQ(judge_to_the_end(*writers_, writer.get(), kGraphs).match, Match::kMatches);
  EXPECT_EQ(judge_to_the_end(*writers_, writer.get(), kLibraries).match, Match::kMatches)
      << judge_to_the_end(*writers_, writer.get(), kLibraries).why;
}

TEST(LibcVersion, IsReadFromTheFilesBanner) {
  EXPECT_EQ(libc_version(InRoot::host(), own_libc()), gnu_get_libc_version());
  const TemporaryDirectory temporary;
  write_text(
      temporary / "libc.so.6",
      std::string(5000, '\0') + "GNU C Library (Debian GLIBC 2.31-13+deb11u6) stable release version 2.31.\nBy ...");
  EXPECT_EQ(libc_version(InRoot::host(), temporary / "libc.so.6"), "2.31");
  for (const char* text :
       {"", "GNU C Library", "GNU C Library without", "musl libc", "GNU C Library release version "}) {
    write_text(temporary / "other", text);
    EXPECT_EQ(libc_version(InRoot::host(), temporary / "other"), "") << text;
  }
  EXPECT_EQ(libc_version(InRoot::host(), temporary / "absent"), "");
  EXPECT_EQ(libc_version(InRoot::host(), "/dev/zero"), "") << "no file";
}

}  // namespace
}  // namespace inductorfs::fingerprint
