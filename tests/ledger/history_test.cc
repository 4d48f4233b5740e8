// SPDX-License-Identifier: Apache-2.0
#include "history.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "inductorfs/ledger/ledger.h"
#include "records.h"
#include "report.h"
#include "support/fake_clock.h"
#include "support/temporary_directory.h"

namespace inductorfs::ledger {
namespace {

using std::chrono::seconds;
using testing::FakeClock;
using testing::TemporaryDirectory;
using vfs::UseKind;

std::string graph_key(char name) { return "fxgraph/" + std::string(2, name) + "/f" + std::string(51, name); }

FoundJob job(pid_t pid, uid_t user = 1000) {
  FoundJob found;
  found.name = {user, "process", std::to_string(pid)};
  found.process = {pid, 5};
  found.command = "python";
  found.script = "/opt/train.py";
  found.cpus = 4;
  found.variables = {{"RANK", "3"}};
  return found;
}

/// One worker after the other, in one store.
class HistoryTest : public ::testing::Test {
 protected:
  struct Worker {
    Worker(const std::string& directory, const Clock& clock) : books(clock), history(directory, clock) {
      books.with([this](Books& all) { history.load_totals(all); });
      history.load_jobs(books);
    }
    void enter(UseKind use, const std::string& path, const FoundJob& of, seconds took = seconds(0)) {
      vfs::UseNotice notice;
      notice.use = use;
      notice.path = path;
      notice.place = path;
      notice.environment = "e";
      notice.waited = seconds(use == UseKind::kFetched ? 2 : 0);
      notice.bytes = use == UseKind::kFetched ? 7 : 0;
      books.with([&](Books& all) {
        all.enter(notice, of, took.count() > 0 ? std::optional<std::chrono::nanoseconds>(took) : std::nullopt);
      });
    }
    Totals totals() {
      return books.with([](const Books& all) { return all.totals(); });
    }
    std::vector<JobAccount> jobs() {
      return books.with([](const Books& all) {
        std::vector<JobAccount> copies;
        for (const JobAccount* one : all.jobs()) copies.push_back(*one);
        return copies;
      });
    }
    Guarded<Books> books;
    History history;
  };
  std::string directory() const { return directory_.path() + "/ledger"; }
  Worker worker() { return {directory(), clock_}; }
  void write(const std::string& name, const std::string& text) { std::ofstream(directory() + "/" + name) << text; }
  TemporaryDirectory directory_;
  FakeClock clock_;
};

TEST_F(HistoryTest, TheNextWorkerGoesOnWithAll) {
  std::string totals;
  std::string first_job;
  {
    Worker one = worker();
    one.enter(UseKind::kCluster, graph_key('b'), job(1));
    one.enter(UseKind::kFetched, graph_key('b') + "/" + std::string(51, 'c'), job(1), seconds(9));
    one.enter(UseKind::kLate, graph_key('d'), job(1));
    one.enter(UseKind::kMade, graph_key('e'), job(2, 7));
    one.books.with([](Books& all) { all.enter_published(graph_key('e')); });
    one.history.save_now(one.books);
    totals = to_record({one.totals(), ""});
    first_job = to_record(one.jobs().back());
  }
  Worker next = worker();
  EXPECT_EQ(to_record({next.totals(), ""}), totals);
  ASSERT_EQ(next.jobs().size(), 2U);
  const JobAccount known = next.jobs().back();
  EXPECT_EQ(to_record(known), first_job);
  EXPECT_EQ(program_of(known), "python /opt/train.py");
  EXPECT_EQ(known.misses.at(0).why, UseKind::kLate);
  EXPECT_EQ(next.totals().saved, seconds(9));
  EXPECT_EQ(next.totals().tally.waited, seconds(2));
  next.enter(UseKind::kCluster, graph_key('b'), job(1));
  EXPECT_EQ(sum_of(next.totals().tally).cluster, 1U) << "the job lives, and has asked for it already";
  next.enter(UseKind::kNothing, graph_key('b'), job(3));
  EXPECT_EQ(next.jobs().front().number, 3U);
}

TEST_F(HistoryTest, ANumberIsGivenOnceThoughAWorkerIsKilled) {
  {
    Worker one = worker();
    one.enter(UseKind::kNothing, graph_key('b'), job(1));
    one.history.save(one.books);
    one.enter(UseKind::kNothing, graph_key('b'), job(2));
    one.history.save(one.books);  // at once, for the number's sake
    one.enter(UseKind::kNothing, graph_key('d'), job(2));
    one.history.save(one.books);  // this one has time, and is lost
  }
  Worker next = worker();
  EXPECT_EQ(sum_of(next.totals().tally).misses(), 2U);
  next.enter(UseKind::kNothing, graph_key('b'), job(4));
  EXPECT_EQ(next.jobs().front().number, 3U);
  next.history.save(next.books);
  clock_.advance(History::kEvery);
  next.enter(UseKind::kNothing, graph_key('d'), job(4));
  next.history.save(next.books);
  EXPECT_EQ(sum_of(worker().totals().tally).misses(), 4U);
  ASSERT_TRUE(std::filesystem::remove(directory() + "/totals"));
  Worker last = worker();
  last.enter(UseKind::kNothing, graph_key('b'), job(5));
  EXPECT_EQ(last.jobs().front().number, 4U) << "the jobs' own files have numbers, too";
}

TEST_F(HistoryTest, WhatCannotBeReadCostsNothingElse) {
  {
    Worker one = worker();
    for (pid_t pid = 1; pid <= 4; ++pid) one.enter(UseKind::kNothing, graph_key('b'), job(pid));
    one.history.save_now(one.books);
  }
  write("1", R"({"inductorfs-ledger":2,"number":1})");
  write("2", std::string(100, '\xff'));
  std::filesystem::resize_file(directory() + "/3", 50);
  write("totals", "[]");
  write("99.1.0.tmp", "cut");
  Worker next = worker();
  ASSERT_EQ(next.jobs().size(), 1U);
  EXPECT_EQ(next.jobs().front().number, 4U);
  EXPECT_EQ(sum_of(next.totals().tally).misses(), 0U);
  EXPECT_FALSE(std::filesystem::exists(directory() + "/1"));
  EXPECT_FALSE(std::filesystem::exists(directory() + "/99.1.0.tmp"));
  next.enter(UseKind::kNothing, graph_key('b'), job(9));
  EXPECT_EQ(next.jobs().front().number, 5U);
  next.history.save_now(next.books);
  EXPECT_EQ(sum_of(worker().totals().tally).misses(), 1U);
}

TEST_F(HistoryTest, AReasonOfALaterReleaseStays) {
  {
    Worker one = worker();
    one.enter(UseKind::kLate, graph_key('b'), job(1));
    one.history.save_now(one.books);
  }
  for (const char* name : {"totals", "1"}) {
    std::ifstream file(directory() + "/" + name);
    std::string text((std::istreambuf_iterator<char>(file)), {});
    for (size_t at = 0; (at = text.find("\"late\"", at)) != text.npos; ++at) text.replace(at, 6, "\"moon\"");
    write(name, text);
  }
  Worker next = worker();
  EXPECT_EQ(sum_of(next.totals().tally).misses(), 1U);
  EXPECT_EQ(next.jobs().front().misses.at(0).word, "moon");
  EXPECT_NE(to_record({next.totals(), ""}).find(R"("moon":1)"), std::string::npos);
  EXPECT_NE(to_record(next.jobs().front()).find(R"("why":"moon")"), std::string::npos);
}

TEST_F(HistoryTest, WhatIsKeptHasALimitForEachUser) {
  const auto files = [this] {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory()), {})) - 1;
  };
  Worker one = worker();
  for (pid_t pid = 1; pid <= 200; ++pid) one.enter(UseKind::kNothing, graph_key('b'), job(pid, 7));
  one.enter(UseKind::kNothing, graph_key('b'), job(300, 8));
  one.history.save_now(one.books);
  EXPECT_EQ(files(), Ledger::kMostJobsOfOne + 1);
  one.books.with([](Books& all) { (void)all.close_ended([](const ProcessId&) { return false; }); });
  clock_.advance(std::chrono::duration_cast<Milliseconds>(seconds(60)));
  one.books.with([](Books& all) { (void)all.close_ended([](const ProcessId&) { return false; }); });
  clock_.advance(std::chrono::duration_cast<Milliseconds>(std::chrono::hours(8 * 24)));
  one.enter(UseKind::kNothing, graph_key('d'), job(400));
  one.history.save_now(one.books);
  EXPECT_EQ(files(), 1U) << "a week ago";
  EXPECT_EQ(sum_of(worker().totals().tally).misses(), 202U);
}

