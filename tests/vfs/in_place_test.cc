// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/xattr.h>

#include <algorithm>
#include <functional>
#include <map>
#include <stop_token>

#include "inductorfs/base/guarded.h"
#include "vfs/host.h"

namespace inductorfs::testing {
namespace {

using vfs::OpenState;

constexpr Milliseconds kPatience{20000};
constexpr Milliseconds kShort{300};

std::string code_path(const std::string& seed) { return in_code_directory(code_name(seed) + ".py"); }

std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

/// The kernel, as a test wants it. Safe for concurrent use.
class FakeKernel {
 public:
  void set(const std::string& path, OpenState state) {
    state_.with([&](State& own) { own.answers[path] = state; });
  }
  /// Answers are given when they are let go, as they were at the question.
  void hold(bool held) {
    state_.notify_with([&](State& own) { own.held = held; });
  }
  bool wait_for_questions(uint64_t more_than) {
    const auto came = [&](const State& own) { return own.questions > more_than; };
    return state_.wait_until(Deadline::after(kPatience).at(), came, came);
  }
  [[nodiscard]] uint64_t questions() const {
    return state_.with([](const State& own) { return own.questions; });
  }
  std::vector<OpenState> answer(const std::vector<vfs::OpenQuestion>& questions, const std::stop_token& stop) {
    std::vector<OpenState> states;
    state_.notify_with([&](State& own) {
      ++own.questions;
      for (const auto& question : questions) {
        const auto known = own.answers.find(question.path);
        states.push_back(known == own.answers.end() ? OpenState::kNotForWriting : known->second);
      }
    });
    const auto free = [](const State& own) { return !own.held; };
    while (!stop.stop_requested() && !state_.wait_until(Deadline::after(Milliseconds{20}).at(), free, free)) {
    }
    return states;
  }

 private:
  struct State {
    std::map<std::string, OpenState> answers;
    uint64_t questions = 0;
    bool held = false;
  };
  Guarded<State> state_;
};

/// What is written in place under --writers all.
class InPlaceTest : public ::testing::Test {
 protected:
  [[nodiscard]] HostOptions asking() const {
    HostOptions options;
    options.who_writes = [asked = kernel](const auto& questions, const auto& stop) {
      return asked->answer(questions, stop);
    };
    return options;
  }
  static bool is_in_cluster(Host& host, const std::string& path) {
    return host.catalog->find(layout::canonical_path(path)).has_value();
  }
  /// Under its final name, as cp does.
  static Result<void> create(Host& host, const std::string& path, const std::string& bytes) {
    INDUCTORFS_TRY(host.make_directories(parent_of(path)));
    return host.create(path, bytes);
  }
  static std::string why_not_synced(Host& host) {
    const auto done = host.file_system->sync(Deadline::after(kShort));
    return done ? std::string() : done.error().what();
  }
  /// A worker that has only begun says first that it still looks at what it has found.
  static bool is_not_synced_because(Host& host, const std::string& why) {
    return eventually([&] { return why_not_synced(host).find(why) != std::string::npos; });
  }

