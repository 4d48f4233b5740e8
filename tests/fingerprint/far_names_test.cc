// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "inductorfs/fingerprint/trust.h"
#include "support/forked_examiner.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::ForkedExaminer;
using inductorfs::testing::says;

const std::string kNames(kNamesTask);

TEST(FarNames, AreThoseOfTheNameService) {
  const ForkedExaminer examiner({{kNames, names_task()}});
  const AskName ask = ask_names_by(examiner.link());
  EXPECT_EQ(ask(Account::kUser, 0).value_or("no answer"), "root");
  EXPECT_EQ(ask(Account::kGroup, 0).value_or("no answer"), "root");
  EXPECT_EQ(ask(Account::kGroupsOf, 65534).value_or("no answer"), "65534");
  EXPECT_EQ(ask(Account::kMembers, 4'000'000'001).value_or("no answer"), "");
  EXPECT_EQ(ask(Account::kUser, 4'000'000'001).value_or("no answer"), "");
}

TEST(FarNames, AreAskedByNumberAlone) {
  const ExaminerTask task = names_task();
  for (const char* lie :
       {"", "7", "[]", "{}", R"({"kind":0})", R"({"kind":4,"number":0})", R"({"kind":-1,"number":0})",
        R"({"kind":0,"number":-1})", R"({"kind":0,"number":4294967296})", R"({"kind":0,"number":1.5})",
        R"({"kind":0,"number":"--help"})", R"({"kind":"passwd","number":0})"}) {
    const std::string answer = task.answer({lie, -1, 0});
    EXPECT_EQ(answer.find(R"({"error":)"), 0U) << lie << answer;
  }
}

TEST(FarNames, AreNotTakenFromAnAnswerThatIsNone) {
  for (const char* lie : {"", "nonsense", "7", "[]", "{}", R"({"name":7})", R"({"name":"two\nlines"})",
                          R"({"error":"no"})", R"({"error":7})"}) {
    const ForkedExaminer examiner({{kNames, says(lie)}});
    EXPECT_FALSE(ask_names_by(examiner.link())(Account::kUser, 0)) << lie;
  }
}

}  // namespace
}  // namespace inductorfs::fingerprint