TEST(Records, AJobWithLongPathsLeavesTheOldestMissesOut) {
  JobAccount job;
  for (size_t i = 0; i < Ledger::kMissesOfJob; ++i) job.misses.push_back({});
  for (Miss& miss : job.misses) miss.path = miss.place = std::string(4000, 'p');
  job.misses.back().path = "the last";
  const std::string record = to_record(job);
  EXPECT_LE(record.size(), kRecordLimit + 100);
  const auto kept = job_from(record);
  ASSERT_TRUE(kept);
  EXPECT_LT(kept->misses.size(), Ledger::kMissesOfJob);
  EXPECT_EQ(kept->misses.back().path, "the last");
}

TEST_F(HistoryTest, ADirectoryThatCannotBeMadeIsTriedAgain) {
  std::ofstream(directory()) << "a file is in the way";
  Worker one = worker();
  one.enter(UseKind::kNothing, graph_key('b'), job(1));
  one.history.save(one.books);
  EXPECT_NE(one.history.trouble().find(directory()), std::string::npos) << one.history.trouble();
  ASSERT_TRUE(std::filesystem::remove(directory()));
  one.history.save(one.books);
  EXPECT_TRUE(worker().jobs().empty()) << "not yet";
  clock_.advance(History::kAfterFailure);
  one.history.save(one.books);
  EXPECT_EQ(one.history.trouble(), "");
  EXPECT_EQ(worker().jobs().size(), 1U);
}

}  // namespace
}  // namespace inductorfs::ledger