  std::shared_ptr<FakeKernel> kernel = std::make_shared<FakeKernel>();
  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  const std::string directory = "triton/0/" + triton_key_of("kernel");
};

TEST_F(InPlaceTest, PublishesWhatNobodyHasOpenForWriting) {
  Host a(cluster, asking());
  const std::string path = code_path("code");
  kernel->set(path, OpenState::kForWriting);
  ASSERT_TRUE(create(a, path, "half, "));
  EXPECT_TRUE(is_not_synced_because(a, path + ": somebody has it open for writing")) << why_not_synced(a);
  EXPECT_EQ(a.inspection().status().in_place, std::vector<std::string>{path + ": somebody has it open for writing"});
  EXPECT_NE(a.inspection().explain(path).why.find("somebody has it open for writing"), std::string::npos);
  EXPECT_FALSE(is_in_cluster(a, path));

  ASSERT_TRUE(a.append(path, "whole"));
  kernel->set(path, OpenState::kNotForWriting);

  ASSERT_TRUE(a.sync());
  EXPECT_TRUE(is_in_cluster(a, path));
  EXPECT_EQ(a.read(path).value_or(""), "half, whole");
  EXPECT_TRUE(a.inspection().status().in_place.empty());
}

TEST_F(InPlaceTest, ExplainsThatTheContentWasRefused) {
  Host a(cluster, asking());
  const std::string name = code_name("k", 'f');
  const std::string bad = "fxgraph/" + name.substr(1, 2) + "/" + name + "/" + codec::torch_hash("x");
  ASSERT_TRUE(create(a, bad, "not a pickle"));
  ASSERT_TRUE(a.sync());
  ASSERT_EQ(a.inspection().status().refused.size(), 1U);
  const std::string why = a.inspection().status().refused.front().substr(bad.size() + 2);
  EXPECT_EQ(a.inspection().explain(bad).why,
            "written on this host, and refused when it was complete, so it stays here: " + why);
}

TEST_F(InPlaceTest, StaysOnThisHostWhereNobodyAsksTheKernel) {
  Host a(cluster);
  ASSERT_TRUE(create(a, code_path("code"), "code"));
  ASSERT_TRUE(a.sync());
  EXPECT_FALSE(is_in_cluster(a, code_path("code")));
}

TEST_F(InPlaceTest, QuietTimeIsNotEnoughForAFileThatIsOpenForWriting) {
  Host a(cluster, asking());
  const std::string path = "ab/" + std::string(64, 'a') + ".best_config";
  ASSERT_EQ(layout::rule_of(layout::classify(path).family).seal, layout::SealSign::kQuiet);
  kernel->set(path, OpenState::kForWriting);
  ASSERT_TRUE(create(a, path, "{}"));
  EXPECT_FALSE(why_not_synced(a).empty());
  EXPECT_FALSE(is_in_cluster(a, path));
  kernel->set(path, OpenState::kUnknown);  // of a kernel without leases: the quiet time is its sign, as ever
  ASSERT_TRUE(a.sync());
  EXPECT_TRUE(is_in_cluster(a, path));
}

TEST_F(InPlaceTest, AWriteThatCameAfterTheQuestionMakesItAskAgain) {
  Host a(cluster, asking());
  const std::string path = code_path("code");
  kernel->hold(true);
  ASSERT_TRUE(create(a, path, "one, "));
  ASSERT_TRUE(kernel->wait_for_questions(0));
  ASSERT_TRUE(a.append(path, "two, "));
  kernel->set(path, OpenState::kForWriting);
  const uint64_t asked = kernel->questions();
  kernel->hold(false);  // nobody had it open, says the answer: that was before the second write
  ASSERT_TRUE(kernel->wait_for_questions(asked));
  EXPECT_FALSE(is_in_cluster(a, path));
  ASSERT_TRUE(a.append(path, "three"));
  kernel->set(path, OpenState::kNotForWriting);
  ASSERT_TRUE(a.sync());
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(layout::canonical_path(path)));
  EXPECT_EQ(b.read(path).value_or(""), "one, two, three");
}

TEST_F(InPlaceTest, NothingElseWaitsForAQuestion) {
  Host a(cluster, asking());
  kernel->hold(true);
  ASSERT_TRUE(create(a, code_path("slow"), "slow"));
  ASSERT_TRUE(kernel->wait_for_questions(0));

  ASSERT_TRUE(a.publish_file(code_path("renamed"), "renamed"));
  ASSERT_TRUE(a.wait_for_entry(layout::canonical_path(code_path("renamed"))));
  ASSERT_TRUE(create(a, code_path("another"), "another"));
  EXPECT_EQ(a.read(code_path("another")).value_or(""), "another");
  ASSERT_TRUE(a.unlink(code_path("another")));
  EXPECT_FALSE(why_not_synced(a).empty());
  const SteadyTime begin = std::chrono::steady_clock::now();
  a.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
}

TEST_F(InPlaceTest, AsksNothingWhileTheMountIsTakenAway) {
  Host a(cluster, asking());
  kernel->hold(true);
  ASSERT_TRUE(create(a, code_path("code"), "code"));
  ASSERT_TRUE(kernel->wait_for_questions(0));
  a.file_system->hold_questions(true);  // ends the question, for which nobody has an answer
  kernel->hold(false);
  const uint64_t asked = kernel->questions();
  const auto done = a.file_system->sync(Deadline::after(kPatience));  // waits for nothing that will not come
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), ErrorCode::kBusy);
  EXPECT_EQ(kernel->questions(), asked);
  a.file_system->hold_questions(false);
  ASSERT_TRUE(a.sync());
  EXPECT_TRUE(is_in_cluster(a, code_path("code")));
}

