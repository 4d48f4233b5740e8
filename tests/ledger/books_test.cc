// SPDX-License-Identifier: Apache-2.0
#include "books.h"

#include <gtest/gtest.h>

#include <string>

#include "inductorfs/config/json.h"
#include "inductorfs/ledger/ledger.h"
#include "report.h"
#include "support/fake_clock.h"
#include "verdict.h"

namespace inductorfs::ledger {
namespace {

using testing::FakeClock;

using config::Json;
using layout::Family;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using vfs::UseKind;

std::string graph_key(char name) { return "fxgraph/" + std::string(2, name) + "/f" + std::string(51, name); }
std::string code(char name) { return std::string(2, name) + "/c" + std::string(51, name) + ".py"; }

std::string code(int number) {
  std::string name = std::string(47, 'b') + "aaaa";
  for (size_t at = name.size(); number > 0; number /= 26) name[--at] = static_cast<char>('a' + number % 26);
  return "bb/c" + name + ".py";
}

class BooksTest : public ::testing::Test {
 protected:
  static FoundJob job(pid_t pid, uid_t user = 1000) {
    FoundJob found;
    found.name = {user, "process", std::to_string(pid)};
    found.process = {pid, 5};
    found.command = "python3";
    return found;
  }
  static vfs::UseNotice notice(UseKind use, const std::string& path) {
    vfs::UseNotice one;
    one.use = use;
    one.path = path;
    one.place = path;
    return one;
  }
  void enter(UseKind use, const std::string& path, const FoundJob& of) { books_.enter(notice(use, path), of, {}); }
  FamilyTally tally(Family family) const {
    const auto found = books_.totals().tally.families.find(family);
    return found == books_.totals().tally.families.end() ? FamilyTally{} : found->second;
  }
  std::vector<const JobAccount*> end_all() {
    const auto none = [](const ProcessId&) { return false; };
    EXPECT_TRUE(books_.close_ended(none).empty()) << "a launcher may start it again at once";
    clock_.advance(Milliseconds(31'000));
    return books_.close_ended(none);
  }
  FakeClock clock_;
  Books books_{clock_};
};

TEST_F(BooksTest, AKeyCountsOnceForEachJob) {
  for (int i = 0; i < 3; ++i) enter(UseKind::kCluster, graph_key('b'), job(1));
  enter(UseKind::kLocal, graph_key('b'), job(2));
  EXPECT_EQ(tally(Family::kFxGraph).cluster, 1U);
  EXPECT_EQ(tally(Family::kFxGraph).local, 1U);
  EXPECT_EQ(books_.jobs().size(), 2U);
}

TEST_F(BooksTest, KeysBeyondTheLimitAreSaidToBeLeftOut) {
  constexpr int kFurther = 3;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < static_cast<int>(Books::kMostKeys) + kFurther; ++i) enter(UseKind::kNothing, code(i), job(1));
  }
  EXPECT_EQ(sum_of(books_.totals().tally).misses(), Books::kMostKeys) << "and no key twice";
  EXPECT_EQ(job_report(*books_.jobs().front(), {}, {}).at("not_counted"), 2 * kFurther);
  EXPECT_EQ(books_.totals().not_counted, 2U * kFurther);
}

TEST_F(BooksTest, WhatAJobMadeItselfIsNoHit) {
  enter(UseKind::kNothing, graph_key('b'), job(1));
  enter(UseKind::kNothing, graph_key('b'), job(1));
  enter(UseKind::kMade, graph_key('b') + "/" + std::string(51, 'c'), job(1));
  enter(UseKind::kMade, graph_key('b') + "/" + std::string(51, 'd'), job(1));
  enter(UseKind::kLocal, graph_key('b'), job(1));
  EXPECT_EQ(tally(Family::kFxGraph).misses(), 1U);
  EXPECT_EQ(tally(Family::kFxGraph).made, 1U);
  EXPECT_EQ(tally(Family::kFxGraph).local, 0U);
  ASSERT_EQ(books_.jobs().front()->misses.size(), 1U);
  EXPECT_EQ(books_.jobs().front()->misses.front().path, graph_key('b'));
}

TEST_F(BooksTest, FetchesCountBytesAndTheSlowest) {
  vfs::UseNotice one = notice(UseKind::kFetched, code('b'));
  one.bytes = 100;
  one.waited = seconds(1);
  books_.enter(one, job(1), {});
  one.path = code('d');
  one.waited = seconds(3);
  books_.enter(one, job(1), {});
  EXPECT_EQ(tally(Family::kGeneratedCode).fetched, 2U);
  EXPECT_EQ(tally(Family::kGeneratedCode).bytes, 200U);
  EXPECT_EQ(books_.jobs().front()->slowest.path, code('d'));
  EXPECT_EQ(books_.totals().tally.waited, seconds(4));
}

TEST_F(BooksTest, SavedTimeIsNeverTooMuch) {
  const std::string key = graph_key('b');
  const auto open = [&](char name, nanoseconds took) {
    books_.enter(notice(UseKind::kCluster, key + "/" + std::string(51, name)), job(1), took);
  };
  enter(UseKind::kCluster, key, job(1));
  open('c', seconds(9));
  open('d', seconds(7));
  open('c', seconds(9));
  EXPECT_EQ(books_.totals().saved, seconds(7)) << "torch took one of the candidates at most";
  EXPECT_EQ(books_.jobs().front()->saved, seconds(7));
  enter(UseKind::kMade, key + "/" + std::string(51, 'e'), job(1));
  EXPECT_EQ(books_.totals().saved, seconds(0)) << "it compiled all the same";
  const std::string model = "torch_compile_cache/torch_aot_compile/" + std::string(64, 'a') + "/rank_0_0/model";
  for (int i = 0; i < 2; ++i) books_.enter(notice(UseKind::kCluster, model), job(1), seconds(5));
  EXPECT_EQ(books_.totals().saved, seconds(5)) << "the key is the file's own, and counts once";
  enter(UseKind::kMade, model, job(1));
  open('c', seconds(9));
  EXPECT_EQ(books_.totals().saved, seconds(0));
}

TEST_F(BooksTest, WhatIsPublishedCountsForWhoMadeIt) {
  enter(UseKind::kMade, graph_key('b') + "/" + std::string(51, 'c'), job(1));
  enter(UseKind::kMade, code('d'), job(2));
  books_.enter_published(code('d'));
  books_.enter_published(code('d'));
  books_.enter_published(graph_key('b') + "/" + std::string(51, 'c'));
  books_.enter_published(code('z'));
  books_.enter_published("");
  EXPECT_EQ(tally(Family::kGeneratedCode).published, 1U);
  EXPECT_EQ(tally(Family::kFxGraph).published, 1U);
  EXPECT_EQ(sum_of(books_.jobs().front()->tally).published, 1U);
}

TEST_F(BooksTest, TheLastHourForgets) {
  enter(UseKind::kNothing, code('b'), job(1));
  clock_.advance(std::chrono::minutes(50));
  enter(UseKind::kNothing, code('d'), job(1));
  EXPECT_EQ(sum_of(books_.last_hour()).misses(), 2U);
  clock_.advance(std::chrono::minutes(15));
  EXPECT_EQ(sum_of(books_.last_hour()).misses(), 1U);
  clock_.advance(std::chrono::minutes(60));
  EXPECT_EQ(sum_of(books_.last_hour()).misses(), 0U);
  EXPECT_EQ(sum_of(books_.totals().tally).misses(), 2U);
}

TEST_F(BooksTest, AJobEndsWithItsLastProcess) {
  enter(UseKind::kNothing, code('b'), job(1));
  const auto lives = [](const ProcessId& one) { return one.pid == 1; };
  EXPECT_TRUE(books_.close_ended(lives).empty());
  const auto ended = end_all();
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended.front()->number, 1U);
  EXPECT_NE(ended.front()->ended, 0);
  enter(UseKind::kNothing, code('b'), job(1));
  EXPECT_EQ(books_.jobs().front()->number, 2U) << "a later process of the same number is another job";
  EXPECT_EQ(sum_of(books_.totals().tally).misses(), 2U);
}

TEST_F(BooksTest, WhatGrowsHasALimit) {
  for (pid_t pid = 1; pid <= 100; ++pid) enter(UseKind::kNothing, code('b'), job(pid, 7));
  EXPECT_EQ(books_.jobs().size(), Ledger::kMostJobsOfOne);
  for (pid_t pid = 1; pid <= 1000; ++pid) {
    enter(UseKind::kNothing, code('b'), job(pid, 1000 + static_cast<uid_t>(pid) / 50));
  }
  EXPECT_EQ(books_.jobs().size(), Ledger::kMostJobs);
  FoundJob many = job(5000);
  for (int i = 0; i < 10'000; ++i) {
    many.process = {6000 + i, 1};
    many.variables["RANK"] = std::to_string(i);
    enter(UseKind::kNothing, code(i), many);
  }
  const JobAccount& job = *books_.jobs().front();
  EXPECT_EQ(job.misses.size(), Ledger::kMissesOfJob);
  EXPECT_LE(job.variables.at("RANK").size(), 8U);
  EXPECT_LE(job.processes, 256U);
}

TEST_F(BooksTest, AUserWithManyJobsTakesNoneOfAnothers) {
  enter(UseKind::kNothing, code('b'), job(1, 42));
  for (pid_t pid = 1; pid <= 500; ++pid) enter(UseKind::kNothing, code('b'), job(pid, 7));
  EXPECT_EQ(books_.jobs().back()->name.user, 42U);
}

TEST_F(BooksTest, HintsNameANumberOfThreadsThatDiffers) {
  const auto hints = [this] { return job_report(*books_.jobs().front(), books_.jobs(), {}).at("hints"); };
  const auto of = [](pid_t pid, const char* script, const char* threads) {
    FoundJob one = job(pid);
    one.script = script;
    one.cpus = 8;
    if (threads != nullptr) one.variables = {{"OMP_NUM_THREADS", threads}};
    return one;
  };
  enter(UseKind::kMade, code('b'), of(1, "train.py", "8"));
  enter(UseKind::kNothing, code('d'), of(2, "train.py", "1"));
  ASSERT_EQ(hints().size(), 1U) << hints().dump();
  EXPECT_EQ(hints().at(0).get<std::string>().find("OMP_NUM_THREADS is 1 here and 8 in job 1"), 0U);
  EXPECT_TRUE(job_report(*books_.jobs().back(), books_.jobs(), {}).at("hints").empty()) << "it missed nothing";
  enter(UseKind::kNothing, code('d'), of(3, "another.py", "2"));
  EXPECT_TRUE(hints().empty()) << "another script asks for other keys";
  enter(UseKind::kNothing, code('d'), of(4, "-c", "2"));
  enter(UseKind::kNothing, code('d'), of(5, "-c", "4"));
  EXPECT_TRUE(hints().empty()) << "who knows what either runs";
  enter(UseKind::kNothing, code('d'), of(6, "another.py", "8"));
  EXPECT_EQ(hints().size(), 1U);
  enter(UseKind::kNothing, code('d'), of(7, "unset.py", "8"));
  enter(UseKind::kNothing, code('d'), of(8, "unset.py", nullptr));
  EXPECT_TRUE(hints().empty()) << "as many as it has CPUs";
  enter(UseKind::kNothing, code('d'), of(9, "unset.py", "4"));
  ASSERT_EQ(hints().size(), 1U);
  EXPECT_EQ(hints().at(0).get<std::string>().find("OMP_NUM_THREADS is 4 here and 8 in job 7"), 0U);
  enter(UseKind::kNothing, code('d'), of(10, "two.py", "2"));
  enter(UseKind::kNothing, code('d'), of(11, "two.py", nullptr));
  ASSERT_EQ(hints().size(), 1U);
  EXPECT_EQ(hints().at(0).get<std::string>().find("OMP_NUM_THREADS is not set (8 CPUs) here and 2 in job 10"), 0U);
}

TEST_F(BooksTest, HintsNameRanksThatDiffer) {
  FoundJob rank = job(2);
  rank.variables = {{"OMP_NUM_THREADS", "1"}};
  enter(UseKind::kNothing, code('d'), rank);
  rank.process.pid = 3;
  rank.variables = {{"OMP_NUM_THREADS", "4"}};
  enter(UseKind::kNothing, code('e'), rank);
  const Json ranks = job_report(*books_.jobs().front(), books_.jobs(), {});
  EXPECT_NE(ranks.at("hints").dump().find("not the same for all processes of this job (1, 4)"), std::string::npos);
  enter(UseKind::kNothing, "torch_compile_cache/torch_aot_compile/" + std::string(64, 'a') + "/rank_0_0/model", rank);
  EXPECT_TRUE(job_report(*books_.jobs().front(), books_.jobs(), {}).at("hints").empty())
      << "vLLM gives its processes different numbers of threads by itself";
}

TEST_F(BooksTest, EachProgramOfEachUserHasItsFigures) {
  FoundJob one = job(1);
  one.script = "a.py";
  enter(UseKind::kLocal, code('b'), one);
  enter(UseKind::kNothing, code('d'), one);
  enter(UseKind::kCluster, code('b'), job(2, 7));
  FoundJob hidden = job(3);
  hidden.name = {0, "hidden", ""};
  enter(UseKind::kNothing, code('b'), hidden);
  const Json users = stats_report(books_, std::nullopt).at("users");
  ASSERT_EQ(users.size(), 3U) << users.dump();
  EXPECT_EQ(users.at(0).at("user"), 7);
  EXPECT_EQ(users.at(0).at("hit_percent"), 100.0);
  EXPECT_EQ(users.at(1).at("programs").at(0).at("program"), "python3 a.py");
  EXPECT_EQ(users.at(1).at("hit_percent"), 50.0);
  EXPECT_TRUE(users.at(2).at("user").is_null()) << "nobody knows whose it was";
  EXPECT_EQ(stats_report(books_, 7).at("users").size(), 1U);
  for (pid_t pid = 10; pid < 100; ++pid) {
    one.process.pid = pid;
    one.name.id = std::to_string(pid);
    one.script = std::to_string(pid);
    enter(UseKind::kLocal, code('b'), one);
  }
  const Json many = stats_report(books_, 1000).at("users").at(0);
  EXPECT_EQ(many.at("asked"), 92);
  EXPECT_LE(many.at("programs").size(), 33U);
}

TEST_F(BooksTest, OtherMissesHaveHintsToo) {
  for (const UseKind why : {UseKind::kPrivate, UseKind::kLate, UseKind::kLost}) enter(why, code('b'), job(1));
  EXPECT_EQ(job_report(*books_.jobs().front(), books_.jobs(), {}).at("hints").size(), 1U) << "one key, one miss";
  enter(UseKind::kLate, code('d'), job(1));
  enter(UseKind::kLost, code('e'), job(1));
  EXPECT_EQ(job_report(*books_.jobs().front(), books_.jobs(), {}).at("hints").size(), 3U);
}

TEST_F(BooksTest, WhatIsFoundAndMadeAgainWasRefused) {
  enter(UseKind::kCluster, graph_key('b'), job(1));
  enter(UseKind::kMade, graph_key('b') + "/" + std::string(51, 'c'), job(1));
  enter(UseKind::kCluster, code('d'), job(1));
  enter(UseKind::kMade, code('d'), job(1));
  EXPECT_EQ(tally(Family::kFxGraph).refused, 1U);
  EXPECT_EQ(tally(Family::kFxGraph).misses(), 0U);
  EXPECT_EQ(tally(Family::kGeneratedCode).refused, 0U) << "it is written at each start";
  const Json reasons = reasons_report(*books_.jobs().front());
  ASSERT_EQ(reasons.size(), 1U) << reasons;
  EXPECT_EQ(reasons.at(0).at("reason"), "refused");
  EXPECT_TRUE(books_.take_questions().empty()) << "nobody else knows more of it";
}

TEST_F(BooksTest, AsksAboutSomeOfTheMissesThatLookAlike) {
  for (int i = 0; i < 100; ++i) enter(UseKind::kNothing, code(i), job(1));
  enter(UseKind::kFrozen, code(200), job(1));
  enter(UseKind::kNothing, graph_key('b'), job(1));
  const std::vector<MissQuestion> asked = books_.take_questions();
  ASSERT_EQ(asked.size(), 7U) << "the first two, 4, 16 and 64 of a hundred; one; and one";
  EXPECT_TRUE(books_.take_questions().empty());
  const auto explain = [&](size_t at, const char* reason) {
    books_.note_explained(asked[at], reason, config::to_line({{"reason", reason}, {"text", "because"}}));
  };
  const auto reasons = [&] {
    std::map<std::string, int> counts;
    for (const Json& one : reasons_report(*books_.jobs().front())) counts[one.at("reason")] = one.at("count");
    return counts;
  };
  using Counts = std::map<std::string, int>;
  EXPECT_EQ(reasons(), (Counts{{"nothing", 101}, {"frozen", 1}}));
  explain(0, "first");
  EXPECT_EQ(reasons(), (Counts{{"first", 100}, {"nothing", 1}, {"frozen", 1}})) << "though its path is forgotten";
  EXPECT_EQ(reasons_report(*books_.jobs().front()).at(1).at("asked"), 1);
  explain(1, "facts");
  EXPECT_EQ(reasons(), (Counts{{"first", 1}, {"facts", 1}, {"nothing", 99}, {"frozen", 1}})) << "they are not alike";
  explain(6, "facts");
  EXPECT_EQ(reasons(), (Counts{{"first", 1}, {"facts", 2}, {"nothing", 98}, {"frozen", 1}}));
  EXPECT_EQ(reasons_report(*books_.jobs().front()).at(0).at("reason"), "facts") << "a graph is among them";
  EXPECT_EQ(reasons_report(*books_.jobs().front()).at(1).at("reason"), "nothing") << "then the most frequent";
}

TEST_F(BooksTest, AsksAgainAboutMissesOfWhichNothingWasFoundOut) {
  for (int i = 0; i < 10; ++i) enter(UseKind::kNothing, code(i), job(1));
  enter(UseKind::kFrozen, code(20), job(1));
  const std::vector<MissQuestion> asked = books_.take_questions();
  books_.note_explained(asked.back(), "frozen", "{}");
  books_.ask_again(1);
  const std::vector<MissQuestion> again = books_.take_questions();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again.front().why, UseKind::kNothing);
  books_.ask_again(4711);
  EXPECT_TRUE(books_.take_questions().empty());
}

}  // namespace
}  // namespace inductorfs::ledger
