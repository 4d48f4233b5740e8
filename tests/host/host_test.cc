// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/host/host.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "inductorfs/base/fd.h"
#include "support/emulator.h"
#include "support/learned_facts.h"
#include "support/temporary_directory.h"

namespace inductorfs::host {
namespace {

using fingerprint::Facet;
using fingerprint::Fingerprint;
using testing::facts::all_known;
using testing::facts::known;
using testing::facts::unknown;

const std::string kCode = "ab/cab" + std::string(49, 'a') + ".py";
constexpr const char* kServer =
    "arch=x86_64\nflags=avx avx2 avx512bw avx512cd avx512dq avx512f avx512vl bmi bmi2 cmov cx16 cx8 f16c fma fxsr "
    "lzcnt "
    "mmx movbe popcnt sahf sse sse2 sse4.1 sse4.2 ssse3";

/// Knows the environments of some processes.
class FakeWriters final : public fingerprint::Writers {
 public:
  std::shared_ptr<const fingerprint::Writer> identify(pid_t) override { return nullptr; }
  fingerprint::Judgement glance(const fingerprint::Writer*, std::span<const Facet>,
                                const fingerprint::ExpectedFacts&) override {
    return {};
  }
  fingerprint::Judgement judge(const fingerprint::Writer*, std::span<const Facet>,
                               const fingerprint::ExpectedFacts&) override {
    return {};
  }
  fingerprint::JobFacts job_of(pid_t process, const fingerprint::JobQuestion& question) override {
    question.goes_on();
    ++questions;
    return jobs.contains(process) ? jobs.at(process) : fingerprint::JobFacts{};
  }
  [[nodiscard]] uint64_t program_of(pid_t) const override { return program; }
  void expect(pid_t) override { ++expected; }
  [[nodiscard]] std::vector<fingerprint::UnknownJobs> unknown_jobs() const override { return {}; }
  [[nodiscard]] fingerprint::JobEnvironments::InUse environments_in_use() const override { return in_use; }
  std::map<pid_t, fingerprint::JobFacts> jobs;
  fingerprint::JobEnvironments::InUse in_use;
  int questions = 0;
  int expected = 0;
  uint64_t program = 1;
};

TEST(Scopes, AcceptAnEntryOnlyInTheScopeOfItsFamily) {
  const Scopes scopes(all_known());
  const std::string code = scopes.of(layout::Family::kGeneratedCode).id;
  const std::string graph = scopes.of(layout::Family::kFxGraph).id;
  ASSERT_FALSE(code.empty());
  ASSERT_NE(code, graph);

  EXPECT_TRUE(scopes.accepts(code, kCode));
  EXPECT_FALSE(scopes.accepts(graph, kCode));
  EXPECT_FALSE(scopes.accepts("", kCode));
  EXPECT_FALSE(scopes.accepts(code, "locks/x.lock"));
  EXPECT_FALSE(scopes.accepts(code, "../etc/passwd"));
}

TEST(Scopes, AreDistinctIdsOfSharedFamilies) {
  const std::vector<remote::ScopeId> ids = Scopes(all_known()).ids();
  ASSERT_FALSE(ids.empty());
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
  EXPECT_FALSE(std::find(ids.begin(), ids.end(), "") != ids.end());
}

TEST(Scopes, SayWhatEachIdStandsFor) {
  for (const remote::ScopeInformation& scope : Scopes(all_known()).information()) {
    EXPECT_EQ(codec::digest_of(scope.text).to_hex(), scope.id);
    EXPECT_FALSE(scope.family.empty());
  }
}

TEST(Scopes, HaveOneForEachArchitectureOfTheHost) {
  const Scopes scopes(all_known({{Facet::kGpuArch, "cc=8.0\ncc=9.0"}}));
  const std::vector<layout::Scope>& kernels = scopes.all_of(layout::Family::kTritonKernel);
  EXPECT_GE(kernels.size(), 2U);
  for (const layout::Scope& scope : kernels) {
    if (scope.id.empty()) continue;
    EXPECT_TRUE(scopes.accepts(scope.id, "triton/@/" + std::string(52, 'A') + "/k.cubin"));
  }
  EXPECT_EQ(scopes.all_of(layout::Family::kGeneratedCode).size(), 1U);
}

TEST(Scopes, LeaveAFamilyPrivateWhenAFactIsNotKnown) {
  Fingerprint facts = all_known();
  facts.set(Facet::kTorch, unknown("no torch here"));
  const Scopes scopes(facts);

  EXPECT_TRUE(scopes.of(layout::Family::kGeneratedCode).id.empty());
  EXPECT_FALSE(scopes.accepts("", kCode));
  bool named = false;
  for (const PrivateFamily& family : private_families(scopes)) {
    named = named || (family.family == layout::rule_of(layout::Family::kGeneratedCode).name &&
                      family.why.find("no torch here") != std::string::npos);
  }
  EXPECT_TRUE(named);
  EXPECT_TRUE(private_families(Scopes(all_known())).empty());
  Fingerprint without_engine = all_known();
  without_engine.set(Facet::kEngine, known("none"));
  EXPECT_TRUE(private_families(Scopes(without_engine)).empty()) << "nobody misses what nothing here uses";
}

TEST(X86Level, FollowsThePsabi) {
  const std::string flags = fingerprint::value_of(kServer, "flags").value();
  EXPECT_EQ(x86_level(flags), 4U);
  const auto without = [&flags](const std::string& flag) {
    std::string rest;
    for (size_t at = 0; at < flags.size();) {
      const size_t end = std::min(flags.find(' ', at), flags.size());
      if (flags.substr(at, end - at) != flag) rest += flags.substr(at, end - at) + " ";
      at = end + 1;
    }
    return rest;
  };
  EXPECT_EQ(x86_level(without("avx512vl")), 3U);
  EXPECT_EQ(x86_level(without("avx2")), 2U);
  EXPECT_EQ(x86_level(without("popcnt")), 1U);
  EXPECT_EQ(x86_level(without("sse2")), 0U);
  EXPECT_EQ(x86_level("the same everywhere"), 0U);
}

TEST(LimitsOf, AreThoseOfTheFacts) {
  INDUCTORFS_NEEDS_NO_EMULATOR("a C library of this processor where the host has its own");
  const layout::HostLimits limits = limits_of(all_known(
      {{Facet::kGpuArch, "cc=12.1\ncc=9.0"}, {Facet::kLibc, "name=glibc\nversion=2.36"}, {Facet::kCpu, kServer}}));
  EXPECT_EQ(limits.cuda_architectures, (std::vector<int>{121, 90}));
  EXPECT_EQ(limits.glibc, "2.36");
  EXPECT_EQ(limits.x86_isa_level, 4U);
  EXPECT_EQ(limits.glibcxx.substr(0, 2), "3.");
  EXPECT_EQ(limits.cxxabi.substr(0, 2), "1.");
}

TEST(LimitsOf, AreThoseOfTheLibstdcxxThatTheFactsName) {
  Fingerprint facts = all_known({{Facet::kLibc, "name=glibc\nversion=2.36"}});
  fingerprint::Fact libc = facts.get(Facet::kLibc);
  libc.details = "cxxabi=1.9.99\nglibcxx=3.9.99";  // a container's, whose facts are in a file
  facts.set(Facet::kLibc, libc);
  const Result<Fingerprint> read = Fingerprint::from_json(facts.to_json());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(limits_of(*read).glibcxx, "3.9.99");
  EXPECT_EQ(limits_of(*read).cxxabi, "1.9.99");
  EXPECT_EQ(Scopes(*read).ids(), Scopes(all_known({{Facet::kLibc, "name=glibc\nversion=2.36"}})).ids())
      << "no scope depends on them";
}

TEST(LimitsOf, LeavesUncheckedWhatTheFactsDoNotSay) {
  Fingerprint facts = all_known({{Facet::kGpuArch, "none"}, {Facet::kLibc, "name=musl\nversion=1.2"}});
  facts.set(Facet::kCpu, unknown("no /proc"));
  const layout::HostLimits limits = limits_of(facts);
  EXPECT_TRUE(limits.cuda_architectures.empty());
  EXPECT_EQ(limits.glibc, "");
  EXPECT_EQ(limits.x86_isa_level, 0U);
  EXPECT_FALSE(limits.resolves);
}

TEST(LimitsOf, ResolvesLibrariesOfAnInstalledTorch) {
  INDUCTORFS_NEEDS_NO_EMULATOR("a C library of this processor where the host has its own");
  const testing::TemporaryDirectory directory;
  const std::string torch = directory / "lib/python3.11/site-packages/torch";
  ASSERT_TRUE(make_directories(torch + "/lib").has_value());
  ASSERT_TRUE(make_directories(directory / "lib/python3.11/site-packages/nvidia/cu13/lib").has_value());
  for (const char* file :
       {"lib/python3.11/site-packages/torch/__init__.py", "lib/python3.11/site-packages/torch/lib/libtorch_of_test.so",
        "lib/python3.11/site-packages/nvidia/cu13/lib/libcudart_of_test.so.13", "lib/libomp_of_test.so"}) {
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory / file, "").has_value());
  }
  Fingerprint facts = all_known();
  facts.set(Facet::kTorch, known("version=2.15", torch));

