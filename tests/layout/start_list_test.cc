// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/layout/start_list.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "inductorfs/layout/layout.h"
#include "sample_names.h"

namespace inductorfs::layout {
namespace {

std::vector<std::string> words_of(const std::vector<StartKey>& keys) {
  std::vector<std::string> words;
  for (const StartKey& one : keys) words.push_back(std::to_string(one.passed_over) + " " + one.key);
  return words;
}

TEST(StartList, ComesBackAsItWasWritten) {
  const std::vector<StartKey> keys{{"fxgraph/ab/f", 0}, {"triton/@/K", 2}, {"ab/c.py", 9}};
  const auto read = start_list_keys(start_list_text(keys));
  ASSERT_TRUE(read);
  EXPECT_EQ(words_of(*read), words_of(keys));
  EXPECT_TRUE(start_list_keys(start_list_text({}))->empty());
}

TEST(StartList, HasAPathThatNoProgramUses) {
  const std::string path = start_list_path("fxgraph/ab/f");
  EXPECT_TRUE(is_start_list(path));
  EXPECT_NE(path, start_list_path("fxgraph/ab/g"));
  EXPECT_EQ(classify(path).family, Family::kStartList);
  EXPECT_EQ(classify(path).canonical, path);
  for (const std::string& other : {path + "0", path + "/x", "x/" + path, path.substr(1), std::string(".starts")}) {
    EXPECT_FALSE(is_start_list(other)) << other;
    EXPECT_NE(classify(other).family, Family::kStartList) << other;
  }
}

TEST(StartList, RefusesWhatIsNone) {
  const std::string good = start_list_text({{"ab/c.py", 0}});
  EXPECT_FALSE(start_list_keys(""));
  EXPECT_FALSE(start_list_keys("inductorfs-starts-v2\n0 ab/c.py\n"));
  for (size_t cut = 1; cut < good.size(); ++cut) {
    const auto read = start_list_keys(good.substr(0, cut));
    EXPECT_TRUE(!read || read->empty()) << cut;
  }
  for (const char* line : {"0 /etc/passwd", "0 ../x", "0 a//b", "x ab/c.py", "0ab/c.py", "0 ", ""}) {
    EXPECT_FALSE(start_list_keys(good + line + "\n")) << line;
  }
  EXPECT_FALSE(start_list_keys(good + "0 " + std::string(2000, 'a') + "\n"));
  EXPECT_FALSE(start_list_keys(good + std::string(kStartListBytes, 'a')));
}

TEST(StartList, IsCheckedBeforeItIsUsed) {
  const Classification list = classify(start_list_path("ab/c.py"));
  const std::string good = start_list_text({{"ab/c.py", 0}});
  EXPECT_TRUE(check_content(list, good, good.size()));
  EXPECT_EQ(check_content(list, "0 ab/c.py\n", 10).error().code(), ErrorCode::kCorrupt);
}

TEST(StartList, KeepsToItsLimits) {
  std::vector<StartKey> keys;
  for (size_t i = 0; i < kStartListKeys + 5; ++i) keys.push_back({"ab/" + std::to_string(i), 0});
  const auto many = start_list_keys(start_list_text(keys));
  ASSERT_TRUE(many);
  EXPECT_EQ(many->size(), kStartListKeys);
  EXPECT_EQ(many->front().key, "ab/0");
  for (StartKey& one : keys) one.key = std::string(1000, 'a') + one.key.substr(2);
  const std::string large = start_list_text(keys);
  EXPECT_LE(large.size(), kStartListBytes);
  EXPECT_TRUE(start_list_keys(large));
}

TEST(StartList, ForgetsWhatSeveralStartsInARowHaveNotAskedFor) {
  std::vector<StartKey> list = next_start_list({}, {"a", "b", "b", "c"}, true);
  EXPECT_EQ(words_of(list), (std::vector<std::string>{"0 a", "0 b", "0 c"}));
  list = next_start_list(list, {"c", "d"}, true);
  EXPECT_EQ(words_of(list), (std::vector<std::string>{"0 c", "0 d", "1 a", "1 b"}));
  list = next_start_list(list, {"c", "b"}, false);
  EXPECT_EQ(words_of(list), (std::vector<std::string>{"0 c", "0 b", "0 d", "1 a"})) << "it cannot tell";
  for (unsigned i = 0; i < kForgotten; ++i) list = next_start_list(list, {"c"}, true);
  EXPECT_EQ(words_of(list), std::vector<std::string>{"0 c"});
}

}  // namespace
}  // namespace inductorfs::layout
