// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/inotify.h>

#include <csignal>

#include "inductorfs/base/fd.h"
#include "inductorfs/host/learn.h"
#include "inductorfs/host/place_reader.h"
#include "support/forked_examiner.h"
#include "support/learned_facts.h"
#include "support/patience.h"
#include "support/temporary_directory.h"

/// The examiner learns facts and looks at places for a worker; neither believes the other.
namespace inductorfs::host {
namespace {

using fingerprint::Facet;
using testing::ForkedExaminer;
using testing::says;

constexpr Milliseconds kLong{20'000 * testing::kSlowness};
const std::string kFacts(kFactsTask);
const std::string kPlaces(kPlacesTask);

void write(const std::string& path, const std::string& text) {
  ASSERT_TRUE(make_directories(path.substr(0, path.rfind('/'))).has_value());
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, path, text).has_value());
}

TEST(FactsOfAMount, GoToItsExaminerAsTheyAre) {
  FactsRequest request;
  request.file = "/a \xff file";
  request.python = "/p";
  request.packages_of_jobs = true;
  request.cache_file = "/store/fingerprint.cache";
  request.environment = {{"TRITON_DEFAULT_FP_FUSION", "0"}};
  const auto read = facts_request_from(to_bytes(request));
  ASSERT_TRUE(read) << read.error().what();
  EXPECT_EQ(read->file, request.file);
  EXPECT_EQ(read->python, request.python);
  EXPECT_TRUE(read->packages_of_jobs);
  EXPECT_EQ(read->cache_file, request.cache_file);
  EXPECT_EQ(read->environment, request.environment);
  for (const char* other : {"", "nonsense",
                            "\xa1\x64"
                            "form\x02"})
    EXPECT_FALSE(facts_request_from(other)) << other;
}

TEST(FarFacts, AreThoseOfTheMount) {
  const testing::TemporaryDirectory directory;
  FactsRequest request;
  request.file = directory / "f.json";
  write(request.file, testing::facts::all_known().to_json());
  const ForkedExaminer examiner({{kFacts, facts_task(request)}});
  const auto facts = learn_facts({examiner.link(), kLong, {}}, kLong);
  ASSERT_TRUE(facts) << facts.error().what();
  EXPECT_EQ(facts->get(Facet::kGpu).value, "v=gpu");
}

TEST(FarFacts, SayWhatIsWrongWithTheirFile) {
  const testing::TemporaryDirectory directory;
  FactsRequest request;
  request.file = directory / "absent";
  const ForkedExaminer examiner({{kFacts, facts_task(request)}});
  const auto facts = learn_facts({examiner.link(), kLong, {}}, kLong);
  ASSERT_FALSE(facts);
  EXPECT_EQ(facts.error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(facts.error().what(), learn_facts(request).error().what());
}

/// All that counts of a request is how long the worker waits.
TEST(FarFacts, AreOfNoFileOrProgramThatAWorkerNames) {
  const testing::TemporaryDirectory directory;
  FactsRequest request;
  request.file = directory / "f.json";
  write(request.file, testing::facts::all_known().to_json());
  const std::string mark = directory / "ran";
  const std::string program = directory / "program";
  write(program, "#!/bin/sh\ntouch " + mark + "\n");
  const ForkedExaminer examiner({{kFacts, facts_task(request)}});
  const std::string lie = R"({"file":"/etc/shadow","python":")" + program + R"(","cache":")" + mark +
                          R"(","program":")" + program + R"(","command":99999999999,"reader":-1})";
  const auto answer = examiner.link()->ask(kFactsTask, lie, Deadline::after(kLong));
  ASSERT_TRUE(answer) << answer.error().what();
  EXPECT_NE(answer->find("v=gpu"), std::string::npos) << *answer;
  for (const std::string& nonsense : {std::string(), std::string("7"), std::string("[]"), std::string(50'000, '[')}) {
    const auto none = examiner.link()->ask(kFactsTask, nonsense, Deadline::after(kLong));
    EXPECT_TRUE(none.value_or("").find("error") != std::string::npos) << nonsense.substr(0, 10);
  }
  EXPECT_FALSE(read_file(AT_FDCWD, mark, 1));
}

TEST(FarFacts, AreNotTakenFromAnAnswerThatIsNone) {
  for (const char* lie : {"", "nonsense", "7", "[]", "{}", R"({"facts":7})", R"({"facts":"nonsense"})",
                          R"({"facts":"{\"facets\":{\"torch\":7}}"})", R"({"error":999,"what":"x"})"}) {
    SCOPED_TRACE(lie);
    const ForkedExaminer examiner({{kFacts, says(lie)}});
    const auto facts = learn_facts({examiner.link(), kLong, {}}, kLong);
    ASSERT_FALSE(facts);
    EXPECT_EQ(facts.error().code(), ErrorCode::kUnavailable) << facts.error().what();
  }
}

TEST(FarFacts, AreUnavailableWhereNobodyCanLearnThem) {
  const ForkedExaminer without({});
  EXPECT_EQ(learn_facts({without.link(), kLong, {}}, kLong).error().code(), ErrorCode::kUnavailable);
}

TEST(FarFacts, AreNotWaitedForWhenTheMountEnds) {
  fingerprint::ExaminerTask sleeps;
  sleeps.answer = [](const fingerprint::ExaminerCall&) {
    (void)::pause();
    return std::string();
  };
  const ForkedExaminer examiner({{kFacts, sleeps}});
  const SteadyTime begun = system_clock().now();
  const auto ends = [begun] { return system_clock().now() - begun >= Milliseconds(300); };
  const auto facts = learn_facts({examiner.link(), kLong, ends}, kLong);
  ASSERT_FALSE(facts);
  EXPECT_EQ(facts.error().code(), ErrorCode::kUnavailable);
  EXPECT_LT(system_clock().now() - begun, kLong / 2);
}

TEST(FarFacts, AreNotWaitedForWhereNobodyTakesTheQuestion) {
  const ForkedExaminer examiner({});
  ASSERT_EQ(::kill(examiner.pid(), SIGSTOP), 0);
  const SteadyTime begun = system_clock().now();
  const auto facts = learn_facts({examiner.link(), 100 * kLong, when_none_answers(examiner.link())}, kLong);
  ASSERT_FALSE(facts);
  EXPECT_EQ(facts.error().code(), ErrorCode::kUnavailable);
  EXPECT_GE(system_clock().now() - begun, Milliseconds(10'000));
  EXPECT_LT(system_clock().now() - begun, Milliseconds(10'000) + kLong);
}

class FarPlaces : public ::testing::Test {
 protected:
  void SetUp() override {
    write(torch_ + "/__init__.py", "");
    write(torch_ + "/version.py", "1");
    write(torch_ + "/lib/libelsewhere.so", "");
    facts_.set(Facet::kTorch, {true, "v=1", torch_, {}, {}});
  }
  testing::TemporaryDirectory directory_;
  std::string site_ = directory_ / "venv/lib/python3.11/site-packages";
  std::string torch_ = site_ + "/torch";
  fingerprint::Fingerprint facts_;
};

TEST_F(FarPlaces, AreSeenAsThisProcessSeesThem) {
  const ForkedExaminer examiner({{kPlaces, places_task()}});
  const PlaceReader far(AskedExaminer{examiner.link(), kLong, {}});
  const PlaceReader self;
  const auto places = far.places(facts_);
  ASSERT_TRUE(places) << places.error().what();
  EXPECT_EQ(places->packages, std::vector<std::string>{torch_});
  EXPECT_EQ(places->files, self.places(facts_)->files);
  EXPECT_EQ(far.traces(*places).value_or("?"), self.traces(*places).value_or("!"));
  const auto libraries = far.library_places(facts_);
  ASSERT_TRUE(libraries) << libraries.error().what();
  EXPECT_EQ(libraries->directories, self.library_places(facts_)->directories);
  EXPECT_EQ(libraries->glibcxx, self.library_places(facts_)->glibcxx);
  EXPECT_EQ(far.find_library(libraries->directories, "libelsewhere.so").value_or(""), torch_ + "/lib/libelsewhere.so");
}

/// Whose filter it has (Examiner.HasWhatOnlyReadsDoNothingElse), also here.
TEST_F(FarPlaces, AreSeenByAChildThatOnlyReads) { EXPECT_TRUE(places_task().only_reads); }

TEST_F(FarPlaces, AreWatchedOnTheWorkersDescriptor) {
  const ForkedExaminer examiner({{kPlaces, places_task()}});
  const PlaceReader far(AskedExaminer{examiner.link(), kLong, {}});
  const Fd inotify(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  const auto watches = far.watch(inotify.get(), {torch_, site_, directory_ / "absent"}, kWatchable);
  ASSERT_TRUE(watches) << watches.error().what();
  EXPECT_GT(watches->at(0), 0);
  EXPECT_GT(watches->at(1), 0);
  EXPECT_EQ(watches->at(2), -ENOENT);
  write(torch_ + "/new.py", "");
  pollfd item{inotify.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, 0), 1);
}

/// What others make in directories of their own is not told to a worker that asks for it.
TEST_F(FarPlaces, AreWatchedWherePackagesAreAlone) {
  const ForkedExaminer examiner({{kPlaces, places_task()}});
  const PlaceReader far(AskedExaminer{examiner.link(), kLong, {}});
  const std::string mail = directory_ / "mail";
  const std::string source = directory_ / "source";
  write(mail + "/letter", "");
  write(source + "/triton/__init__.py", "");
  ASSERT_EQ(::symlink(mail.c_str(), (directory_ / "site-packages").c_str()), 0);
  const Fd inotify(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  const auto watches = far.watch(inotify.get(), {mail, directory_ / "site-packages", mail + "/letter", source},
                                 kWatchable | IN_OPEN | IN_ACCESS);
  ASSERT_TRUE(watches) << watches.error().what();
  EXPECT_EQ(watches->at(0), -EPERM);
  EXPECT_EQ(watches->at(1), -EPERM) << "a link's own name";
  EXPECT_EQ(watches->at(2), -ENOTDIR);
  EXPECT_GT(watches->at(3), 0);
  (void)read_file(AT_FDCWD, source + "/triton/__init__.py", 10);
  const Fd opened(::open(source.c_str(), O_RDONLY | O_CLOEXEC));
  write(mail + "/another", "");
  pollfd item{inotify.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, 0), 0) << "nor who opens what";
}

TEST_F(FarPlaces, AreNotTakenFromAnAnswerThatIsNone) {
  for (const char* lie : {"", "nonsense", "7", "[]", R"({"error":"no"})"}) {
    SCOPED_TRACE(lie);
    const ForkedExaminer examiner({{kPlaces, says(lie)}});
    const PlaceReader far(AskedExaminer{examiner.link(), kLong, {}});
    EXPECT_FALSE(far.places(facts_));
    EXPECT_FALSE(far.traces({}));
    EXPECT_FALSE(far.library_places(facts_));
    EXPECT_FALSE(far.find_library({"/"}, "x"));
    EXPECT_FALSE(far.watch(0, {"/"}, kWatchable));
  }
  const ForkedExaminer examiner({{kPlaces, places_task()}});
  for (const char* lie :
       {"", "nonsense", "{}", R"({"what":"x"})", R"({"what":7})", R"({"what":"watch","directories":7})"}) {
    const auto answer = examiner.link()->ask(kPlacesTask, lie, Deadline::after(kLong));
    ASSERT_TRUE(answer) << lie << answer.error().what();
    EXPECT_TRUE(answer->find("error") != std::string::npos || *answer == R"({"watches":[]})") << lie << *answer;
  }
}

}  // namespace
}  // namespace inductorfs::host