  const layout::HostLimits limits = limits_of(facts);

  ASSERT_TRUE(limits.resolves);
  for (const char* soname : {"libtorch_of_test.so", "libcudart_of_test.so.13", "libomp_of_test.so", "libc.so.6",
                             "libstdc++.so.6", "libcuda.so.1"}) {
    EXPECT_TRUE(limits.resolves(soname)) << soname;
  }
  EXPECT_FALSE(limits.resolves("libcudart_of_test.so.12"));
}

TEST(Host, AnswersFromTheFactsOfNow) {
  ThisHost host(all_known(), nullptr);
  const std::string before = host.scope_of(layout::Family::kGeneratedCode, "").id;
  const std::shared_ptr<const HostState> held = host.state();

  host.replace(all_known({{Facet::kTorch, "v=other"}}));

  const std::string after = host.scope_of(layout::Family::kGeneratedCode, "").id;
  EXPECT_NE(before, after);
  EXPECT_EQ(held->scopes.of(layout::Family::kGeneratedCode).id, before);
  EXPECT_EQ(host.expected()->get(Facet::kTorch).value, "v=other");
  // The catalog may still have entries of the old scope in hand; a scope that never was is none.
  EXPECT_TRUE(host.accepts(after, kCode));
  EXPECT_TRUE(host.accepts(before, kCode));
  EXPECT_FALSE(host.accepts(std::string(64, '0'), kCode));
}

