// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/host/learn.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "inductorfs/base/fd.h"
#include "inductorfs/config/json.h"
#include "inductorfs/fingerprint/variables.h"
#include "inductorfs/layout/scope.h"
#include "support/learned_facts.h"
#include "support/temporary_directory.h"

namespace inductorfs::host {

using config::Json;

namespace {

using fingerprint::Facet;
using fingerprint::Fingerprint;
using testing::facts::all_known;
using testing::facts::known;
using testing::facts::unknown;

void write(const std::string& path, const std::string& text) {
  ASSERT_TRUE(make_directories(path.substr(0, path.rfind('/'))).has_value());
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, path, text).has_value());
}

TEST(LearnFacts, TakesAFileInsteadOfTheHost) {
  const testing::TemporaryDirectory directory;
  FactsRequest request;
  request.file = directory / "f.json";
  write(request.file, all_known().to_json());

  const Result<Fingerprint> facts = learn_facts(request);

  ASSERT_TRUE(facts.has_value()) << facts.error().what();
  EXPECT_EQ(facts->get(Facet::kGpu).value, "v=gpu");
  EXPECT_EQ(facts->get(Facet::kEnvironment).value, "v=environment");
}

TEST(LearnFacts, PutsWhatTheMountDeclaresIntoTheFactsOfAFile) {
  const testing::TemporaryDirectory directory;
  FactsRequest request;
  request.file = directory / "f.json";
  write(request.file, all_known().to_json());
  request.environment = {{"TRITON_DEFAULT_FP_FUSION", "0"}};
  const Result<Fingerprint> declared = learn_facts(request);
  ASSERT_TRUE(declared.has_value());
  EXPECT_EQ(declared->get(Facet::kEnvironment).value, fingerprint::environment_text(request.environment));

  // A file that says nothing of the environment, as an older version wrote it.
  Json old = Json::parse(all_known().to_json());
  old["facets"].erase("environment");
  write(request.file, old.dump());
  request.environment.clear();
  const Result<Fingerprint> filled = learn_facts(request);
  ASSERT_TRUE(filled.has_value());
  EXPECT_EQ(filled->get(Facet::kEnvironment).value, "none");
}

/// Everything but what engines make is shared under it as before.
TEST(LearnFacts, TakesAFileOfAReleaseThatKnewNoEngines) {
  const testing::TemporaryDirectory directory;
  FactsRequest request;
  request.file = directory / "f.json";
  Json old = Json::parse(all_known().to_json());
  old["facets"].erase("engine");
  write(request.file, old.dump());
  const Result<Fingerprint> facts = learn_facts(request);
  ASSERT_TRUE(facts.has_value()) << facts.error().what();
  EXPECT_FALSE(facts->get(Facet::kEngine).known);
  EXPECT_NE(facts->get(Facet::kEngine).problem.find("f.json does not say which serving engines there are"),
            std::string::npos);
  for (const layout::Rule& rule : layout::all_rules()) {
    const bool has_engine = std::ranges::find(rule.facets, Facet::kEngine) != rule.facets.end();
    if (has_engine) continue;
    EXPECT_EQ(layout::scope_of(rule.family, *facts).id, layout::scope_of(rule.family, all_known()).id) << rule.name;
  }
}

TEST(LearnFacts, LooksAgainWhenADeclaredToolHasChanged) {
  const testing::TemporaryDirectory directory;
  FactsRequest request;
  request.file = directory / "f.json";
  write(request.file, all_known().to_json());
  const std::string tool = directory / "cuda/bin/ptxas";
  write(tool,
        "\x7f"
        "ELF one");
  request.environment = {{"TRITON_PTXAS_PATH", tool}};
  const Result<Fingerprint> facts = learn_facts(request);
  ASSERT_TRUE(facts.has_value());
  const std::string content =
      fingerprint::content_value(codec::digest_of("\x7f"
                                                  "ELF one"));
  EXPECT_EQ(facts->get(Facet::kEnvironment).value, "TRITON_PTXAS_PATH=" + content);
  const std::vector<std::string> files = places_of(*facts).files;
  EXPECT_NE(std::find(files.begin(), files.end(), tool), files.end());
}

TEST(LearnFacts, NamesAFileThatIsNone) {
  const testing::TemporaryDirectory directory;
  FactsRequest request;
  request.file = directory / "f.json";
  write(request.file, "[]");
  EXPECT_EQ(learn_facts(request).error().what().find("no fingerprint: " + request.file + ": "), 0U);
  request.file = directory / "none";
  EXPECT_NE(learn_facts(request).error().what().find("it does not exist"), std::string::npos);
}

TEST(DifferingLines, AreThoseOfOneSideOnly) {
  const auto [ours, theirs] = differing_lines("a=1\nb=2\nc=3", "c=3\na=1\nb=4\nd=5");
  EXPECT_EQ(ours, "b=2");
  EXPECT_EQ(theirs, "b=4; d=5");
}

TEST(ChangeOf, IsNothingWhenAllIsAsBefore) {
  const FactsChange change = change_of(all_known(), all_known(), true);
  EXPECT_FALSE(change.scopes);
  EXPECT_TRUE(change.texts.empty());
  EXPECT_TRUE(change.kept.empty());
}

TEST(ChangeOf, NamesTheLinesThatChanged) {
  const FactsChange change = change_of(all_known({{Facet::kTorch, "key=x\nversion=2.9"}}),
                                       all_known({{Facet::kTorch, "key=x\nversion=2.15"}}), true);
  EXPECT_TRUE(change.scopes);
  EXPECT_EQ(change.texts, std::vector<std::string>{"torch: version=2.9 -> version=2.15"});
  EXPECT_EQ(change.facts.get(Facet::kTorch).value, "key=x\nversion=2.15");
}

