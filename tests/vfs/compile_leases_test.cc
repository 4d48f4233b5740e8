// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/compile_leases.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>

#include "vfs/host.h"
#include "vfs/process.h"

/// Processes of two hosts that want the same graph.
namespace inductorfs::testing {
namespace {

using std::chrono::milliseconds;

std::string graph(const std::string& seed) {
  const std::string key = code_name(seed, 'f');
  return "fxgraph/" + key.substr(1, 2) + "/" + key;
}
std::string content(const std::string& seed) { return "graph " + seed; }
std::string candidate(const std::string& seed) { return graph(seed) + "/" + codec::torch_hash(content(seed)); }

bool is_open(const std::future<void>& opened) { return opened.wait_for(milliseconds(0)) == std::future_status::ready; }

/// A server that may lose the right to answer about leases.
class FaultyLeases final : public remote::Leases {
 public:
  FaultyLeases(std::shared_ptr<remote::Leases> inner, std::shared_ptr<std::atomic<bool>> is_away)
      : inner_(std::move(inner)), is_away_(std::move(is_away)) {}
  Result<std::vector<remote::Lease>> hold_leases(std::span<const remote::LeaseName> names, const std::string& holder,
                                                 Milliseconds lifetime, Deadline deadline) override {
    if (*is_away_) return fail(ErrorCode::kUnavailable, "away");
    return inner_->hold_leases(names, holder, lifetime, deadline);
  }

 private:
  const std::shared_ptr<remote::Leases> inner_;
  const std::shared_ptr<std::atomic<bool>> is_away_;
};

class CompileLeasesTest : public ::testing::Test {
 protected:
  HostOptions with_limit(Milliseconds limit) const {
    HostOptions options;
    options.compile_once = limit;
    options.wrap_remote = [is_away = is_away_](auto inner) {
      inner.leases = std::make_shared<FaultyLeases>(inner.leases, is_away);
      return inner;
    };
    return options;
  }
  /// As torch: a miss of the key directory is what makes a process compile.
  static bool misses(Host& host, const Process& process, const std::string& seed) {
    const auto found = host.look_up(graph(seed), process.pid());
    EXPECT_TRUE(found || found.error().code() == ErrorCode::kNotFound);
    return !found;
  }
  static std::future<void> open(Host& host, const Process& process, const std::string& seed) {
    auto opened = host.open_directory(graph(seed), process.pid());
    return opened ? std::move(*opened) : std::future<void>();
  }
  static void compile(Host& host, const Process& process, const std::string& seed) {
    host.act_as(process.pid());
    ASSERT_TRUE(host.publish_file(candidate(seed), content(seed)));
    host.act_as(0);
  }