TEST(Host, TakesUpWhereAFactWasReadWhenNoValueHasChanged) {
  ThisHost host(all_known(), nullptr);
  Fingerprint facts = all_known();
  facts.set(Facet::kTorch, known("v=torch", "read elsewhere"));
  host.replace(facts);
  EXPECT_EQ(host.state()->facts.get(Facet::kTorch).source, "read elsewhere");
}

constexpr uid_t kAlice = 1001;
constexpr Milliseconds kPatience{20'000};

/// Of root, with users whose names are "u" and their number.
ThisHost host_of_users() {
  return ThisHost(
      all_known(), nullptr, {}, fingerprint::TrustPolicy::kUser, {0, 0, 01777},
      [](fingerprint::Account, id_t number) -> Result<std::string> { return "u" + std::to_string(number); });
}

TEST(Host, HasAnEnvironmentForEachUser) {
  const ThisHost host = host_of_users();
  ASSERT_TRUE(host.parts_roots());
  EXPECT_EQ(host.environment_of({0, 0, 01777}, {}, kPatience), nullptr) << "everybody's, as the mountpoint's";
  EXPECT_EQ(host.environment_of({0, 0, 0755}, {}, kPatience)->shared_with().value, "user=root");
  const auto hers = host.environment_of({kAlice, 5, 0755}, {}, kPatience);
  ASSERT_NE(hers, nullptr);
  EXPECT_EQ(hers->shared_with().value, "user=u1001");
  EXPECT_EQ(host.environment_of({kAlice, 6, 0700}, {}, kPatience), hers) << "the same object";
  EXPECT_NE(host.environment_of({kAlice + 1, 5, 0755}, {}, kPatience), hers);
  const std::string scope = hers->scope_of(layout::Family::kGeneratedCode, "").id;
  EXPECT_NE(scope, host.scope_of(layout::Family::kGeneratedCode, "").id);
  EXPECT_TRUE(hers->follows(scope, kCode));
  EXPECT_FALSE(host.follows(scope, kCode));
  EXPECT_TRUE(host.accepts(scope, kCode)) << "the catalog takes in what any root shows";
  const auto told = host.information();
  EXPECT_TRUE(std::any_of(told.begin(), told.end(), [&](const auto& one) { return one.id == scope; }));
}

TEST(Host, SharesNothingOfALearnedEnvironmentWhereNoneIsLearned) {
  const ThisHost host = host_of_users();
  const auto environment = host.environment_of({kAlice, 5, 0755}, "0123456789abcdef", kPatience);
  ASSERT_NE(environment, nullptr) << "what an earlier mount has left";
  EXPECT_EQ(environment->scope_of(layout::Family::kGeneratedCode, "").id, "");
}

TEST(Host, StillAcceptsWhatItsUsersHadUnderEarlierFacts) {
  ThisHost host = host_of_users();
  const std::string before =
      host.environment_of({kAlice, 0, 0755}, {}, kPatience)->scope_of(layout::Family::kGeneratedCode, "").id;
  host.replace(all_known({{Facet::kTorch, "v=other"}}));
  EXPECT_TRUE(host.accepts(before, kCode));
  EXPECT_NE(host.environment_of({kAlice, 0, 0755}, {}, kPatience)->scope_of(layout::Family::kGeneratedCode, "").id,
            before);
}

ThisHost learning_host(const std::string& directory, std::map<pid_t, fingerprint::JobFacts> jobs) {
  auto writers = std::make_unique<FakeWriters>();
  writers->jobs = std::move(jobs);
  return ThisHost(all_known(), std::move(writers), {}, fingerprint::TrustPolicy::kAll, {},
                  fingerprint::ask_name_service, std::make_unique<LearnedEnvironments>(directory));
}

fingerprint::JobFacts job_with(const std::string& torch) {
  fingerprint::JobFacts job{fingerprint::JobFacts::Kind::kKnown, {}, {}};
  job.facts.set(Facet::kTorch, known(torch));
  return job;
}

TEST(Host, HasAnEnvironmentForEachJob) {
  const testing::TemporaryDirectory directory;
  const std::map<pid_t, fingerprint::JobFacts> jobs{{1, job_with("version=1")},
                                                    {2, job_with("version=2")},
                                                    {3, job_with("version=1")},
                                                    {4, {fingerprint::JobFacts::Kind::kNeither, {}, {}}}};
  const ThisHost host = learning_host(directory.path() + "/environments", jobs);
  ASSERT_TRUE(host.learns());
  const vfs::Job one = host.job_of(1, true);
  ASSERT_EQ(one.kind, vfs::Job::Kind::kKnown);
  EXPECT_EQ(one.environment.size(), vfs::kEnvironmentIdLength);
  EXPECT_EQ(host.job_of(3, true).environment, one.environment) << "equal facts";
  EXPECT_NE(host.job_of(2, true).environment, one.environment);
  EXPECT_EQ(host.job_of(4, true).kind, vfs::Job::Kind::kNone);
  EXPECT_EQ(host.job_of(5, true).kind, vfs::Job::Kind::kUnknown);

  const vfs::RootAccess root{0, 0, 0755};
  const auto environment = host.environment_of(root, one.environment, kPatience);
  ASSERT_NE(environment, nullptr);
  EXPECT_EQ(environment, host.environment_of(root, one.environment, kPatience)) << "the same object";
  EXPECT_EQ(environment->expected()->get(Facet::kTorch).value, "version=1");
  EXPECT_TRUE(environment->shared_with().known);
  const std::string scope = environment->scope_of(layout::Family::kGeneratedCode, "").id;
  EXPECT_NE(scope, host.scope_of(layout::Family::kGeneratedCode, "").id);
  EXPECT_TRUE(host.accepts(scope, kCode));
  EXPECT_EQ(host.environment_text(one.environment).substr(0, 7), "torch 1");
  EXPECT_EQ(host.environment_of(root, {}, kPatience), nullptr) << "the mount's own";

  const auto gone = host.environment_of(root, "0123456789abcdef", kPatience);
  EXPECT_FALSE(gone->shared_with().known);
  EXPECT_EQ(gone->scope_of(layout::Family::kGeneratedCode, "").id, "") << "shared with nobody";
}

TEST(Host, AsksOnceForTheRequestsOfOneMoment) {
  const testing::TemporaryDirectory directory;
  const ThisHost host = learning_host(directory.path() + "/environments", {{1, job_with("version=1")}});
  const auto& writers = dynamic_cast<const FakeWriters&>(*host.writers());
  constexpr int kRequests = 1000;
  for (int request = 0; request < kRequests; ++request) EXPECT_EQ(host.job_of(1, true).kind, vfs::Job::Kind::kKnown);
  EXPECT_LT(writers.questions, kRequests);
  const int before = writers.questions;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (writers.questions == before && std::chrono::steady_clock::now() < limit) (void)host.job_of(1, true);
  EXPECT_GT(writers.questions, before) << "the thread may be another program's by then";
  const int unknown = writers.questions;
  for (int request = 0; request < 2; ++request) EXPECT_EQ(host.job_of(5, true).kind, vfs::Job::Kind::kUnknown);
  EXPECT_EQ(writers.questions, unknown + 2) << "that may change at any time";
}

TEST(Host, AsksAgainWhenTheThreadRunsAnotherProgram) {
  const testing::TemporaryDirectory directory;
  const ThisHost host = learning_host(directory.path() + "/environments", {{1, job_with("version=1")}});
  auto& writers = const_cast<FakeWriters&>(dynamic_cast<const FakeWriters&>(*host.writers()));
  const std::string first = host.job_of(1, true).environment;
  writers.jobs[1] = job_with("version=2");
  ++writers.program;
  EXPECT_NE(host.job_of(1, true).environment, first);
}

TEST(Host, ExpectsAProgramOnce) {
  const testing::TemporaryDirectory directory;
  const ThisHost host = learning_host(directory.path() + "/environments", {});
  const auto& writers = dynamic_cast<const FakeWriters&>(*host.writers());
  host.expect_job(1);
  host.expect_job(2);
  EXPECT_EQ(writers.expected, 2);
  for (int request = 0; request < 1000; ++request) host.expect_job(1);
  EXPECT_LT(writers.expected, 1000);
}

TEST(Host, KnowsLearnedEnvironmentsAtTheNextMount) {
  const testing::TemporaryDirectory directory;
  const std::string place = directory.path() + "/environments";
  std::string id;
  std::string scope;
  {
    const ThisHost host = learning_host(place, {{1, job_with("version=1")}});
    id = host.job_of(1, true).environment;
    scope = host.environment_of({0, 0, 0755}, id, kPatience)->scope_of(layout::Family::kGeneratedCode, "").id;
  }
  ASSERT_FALSE(scope.empty());
  const ThisHost host = learning_host(place, {});
  EXPECT_EQ(host.environment_of({0, 0, 0755}, id, kPatience)->scope_of(layout::Family::kGeneratedCode, "").id, scope);
  ThisHost changed = learning_host(place, {});
  changed.replace(all_known({{Facet::kGpuArch, "cc=1.0"}}));
  EXPECT_EQ(changed.environment_of({0, 0, 0755}, id, kPatience)->expected()->get(Facet::kGpuArch).value, "cc=1.0");
}

TEST(Host, TellsOfScopesThatCameIntoUse) {
  const testing::TemporaryDirectory directory;
  ThisHost host = learning_host(directory.path() + "/environments", {{1, job_with("version=1")}});
  int told = 0;
  host.on_new_scopes([&told] { ++told; });
  const std::string id = host.job_of(1, true).environment;
  EXPECT_EQ(told, 0) << "nobody shares anything yet";
  for (int again = 0; again < 2; ++again) {
    ASSERT_NE(host.environment_of({0, 0, 0755}, id, kPatience), nullptr);
    EXPECT_EQ(told, 1);
  }
  EXPECT_EQ(host.environment_of({0, 0, 0755}, {}, kPatience), nullptr);
  EXPECT_EQ(told, 1) << "the mount's own were told of at its start";
}

class LearnedEnvironmentsTest : public ::testing::Test {
 protected:
  std::string take(LearnedEnvironments& learned, size_t number, uid_t user = kAlice) {
    return learned.take(job_with("version=" + std::to_string(number)).facts, user, [this] { return in_use_; });
  }
  const testing::TemporaryDirectory directory_;
  const std::string place_ = directory_.path() + "/environments";
  fingerprint::JobEnvironments::InUse in_use_;
};

TEST_F(LearnedEnvironmentsTest, AreAtMostSoMany) {
  std::vector<std::string> ids;
  LearnedEnvironments learned(place_);
  for (size_t number = 0; number < LearnedEnvironments::kMost; ++number) ids.push_back(take(learned, number));
  EXPECT_EQ(take(learned, 0), ids[0]) << "it was used again";
  ids.push_back(take(learned, LearnedEnvironments::kMost));
  EXPECT_FALSE(learned.find(ids[1])) << "of all, it was not used for longest";
  EXPECT_TRUE(learned.find(ids[0]));
  EXPECT_TRUE(learned.find(ids.back()));
  const LearnedEnvironments again(place_);
  EXPECT_FALSE(again.find(ids[1]));
  EXPECT_TRUE(again.find(ids[0]));
  EXPECT_TRUE(again.find(ids.back()));
}

/// Programs without an engine keep what they had before there was this facet.
TEST_F(LearnedEnvironmentsTest, AreOthersWithAKnownEngineOnly) {
  LearnedEnvironments learned(place_);
  const auto id_with = [&](const std::optional<fingerprint::Fact>& engine) {
    Fingerprint facts = job_with("version=1").facts;
    if (engine) facts.set(Facet::kEngine, *engine);
    return learned.take(facts, kAlice, [this] { return in_use_; });
  };
  const std::string before = id_with(std::nullopt);
  EXPECT_EQ(id_with(known("none")), before);
  EXPECT_EQ(id_with(fingerprint::Fact{false, {}, {}, "not read", {}}), before);
  const std::string one = id_with(known("vllm=0.32.0 aaa"));
  EXPECT_NE(one, before);
  EXPECT_NE(id_with(known("vllm=0.32.0 bbb")), one);
}

TEST_F(LearnedEnvironmentsTest, StayWhileAProcessHasThem) {
  std::vector<std::string> ids;
  LearnedEnvironments learned(place_);
  for (size_t number = 0; number < LearnedEnvironments::kMost; ++number) ids.push_back(take(learned, number));
  for (const std::string& id : ids) in_use_[id] = {kAlice};
  EXPECT_EQ(take(learned, 1000), "") << "no room";
  in_use_.erase(ids[30]);
  EXPECT_NE(take(learned, 1000), "");
  EXPECT_FALSE(learned.find(ids[30]));
  EXPECT_TRUE(learned.find(ids[0]));
}

TEST_F(LearnedEnvironmentsTest, OfAUserWithTheMostGoForThoseOfAnother) {
  std::vector<std::string> ids;
  LearnedEnvironments learned(place_);
  for (size_t number = 0; number < LearnedEnvironments::kMost; ++number) ids.push_back(take(learned, number));
  for (const std::string& id : ids) in_use_[id] = {kAlice, kAlice + 5};  // two of hers, perhaps
  in_use_[ids[0]] = {kAlice, kAlice + 5, kAlice + 1};
  const std::string his = take(learned, 1000, kAlice + 1);
  EXPECT_NE(his, "");
  EXPECT_TRUE(learned.find(ids[0])) << "he has it";
  EXPECT_FALSE(learned.find(ids[1])) << "her oldest";
  in_use_.erase(ids[1]);
  in_use_[his] = {kAlice + 1};
  EXPECT_EQ(take(learned, 1001), "") << "she has the most";
  EXPECT_TRUE(learned.find(his));
}

TEST(Host, PartsALimitedNumberOfUsers) {
  const ThisHost host = host_of_users();
  std::vector<std::shared_ptr<const vfs::RootEnvironment>> held;
  for (uid_t user = 1; user <= ThisHost::kMostEnvironments; ++user)
    held.push_back(host.environment_of({user, 0, 0755}, {}, kPatience));
  const auto one_more = host.environment_of({kAlice, 0, 0755}, {}, kPatience);
  EXPECT_FALSE(one_more->shared_with().known);
  EXPECT_NE(one_more->shared_with().problem.find("256, 64 of one user"), std::string::npos);
  EXPECT_EQ(one_more->scope_of(layout::Family::kGeneratedCode, "").id, "") << "shared with nobody";
  held.erase(held.begin(), held.begin() + 10);
  EXPECT_TRUE(host.environment_of({kAlice, 0, 0755}, {}, kPatience)->shared_with().known)
      << "in the place of one that nobody uses";
}

TEST(Host, PartsNobodyWhereAllShareWithAll) {
  const ThisHost host(all_known(), nullptr);
  EXPECT_FALSE(host.parts_roots());
  EXPECT_EQ(host.environment_of({kAlice, 0, 0755}, {}, kPatience), nullptr);
}

TEST(Host, KnowsTheScopeOfAnArchitecture) {
  const ThisHost host(all_known({{Facet::kGpuArch, "cc=8.0\ncc=9.0"}}), nullptr);
  const std::string one = host.scope_of(layout::Family::kTritonKernel, "8.0").id;
  const std::string other = host.scope_of(layout::Family::kTritonKernel, "9.0").id;
  EXPECT_FALSE(one.empty());
  EXPECT_NE(one, other);
  EXPECT_TRUE(host.scope_of(layout::Family::kTritonKernel, "7.0").id.empty());
  EXPECT_EQ(host.writers(), nullptr);
}

TEST(Host, RefusesACubinOfAnotherArchitecture) {
  // An ELF header of a cubin: 64-bit, machine 190 (EM_CUDA), e_flags with the architecture in the low byte.
  std::string cubin(64, '\0');
  cubin.replace(0, 7,
                std::string("\x7f"
                            "ELF\x02\x01\x01",
                            7));
  cubin[18] = static_cast<char>(190);
  cubin[48] = static_cast<char>(90);
  const layout::Classification classified = layout::classify("triton/@/" + std::string(52, 'A') + "/k.cubin");
  const auto checked = [&](const char* architecture) {
    const ThisHost host(all_known({{Facet::kGpuArch, architecture}}), nullptr);
    return host.check(classified, cubin, cubin.size(), {});
  };
  EXPECT_FALSE(checked("cc=8.0").has_value());
  EXPECT_TRUE(checked("cc=9.0").has_value()) << checked("cc=9.0").error().what();

  const testing::TemporaryDirectory directory;
  auto jobs = std::map<pid_t, fingerprint::JobFacts>{{1, job_with("version=1")}, {2, job_with("version=2")}};
  jobs[1].facts.set(Facet::kGpuArch, known("cc=8.0"));
  jobs[2].facts.set(Facet::kGpuArch, known("cc=9.0"));
  const ThisHost host = learning_host(directory.path() + "/environments", jobs);
  const auto scope_of = [&](pid_t process) {
    const auto environment = host.environment_of({0, 0, 0755}, host.job_of(process, true).environment, kPatience);
    return environment->scope_of(layout::Family::kTritonKernel, "").id;
  };
  const auto fits = [&](const std::vector<remote::ScopeId>& scopes) {
    return host.check(classified, cubin, cubin.size(), scopes).has_value();
  };
  EXPECT_TRUE(fits({scope_of(2)}));
  EXPECT_FALSE(fits({scope_of(1)})) << "that it fits another environment in use is not enough";
  EXPECT_FALSE(fits({scope_of(1), scope_of(2)})) << "both are shown it";
  EXPECT_TRUE(host.check(classified, cubin, cubin.size(), {}).has_value()) << "nobody says for whom it is";
}

TEST(Host, SaysWhatTheEnvironmentsInUseLack) {
  const testing::TemporaryDirectory directory;
  auto jobs = std::map<pid_t, fingerprint::JobFacts>{{1, job_with("version=1")}, {2, job_with("version=2+rocm6.4")}};
  jobs[1].facts.set(Facet::kEnvironment, unknown("its memory cannot be read"));
  const ThisHost host = learning_host(directory.path() + "/environments", jobs);
  EXPECT_TRUE(host.lacking().empty());
  const auto environment_of = [&](pid_t process) {
    return host.environment_of({0, 0, 0755}, host.job_of(process, true).environment, kPatience);
  };
  const auto one = environment_of(1);
  EXPECT_EQ(host.lacking(), std::vector<std::string>{"environment: its memory cannot be read"});
  const auto other = environment_of(2);
  ASSERT_EQ(host.lacking().size(), 2U);
  EXPECT_NE(host.lacking().back().find("gpu: torch 2+rocm6.4 is built for ROCm"), std::string::npos);
  EXPECT_EQ(other->scope_of(layout::Family::kTritonKernel, "").id, "");
}

TEST(Host, ShowsNobodyWhatOneEnvironmentOfItsScopeCannotLoad) {
  const testing::TemporaryDirectory directory;
  auto jobs = std::map<pid_t, fingerprint::JobFacts>{{1, job_with("version=1")}, {2, job_with("version=1")}};
  for (const auto& [process, newest] : {std::pair{1, "3.4.30"}, {2, "3.4.33"}}) {
    fingerprint::Fact libc = known("name=glibc\nversion=2.36");
    libc.details = "glibcxx=" + std::string(newest);
    jobs[process].facts.set(Facet::kLibc, libc);
  }
  const ThisHost host = learning_host(directory.path() + "/environments", jobs);
  const std::string older = host.job_of(1, true).environment;
  const std::string newer = host.job_of(2, true).environment;
  EXPECT_NE(older, newer) << "they load different binaries";
  const uint64_t before = host.environments_made();
  const auto one = std::dynamic_pointer_cast<const HostState>(host.environment_of({0, 0, 0755}, older, kPatience));
  EXPECT_GT(host.environments_made(), before) << "what was found to fit is judged again";
  const auto two = std::dynamic_pointer_cast<const HostState>(host.environment_of({0, 0, 0755}, newer, kPatience));
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->scope_of(layout::Family::kCppBinary, "").id, two->scope_of(layout::Family::kCppBinary, "").id);
  EXPECT_EQ(one->limits().glibcxx, "3.4.30");
  EXPECT_EQ(two->limits().glibcxx, "3.4.33");
}

}  // namespace
}  // namespace inductorfs::host