TEST(ChangeOf, KeepsAFacetThatIsNotKnownThisTime) {
  Fingerprint now = all_known({{Facet::kTriton, "v=new"}});
  now.set(Facet::kGpu, unknown("the driver is being reloaded"));

  const FactsChange kept = change_of(all_known(), now, true);
  EXPECT_EQ(kept.facts.get(Facet::kGpu).value, "v=gpu");
  EXPECT_EQ(kept.facts.get(Facet::kTriton).value, "v=new");
  EXPECT_EQ(kept.kept, std::vector<std::string>{"gpu: the driver is being reloaded"});

  const FactsChange taken = change_of(all_known(), now, false);
  EXPECT_FALSE(taken.facts.get(Facet::kGpu).known);
  EXPECT_TRUE(taken.kept.empty());
  ASSERT_EQ(taken.texts.size(), 2U);
  EXPECT_EQ(taken.texts[1], "gpu: v=gpu -> not known: the driver is being reloaded");
}

TEST(ChangeOf, TakesAFacetThatHasBecomeKnown) {
  Fingerprint before = all_known();
  before.set(Facet::kCompiler, unknown("no compiler"));
  const FactsChange change = change_of(before, all_known(), true);
  EXPECT_TRUE(change.scopes);
  EXPECT_TRUE(change.facts.get(Facet::kCompiler).known);
}

/// An interpreter with packages, and a /proc with a driver.
class Traces : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* file :
         {"torch/__init__.py", "torch/version.py", "torch/_inductor/codecache.py", "triton/__init__.py"}) {
      write(site_ + "/" + file, "x");
    }
    ASSERT_TRUE(make_directories(directory_ / "venv/bin").has_value());
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, python_, "", 0755).has_value());
    write(proc_ + "/driver/nvidia/version", "NVRM version: 580.65.06\n");
    ASSERT_TRUE(make_directories(proc_ + "/driver/nvidia/gpus/0000:01:00.0").has_value());
    facts_.set(Facet::kTorch, known("v=torch", site_ + "/torch"));
    facts_.set(Facet::kTriton, known("v=triton", site_ + "/triton"));
    facts_.set(Facet::kPython, known("v=python", python_));
    places_ = places_of(facts_);
  }
  std::string traces() const { return traces_of(places_, proc_); }

  testing::TemporaryDirectory directory_;
  std::string site_ = directory_ / "venv/lib/python3.11/site-packages";
  std::string python_ = directory_ / "venv/bin/python";
  std::string proc_ = directory_ / "proc";
  Fingerprint facts_ = all_known();
  Places places_;
};

TEST_F(Traces, ComeFromThePlacesOfTheFacts) {
  EXPECT_EQ(places_.packages, (std::vector<std::string>{site_ + "/torch", site_ + "/triton"}));
  EXPECT_EQ(places_.sites, std::vector<std::string>{site_});
  ASSERT_FALSE(places_.files.empty());
  EXPECT_EQ(places_.files.front(), python_);
  EXPECT_EQ(std::count(places_.files.begin(), places_.files.end(), "/etc/ld.so.cache"), 1)
      << "a library that is installed changes what this host can use";
}

TEST_F(Traces, KnowWhereTorchWouldBeInstalled) {
  facts_.set(Facet::kTorch, known("none", python_));
  facts_.set(Facet::kTriton, known("none", python_));
  places_ = places_of(facts_);
  EXPECT_TRUE(places_.packages.empty());
  EXPECT_EQ(places_.sites, std::vector<std::string>{site_});
}

TEST_F(Traces, StayWhileNothingHappens) { EXPECT_EQ(traces(), traces()); }

TEST_F(Traces, ChangeWithTheDriverItsDevicesAndMig) {
  const std::string first = traces();
  write(proc_ + "/driver/nvidia/version", "NVRM version: 590.10\n");
  const std::string driver = traces();
  EXPECT_NE(first, driver);
  ASSERT_TRUE(make_directories(proc_ + "/driver/nvidia/capabilities/gpu0/mig/gi1/ci0").has_value());
  const std::string mig = traces();
  EXPECT_NE(driver, mig);
  ASSERT_TRUE(remove_tree(proc_ + "/driver/nvidia/gpus/0000:01:00.0").has_value());
  EXPECT_NE(mig, traces());
}

TEST_F(Traces, ChangeWithAFileThatIsInstalledDeepInAPackage) {
  const std::string first = traces();
  write(site_ + "/torch/_inductor/codegen/new.py", "y");
  const std::string installed = traces();
  EXPECT_NE(first, installed);
  write(site_ + "/torch/_inductor/codegen/__pycache__/new.pyc", "y");
  const std::string imported = traces();
  write(site_ + "/torch/_inductor/codegen/__pycache__/other.pyc", "y");
  EXPECT_EQ(imported, traces());  // compiled modules come and go
}

TEST_F(Traces, ChangeWithALibraryThatIsBuiltAnew) {
  write(site_ + "/torch/lib/libtorch_cpu.so", "x");
  const std::string first = traces();
  // As CMake installs it: into a tree of sources, whose version.py stays.
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, site_ + "/torch/lib/libtorch_cpu.so", "y", 0755).has_value());
  EXPECT_NE(first, traces());
}

TEST_F(Traces, ChangeWithTheInterpreter) {
  const std::string first = traces();
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, python_, "other", 0755).has_value());
  EXPECT_NE(first, traces());
}

}  // namespace
}  // namespace inductorfs::host