TEST_F(InPlaceTest, IsAskedAgainWhereTheAnswerWasLateAndGivenUpWhereThereIsNone) {
  Host a(cluster, asking());
  const std::string late = code_path("late");
  const std::string never = code_path("never");
  kernel->set(late, OpenState::kLate);
  kernel->set(never, OpenState::kUnknown);
  ASSERT_TRUE(create(a, late, "late"));
  ASSERT_TRUE(create(a, never, "never"));
  ASSERT_TRUE(kernel->wait_for_questions(8));
  EXPECT_TRUE(is_not_synced_because(a, late + ": the kernel has not told")) << why_not_synced(a);
  kernel->set(late, OpenState::kNotForWriting);
  ASSERT_TRUE(a.sync());
  EXPECT_TRUE(is_in_cluster(a, late));
  EXPECT_FALSE(is_in_cluster(a, never));
  EXPECT_EQ(a.count("seal.in_place_unknown"), 1U);
  EXPECT_NE(a.inspection().explain(never).why.find("kernel does not tell"), std::string::npos);
  // Later the kernel may tell: a rename is looked at like any other.
  kernel->set(code_path("renamed"), OpenState::kNotForWriting);
  ASSERT_TRUE(a.make_directories(parent_of(code_path("renamed"))));
  ASSERT_TRUE(a.rename(never, code_path("renamed")));
  ASSERT_TRUE(a.sync());
  EXPECT_TRUE(is_in_cluster(a, code_path("renamed")));
}

TEST_F(InPlaceTest, ManyFilesThatAreHeldOpenKeepNoOtherFromItsTurn) {
  Host a(cluster, asking());
  constexpr int kHeld = 600;  // more than one question has room for
  for (int i = 0; i < kHeld; ++i) {
    const std::string path = code_path("held " + std::to_string(i));
    kernel->set(path, OpenState::kForWriting);
    ASSERT_TRUE(create(a, path, "half"));
  }
  ASSERT_TRUE(kernel->wait_for_questions(0));
  ASSERT_TRUE(create(a, code_path("another"), "another"));
  EXPECT_TRUE(a.wait_for_entry(layout::canonical_path(code_path("another"))));
}

TEST_F(InPlaceTest, ARenameOfAFileThatIsOpenForWritingDoesNotPublishIt) {
  Host a(cluster, asking());
  const std::string first = code_path("first");
  const std::string second = code_path("second");
  kernel->set(first, OpenState::kForWriting);
  kernel->set(second, OpenState::kForWriting);
  ASSERT_TRUE(create(a, first, "half"));
  ASSERT_TRUE(a.make_directories(parent_of(second)));
  ASSERT_TRUE(a.rename(first, second));
  EXPECT_TRUE(is_not_synced_because(a, second));
  EXPECT_FALSE(is_in_cluster(a, second));
  kernel->set(second, OpenState::kNotForWriting);
  ASSERT_TRUE(a.sync());
  EXPECT_TRUE(is_in_cluster(a, second));
  EXPECT_FALSE(is_in_cluster(a, first));
}

TEST_F(InPlaceTest, AFileIsPublishedUnderEachOfItsNames) {
  Host a(cluster, asking());
  const std::string path = code_path("code");
  ASSERT_TRUE(create(a, path, "code"));
  const auto found = a.look_up(path);
  ASSERT_TRUE(found);
  // Sorts before the other, and is of no family.
  ASSERT_TRUE(a.names().link(found->node, vfs::kRootNode, "a further name", {}));
  a.take_over();
  ASSERT_TRUE(a.sync());
  EXPECT_TRUE(is_in_cluster(a, path));
}

