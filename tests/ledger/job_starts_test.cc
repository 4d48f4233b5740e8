// SPDX-License-Identifier: Apache-2.0
#include "job_starts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/fake_clock.h"

namespace inductorfs::ledger {
namespace {

using std::chrono::seconds;
using testing::FakeClock;
using vfs::UseKind;

std::string graph(char name) { return "fxgraph/" + std::string(2, name) + "/f" + std::string(51, name); }
std::string source(char name) { return std::string(2, name) + "/c" + std::string(51, name) + ".cpp"; }

class JobStartsTest : public ::testing::Test {
 protected:
  static FoundJob job(pid_t pid, const std::string& id = "7", const std::string& kind = "slurm") {
    FoundJob found;
    found.name = {1000, kind, id};
    found.process = {pid, 5};
    return found;
  }
  void ask(UseKind use, const std::string& path, const FoundJob& of) {
    vfs::UseNotice notice;
    notice.use = use;
    notice.path = notice.place = path;
    starts_.enter(notice, of);
  }
  FakeClock clock_;
  std::vector<vfs::JobStart> told_;
  bool takes_ = true;
  JobStarts starts_{[this](const vfs::JobStart& start) {
                      if (takes_) told_.push_back(start);
                      return takes_;
                    },
                    clock_};
};

TEST_F(JobStartsTest, HaveWhatTheJobGotInTheOrderInWhichItAsked) {
  ask(UseKind::kNothing, graph('b'), job(1));
  ask(UseKind::kCluster, source('c'), job(1));
  ask(UseKind::kNothing, graph('d'), job(1));  // and never made
  ask(UseKind::kMade, graph('b') + "/" + std::string(51, 'b'), job(1));
  starts_.tell_ended();
  EXPECT_TRUE(told_.empty()) << "the job lives, and has asked just now";
  starts_.end(job(1).name);
  starts_.tell_ended();
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_EQ(told_[0].root, "");
  EXPECT_EQ(told_[0].keys, (std::vector<std::string>{graph('b'), source('c')}));
  EXPECT_EQ(told_[0].first, (std::vector<std::string>{graph('b'), graph('d')})) << "sources are asked for by all jobs";
  starts_.tell_ended();
  EXPECT_EQ(told_.size(), 1U) << "once";
}

TEST_F(JobStartsTest, BeginWithTheFirstNamesOfEachProcess) {
  for (const char name : {'b', 'c', 'd'}) ask(UseKind::kCluster, graph(name), job(1));
  for (const char name : {'b', 'e', 'f', 'g'}) ask(UseKind::kCluster, graph(name), job(2));
  starts_.end(job(1).name);
  starts_.tell_ended();
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_EQ(told_[0].first, (std::vector<std::string>{graph('b'), graph('c'), graph('e'), graph('f')}));
  EXPECT_EQ(told_[0].keys.size(), 6U);
}

TEST_F(JobStartsTest, AreOfOneRootAndOneJob) {
  ask(UseKind::kCluster, "x/" + graph('b'), job(1));
  ask(UseKind::kCluster, graph('c'), job(1));
  ask(UseKind::kCluster, graph('d'), job(2, "8"));
  ask(UseKind::kCluster, graph('e'), job(3, "", "hidden"));
  starts_.end(job(1).name);
  starts_.tell_ended();
  ASSERT_EQ(told_.size(), 2U);
  EXPECT_EQ(told_[0].keys, std::vector<std::string>{graph('c')});
  EXPECT_EQ(told_[1].root, "x");
  EXPECT_EQ(told_[1].keys, std::vector<std::string>{graph('b')});
  clock_.advance(Milliseconds(120'000));
  starts_.tell_ended();
  ASSERT_EQ(told_.size(), 3U) << "nobody knows whose the hidden ones are";
  EXPECT_EQ(told_[2].keys, std::vector<std::string>{graph('d')});
}

TEST_F(JobStartsTest, EndWhenTheJobIsQuietAndBeginAnew) {
  ask(UseKind::kCluster, graph('b'), job(1));
  clock_.advance(Milliseconds(59'000));
  starts_.tell_ended();
  ask(UseKind::kCluster, graph('c'), job(1));
  clock_.advance(Milliseconds(59'000));
  starts_.tell_ended();
  EXPECT_TRUE(told_.empty());
  clock_.advance(Milliseconds(1'000));
  starts_.tell_ended();
  ASSERT_EQ(told_.size(), 1U) << "a server never ends";
  EXPECT_EQ(told_[0].keys.size(), 2U);
  ask(UseKind::kCluster, graph('d'), job(1));
  clock_.advance(Milliseconds(60'000));
  starts_.tell_ended();
  ASSERT_EQ(told_.size(), 2U);
  EXPECT_EQ(told_[1].keys, std::vector<std::string>{graph('d')});
}

TEST_F(JobStartsTest, AreToldAgainForAWhile) {
  takes_ = false;
  ask(UseKind::kCluster, graph('b'), job(1));
  starts_.end(job(1).name);
  starts_.tell_ended();
  takes_ = true;
  starts_.tell_ended();
  EXPECT_EQ(told_.size(), 1U);
  takes_ = false;
  ask(UseKind::kCluster, graph('b'), job(1));
  starts_.end(job(1).name);
  clock_.advance(Milliseconds(120'000));
  starts_.tell_ended();
  takes_ = true;
  starts_.tell_ended();
  EXPECT_EQ(told_.size(), 1U) << "given up";
}

TEST_F(JobStartsTest, HaveALimit) {
  const auto name = [](size_t number) {
    std::string text = std::to_string(number);
    for (char& c : text) c = static_cast<char>('a' + (c - '0'));
    return std::string(51 - text.size(), 'z') + text;
  };
  const auto path = [&](size_t number) { return "zz/c" + name(number) + ".cpp"; };
  for (size_t i = 0; i < JobStarts::kMostBytes / 64; ++i) ask(UseKind::kCluster, path(i), job(1));
  ask(UseKind::kCluster, graph('b'), job(2, "8"));
  starts_.end(job(1).name);
  starts_.end(job(2, "8").name);
  starts_.tell_ended();
  ASSERT_EQ(told_.size(), 2U);
  const size_t each = 2 * path(0).size();
  EXPECT_EQ(told_[0].keys.size(), JobStarts::kMostBytes / each);
  EXPECT_TRUE(told_[1].keys.empty());
  ask(UseKind::kCluster, graph('b'), job(2, "8"));
  starts_.end(job(2, "8").name);
  starts_.tell_ended();
  ASSERT_EQ(told_.size(), 3U);
  EXPECT_EQ(told_[2].keys.size(), 1U) << "the memory was given back";
}

}  // namespace
}  // namespace inductorfs::ledger