  // Before the hosts, whose locks they would inherit. Whoever compiles works.
  Process one_{Process::Work::kItself}, two_{Process::Work::kItself}, three_{Process::Work::kItself};
  std::shared_ptr<std::atomic<bool>> is_away_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<remote::MemoryCluster> cluster_ = remote::make_memory_cluster();
  Host a_{cluster_, with_limit(milliseconds(60'000))};
  Host b_{cluster_, with_limit(milliseconds(60'000))};
};

TEST_F(CompileLeasesTest, OneProcessCompilesAndTheOthersGetWhatItMade) {
  EXPECT_TRUE(misses(a_, one_, "g"));
  ASSERT_FALSE(misses(a_, two_, "g")) << "another process of the host";
  ASSERT_FALSE(misses(b_, three_, "g")) << "one of another host";
  const auto beside = open(a_, two_, "g");
  const auto elsewhere = open(b_, three_, "g");
  EXPECT_FALSE(is_open(beside) || is_open(elsewhere));
  compile(a_, one_, "g");
  EXPECT_EQ(beside.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(elsewhere.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(a_.read(candidate("g"), two_.pid()).value_or("absent"), content("g"));
  EXPECT_EQ(b_.read(candidate("g"), three_.pid()).value_or("absent"), content("g"));
  EXPECT_EQ(b_.list(graph("g")).value().size(), 1U);
  EXPECT_EQ(a_.count("leases.taken"), 1U);
  EXPECT_EQ(b_.count("leases.taken"), 0U);
  EXPECT_EQ(a_.count("leases.served"), 1U);
  EXPECT_EQ(b_.count("leases.served"), 1U);
  EXPECT_TRUE(is_open(open(b_, three_, "g"))) << "nobody waits for what is there";
}

TEST_F(CompileLeasesTest, TheNextCompilesWhereTheFirstHasEnded) {
  EXPECT_TRUE(misses(a_, one_, "g"));
  ASSERT_FALSE(misses(a_, two_, "g") || misses(b_, three_, "g"));
  const auto beside = open(a_, two_, "g");
  const auto elsewhere = open(b_, three_, "g");
  one_.end();
  EXPECT_EQ(beside.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_TRUE(a_.list(graph("g")).value().empty());
  EXPECT_FALSE(is_open(elsewhere)) << "the host's own next one compiles";
  two_.end();
  EXPECT_EQ(elsewhere.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_TRUE(b_.list(graph("g")).value().empty());
  EXPECT_EQ(b_.count("leases.taken"), 1U);
  EXPECT_EQ(b_.count("leases.served"), 0U);
  compile(b_, three_, "g");
  EXPECT_TRUE(a_.wait_for_entry(candidate("g")));
}

TEST_F(CompileLeasesTest, AProcessThatAsksForAnotherGraphHasFailed) {
  EXPECT_TRUE(misses(a_, one_, "g"));
  ASSERT_FALSE(misses(b_, two_, "g"));
  const auto opened = open(b_, two_, "g");
  EXPECT_TRUE(misses(a_, one_, "g")) << "it never waits for itself";
  EXPECT_FALSE(is_open(opened));
  EXPECT_TRUE(misses(a_, one_, "h"));
  EXPECT_EQ(opened.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_TRUE(b_.list(graph("g")).value().empty());
}

TEST_F(CompileLeasesTest, NoCircleOfProcessesWaits) {
  EXPECT_TRUE(misses(a_, one_, "g"));
  EXPECT_TRUE(misses(b_, two_, "h"));
  ASSERT_FALSE(misses(a_, one_, "h"));
  const auto first = open(a_, one_, "h");
  ASSERT_FALSE(is_open(first));
  // What the first one waits for is given back as soon as the second wants something else.
  (void)misses(b_, two_, "g");
  const auto second = open(b_, two_, "g");
  EXPECT_TRUE(eventually([&] { return is_open(first) && (!second.valid() || is_open(second)); }));
}

TEST_F(CompileLeasesTest, NobodyWaitsLongerThanTheLimit) {
  Host c(cluster_, with_limit(milliseconds(1500)));
  EXPECT_TRUE(misses(a_, one_, "g"));
  ASSERT_FALSE(misses(c, two_, "g"));
  const auto opened = open(c, two_, "g");
  EXPECT_EQ(opened.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(c.count("leases.too_long"), 1U);
  EXPECT_EQ(a_.count("leases.too_long"), 0U);
}

TEST_F(CompileLeasesTest, NobodyWaitsForAClusterThatIsAway) {
  EXPECT_TRUE(misses(a_, one_, "g"));
  ASSERT_FALSE(misses(b_, two_, "g"));
  const auto opened = open(b_, two_, "g");
  *is_away_ = true;
  EXPECT_EQ(opened.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_TRUE(misses(b_, three_, "h"));
  EXPECT_EQ(b_.count("leases.taken"), 0U);
}

TEST_F(CompileLeasesTest, WaitsEndWithTheMount) {
  EXPECT_TRUE(misses(a_, one_, "g"));
  ASSERT_FALSE(misses(b_, two_, "g"));
  const auto opened = open(b_, two_, "g");
  ASSERT_FALSE(is_open(opened));
  b_.stop();
  EXPECT_TRUE(is_open(opened));
  b_.start();
  a_.stop();
  const auto again = open(b_, three_, "g");
  EXPECT_EQ(again.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(b_.count("leases.taken"), 1U) << "what the mount had is given up";
  a_.start();
}

TEST_F(CompileLeasesTest, AProcessThatCannotBeSeenNeitherHasOneNorWaits) {
  EXPECT_TRUE(misses(a_, one_, "g"));
  EXPECT_EQ(b_.look_up(graph("g"), 1 << 30).error().code(), ErrorCode::kNotFound);
}

TEST_F(CompileLeasesTest, OnlyGraphsAreWaitedFor) {
  const std::string other = "aotautograd/" + code_name("x", 'a');
  EXPECT_FALSE(a_.look_up(other, one_.pid()));
  EXPECT_FALSE(b_.look_up(other, two_.pid()));
  EXPECT_FALSE(a_.look_up("fxgraph/ab/not a key", one_.pid()));
  EXPECT_EQ(a_.count("leases.taken"), 0U);
}

TEST_F(CompileLeasesTest, AllRequestsOfAProcessGoOn) {
  EXPECT_TRUE(misses(a_, one_, "g"));
  ASSERT_FALSE(misses(a_, two_, "g"));
  const auto first = open(a_, two_, "g");
  const auto again = open(a_, two_, "g");  // another thread, or the same request after a takeover
  const auto other = open(a_, three_, "g");
  one_.end();
  EXPECT_EQ(first.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(again.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_FALSE(is_open(other));
}

TEST_F(CompileLeasesTest, AHitOfAnotherGraphEndsOne) {
  compile(a_, one_, "h");
  EXPECT_TRUE(misses(a_, one_, "g"));
  ASSERT_FALSE(misses(a_, two_, "g"));
  const auto opened = open(a_, two_, "g");
  ASSERT_FALSE(is_open(opened));
  EXPECT_TRUE(is_open(open(a_, one_, "h")));
  EXPECT_TRUE(is_open(opened));
}

TEST_F(CompileLeasesTest, WhatNeverReachesTheClusterIsWaitedForOnce) {
  HostOptions foreign = with_limit(milliseconds(10'000));
  foreign.writers = std::make_shared<FakeWriters>();
  foreign.writers->set_others(fingerprint::Match::kDiffers);
  Host c(cluster_, foreign);
  const auto begun = std::chrono::steady_clock::now();
  for (const char* seed : {"g", "h", "i"}) {
    EXPECT_TRUE(misses(c, one_, seed));
    ASSERT_FALSE(misses(b_, two_, seed));
    const auto opened = open(b_, two_, seed);
    compile(c, one_, seed);
    EXPECT_EQ(opened.wait_for(std::chrono::seconds(40)), std::future_status::ready);
    EXPECT_TRUE(b_.list(graph(seed)).value().empty());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(28)) << "the first alone takes 10 s";
}

TEST_F(CompileLeasesTest, AUserHasALimitOfWaits) {
  EXPECT_TRUE(misses(a_, one_, "g"));
  ASSERT_FALSE(misses(a_, two_, "g"));
  std::vector<std::future<void>> opened;
  for (int i = 0; i < 129; ++i) opened.push_back(open(a_, two_, "g"));
  EXPECT_FALSE(is_open(opened[127]));
  EXPECT_TRUE(is_open(opened[128]));
  compile(a_, one_, "g");
  EXPECT_EQ(opened[0].wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(a_.count("leases.served"), 128U);
}

TEST_F(CompileLeasesTest, NothingOfItIsThereWithoutTheOption) {
  Host plain(cluster_);
  EXPECT_FALSE(plain.names().waits_at_directories());
  EXPECT_TRUE(misses(plain, one_, "g"));
  EXPECT_TRUE(misses(plain, two_, "g"));
  EXPECT_FALSE(plain.exists("fxgraph"));
  EXPECT_EQ(plain.count("leases.taken"), 0U);
}

}  // namespace
}  // namespace inductorfs::testing