TEST_F(InPlaceTest, TheNextWorkerAsksBeforeItSeals) {
  Host a(cluster, asking());
  const std::string path = code_path("code");
  const std::string member = directory + "/kernel.json";
  for (const auto& each : {path, member}) kernel->set(each, OpenState::kForWriting);
  ASSERT_TRUE(create(a, path, "half"));
  ASSERT_TRUE(create(a, member, "{}"));
  ASSERT_TRUE(create(a, directory + "/__grp__kernel.json",
                     R"({"child_paths": {"kernel.json": "/mnt/cache/)" + member + R"("}})"));
  a.take_over();
  EXPECT_FALSE(why_not_synced(a).empty());
  EXPECT_FALSE(is_in_cluster(a, path));
  EXPECT_FALSE(is_in_cluster(a, member));
  for (const auto& each : {path, member}) kernel->set(each, OpenState::kNotForWriting);
  ASSERT_TRUE(a.sync());
  EXPECT_TRUE(is_in_cluster(a, path));
  EXPECT_TRUE(is_in_cluster(a, member));
}

/// --writers pod: every writer fits, and what was written in place needs another sign.
TEST_F(InPlaceTest, APauseIsNoSignWhereAllProgramsGiveOthers) {
  HostOptions options = asking();
  options.quiet_is_complete = false;
  Host a(cluster, options);
  const std::string half = code_path("half");
  const std::string whole = code_path("whole");
  ASSERT_TRUE(create(a, half, "half"));
  ASSERT_TRUE(a.publish_file(whole, "whole"));
  ASSERT_TRUE(a.sync());
  EXPECT_TRUE(is_in_cluster(a, whole));
  EXPECT_FALSE(is_in_cluster(a, half));
  EXPECT_EQ(kernel->questions(), 0U);
}

/// What a program of the mount's own environment wrote in place, where others' files stay here (--writers matching).
class LeftInPlace : public InPlaceTest {
 protected:
  [[nodiscard]] HostOptions matching() const {
    HostOptions options = asking();
    options.writers = std::make_shared<FakeWriters>();
    options.writers->set(own_pid(), fingerprint::Match::kMatches);
    return options;
  }
  void write_half(Host& a) {
    kernel->set(code, OpenState::kForWriting);
    ASSERT_TRUE(create(a, code, "half, "));
  }
  void is_published_when_closed(Host& a) {
    EXPECT_TRUE(is_not_synced_because(a, code + ": somebody has it open for writing")) << why_not_synced(a);
    EXPECT_FALSE(is_in_cluster(a, code));
    ASSERT_TRUE(a.append(code, "whole"));
    kernel->set(code, OpenState::kNotForWriting);
    ASSERT_TRUE(a.sync());
    EXPECT_TRUE(is_in_cluster(a, code));
    EXPECT_EQ(a.read(code).value_or(""), "half, whole");
  }

  const std::string code = code_path("code");
};

TEST_F(LeftInPlace, IsNotSealedByTheNextWorkerWhileSomebodyHasItOpen) {
  Host a(cluster, matching());
  write_half(a);
  a.take_over();
  is_published_when_closed(a);
}

TEST_F(LeftInPlace, IsNotSealedByTheNextMountWhileSomebodyHasItOpen) {
  Host a(cluster, matching());
  write_half(a);
  a.restart();
  is_published_when_closed(a);
}

TEST_F(LeftInPlace, SetIsNotSealedByTheNextMountWhileSomebodyHasAFileOfItOpen) {
  Host a(cluster, matching());
  const std::string member = directory + "/k.ttir";
  ASSERT_TRUE(a.triton_compile(directory, "first", own_pid()));
  ASSERT_TRUE(a.sync());
  a.stop();
  ASSERT_EQ(::removexattr((a.directory / "local/view/" + member).c_str(), "user.inductorfs.sealed"), 0);
  kernel->set(member, OpenState::kForWriting);
  a.start();
  EXPECT_TRUE(is_not_synced_because(a, member + ": somebody has it open for writing")) << why_not_synced(a);
  kernel->set(member, OpenState::kNotForWriting);
  ASSERT_TRUE(a.sync());
}

TEST_F(LeftInPlace, WhatIsWrittenInPlaceLaterStaysHereUnasked) {
  Host a(cluster, matching());
  a.restart();
  ASSERT_TRUE(create(a, code, "code"));
  ASSERT_TRUE(a.sync());
  EXPECT_FALSE(is_in_cluster(a, code));
  EXPECT_EQ(kernel->questions(), 0U);
}

/// vLLM's index, in place, under each policy: what a killed engine leaves of it.
class CutIndex : public InPlaceTest {
 protected:
  [[nodiscard]] HostOptions learned() const {
    HostOptions options = asking();
    options.writers = std::make_shared<FakeWriters>();
    options.writers->set(own_pid(), fingerprint::Match::kMatches);
    return options;
  }
  Result<void> write_artefact(Host& host, const std::string& bytes) const {
    INDUCTORFS_TRY(host.make_directories(rank));
    return host.publish_file(rank + "/" + artefact, bytes);
  }
  Result<void> write_half(Host& host) const {
    INDUCTORFS_TRY(write_artefact(host, "artefact"));
    return host.create(index, half);
  }
  void goes_and_may_be_made_anew(Host& host) {
    ASSERT_TRUE(host.sync());
    EXPECT_FALSE(host.exists(index));
    EXPECT_EQ(host.list(rank).value_or(std::vector<std::string>{}), std::vector<std::string>{artefact});
    ASSERT_TRUE(host.create(index, whole));
    ASSERT_TRUE(host.sync());
    EXPECT_EQ(host.read(index).value_or("absent"), whole);
    EXPECT_TRUE(is_in_cluster(host, index));
  }

  const std::string rank = "torch_compile_cache/0123456789/rank_0_0/backbone";
  const std::string index = rank + "/vllm_compile_cache.py";
  const std::string artefact = "artifact_compile_range_1_128_subgraph_0";
  const std::string whole =
      "{((1, 128), 0, 'inductor_standalone'): ('" + artefact + "', '/mnt/cache/" + rank + "/" + artefact + "')}";
  const std::string half = whole.substr(0, whole.size() / 2);
};

TEST_F(CutIndex, GoesWhenItsWriterIsGone) {
  Host a(cluster, learned());
  kernel->set(index, OpenState::kForWriting);
  ASSERT_TRUE(write_half(a));
  EXPECT_TRUE(is_not_synced_because(a, index + ": somebody has it open for writing")) << why_not_synced(a);
  EXPECT_EQ(a.read(index).value_or("absent"), half);
  kernel->set(index, OpenState::kNotForWriting);
  goes_and_may_be_made_anew(a);
  EXPECT_TRUE(eventually([&] { return a.kernel.told_name("vllm_compile_cache.py"); }));
  EXPECT_EQ(a.count("view.cut_index"), 1U);
}

TEST_F(CutIndex, GoesUnderThePoliciesThatExamineNobody) {
  for (const bool quiet_is_complete : {true, false}) {
    HostOptions options = asking();
    options.quiet_is_complete = quiet_is_complete;
    Host a(remote::make_memory_cluster(), options);
    ASSERT_TRUE(write_half(a));
    goes_and_may_be_made_anew(a);
  }
}

TEST_F(CutIndex, GoesThoughItIsOfAnotherEnvironment) {
  HostOptions options = learned();
  options.writers->set(own_pid(), fingerprint::Match::kDiffers);
  Host a(cluster, options);
  ASSERT_TRUE(write_half(a));
  ASSERT_TRUE(a.sync());
  EXPECT_FALSE(a.exists(index));
}

TEST_F(CutIndex, GoesWithoutAByteToo) {
  Host a(cluster, learned());
  kernel->set(index, OpenState::kForWriting);
  ASSERT_TRUE(write_artefact(a, "artefact"));
  ASSERT_TRUE(a.create(index, ""));
  EXPECT_FALSE(why_not_synced(a).empty());
  EXPECT_TRUE(a.exists(index)) << "its writer lives";
  kernel->set(index, OpenState::kNotForWriting);
  goes_and_may_be_made_anew(a);
}

TEST_F(CutIndex, GoesWhenAWholeOneWasThereBefore) {
  Host a(cluster, learned());
  ASSERT_TRUE(write_artefact(a, "artefact"));
  ASSERT_TRUE(a.create(index, whole));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(is_in_cluster(a, index));
  ASSERT_TRUE(a.truncate(index, 0));
  ASSERT_TRUE(a.append(index, half));
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.read(index).value_or("absent"), whole) << "the cluster's";
  EXPECT_EQ(a.count("view.cut_index"), 1U);
}

TEST_F(CutIndex, IsReadToTheEndByWhoHasItOpen) {
  Host a(cluster, learned());
  kernel->set(index, OpenState::kForWriting);
  ASSERT_TRUE(write_half(a));
  const auto found = a.look_up(index);
  ASSERT_TRUE(found);
  kernel->set(index, OpenState::kNotForWriting);
  ASSERT_TRUE(a.sync());
  ASSERT_FALSE(a.exists(index));
  std::string bytes(half.size() + 1, 0);
  EXPECT_EQ(a.data().read(found->node, bytes.data(), bytes.size(), 0).value_or(0), half.size());
}

TEST_F(CutIndex, StaysWhileTheKernelDoesNotTell) {
  Host a(cluster, learned());
  kernel->set(index, OpenState::kUnknown);
  ASSERT_TRUE(write_half(a));
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.read(index).value_or("absent"), half);
  EXPECT_EQ(a.count("view.cut_index"), 0U);
}

TEST_F(CutIndex, StaysWhenSomebodyWritesAfterTheQuestion) {
  Host a(cluster, learned());
  kernel->hold(true);
  ASSERT_TRUE(write_half(a));
  ASSERT_TRUE(kernel->wait_for_questions(0));
  ASSERT_TRUE(a.truncate(index, 0));  // by the next engine; nobody had it open, says the answer
  kernel->set(index, OpenState::kForWriting);
  const uint64_t asked = kernel->questions();
  kernel->hold(false);
  ASSERT_TRUE(kernel->wait_for_questions(asked));
  ASSERT_TRUE(a.append(index, whole));
  kernel->set(index, OpenState::kNotForWriting);
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.read(index).value_or("absent"), whole);
  EXPECT_TRUE(is_in_cluster(a, index));
}

TEST_F(CutIndex, GoesUnderTheNextWorkerWhenItsWriterIsGone) {
  Host a(cluster, learned());
  kernel->set(index, OpenState::kForWriting);
  ASSERT_TRUE(write_half(a));
  a.take_over();
  EXPECT_FALSE(why_not_synced(a).empty());
  EXPECT_EQ(a.read(index).value_or("absent"), half);
  kernel->set(index, OpenState::kNotForWriting);
  goes_and_may_be_made_anew(a);
  a.take_over();
  EXPECT_EQ(a.read(index).value_or("absent"), whole);
}

TEST_F(CutIndex, GoesUnderTheNextWorkerWhenAWholeOneWasThereBefore) {
  Host a(cluster, learned());
  ASSERT_TRUE(write_artefact(a, "artefact"));
  ASSERT_TRUE(a.create(index, whole));
  ASSERT_TRUE(a.sync());
  kernel->set(index, OpenState::kForWriting);
  ASSERT_TRUE(a.truncate(index, half.size()));
  a.take_over();
  EXPECT_FALSE(why_not_synced(a).empty());
  EXPECT_EQ(a.read(index).value_or("absent"), half);
  kernel->set(index, OpenState::kNotForWriting);
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.count("view.cut_index"), 1U);
  EXPECT_EQ(a.read(index).value_or("absent"), whole) << "the cluster's";
}

TEST_F(CutIndex, GoesBeforeTheNextMountIsUsed) {
  Host a(cluster, learned());
  kernel->set(index, OpenState::kForWriting);
  ASSERT_TRUE(write_half(a));
  a.restart();
  EXPECT_FALSE(a.exists(index)) << "whoever had it open lost the mount";
  kernel->set(index, OpenState::kNotForWriting);
  goes_and_may_be_made_anew(a);
}

TEST_F(CutIndex, IsNoneThatIsWholeAndOfNoUseToTheCluster) {
  Host a(cluster, learned());
  ASSERT_TRUE(a.make_directories(rank));
  ASSERT_TRUE(a.create(index, whole));  // names what is not there
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.read(index).value_or("absent"), whole);
  a.take_over();
  a.restart();
  EXPECT_EQ(a.read(index).value_or("absent"), whole);
}

}  // namespace
}  // namespace inductorfs::testing
