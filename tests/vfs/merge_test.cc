// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

#include "vfs/host.h"

/// Files that every node changes and the cluster merges (cache/<system hash>).
namespace inductorfs::testing {
namespace {

constexpr int kRounds = 150;

std::string system_hash() { return std::string(64, 'a'); }
std::string timings_path() { return "cache/" + system_hash(); }

/// The choices that a file of torch's form has timings of.
std::set<std::string> choices_in(const std::string& text) {
  std::set<std::string> found;
  for (size_t at = text.find("choice-"); at != std::string::npos; at = text.find("choice-", at + 1)) {
    found.insert(text.substr(at, text.find('"', at) - at));
  }
  return found;
}

std::string file_of(const std::set<std::string>& choices) {
  std::string text = R"({"system": {"hash": ")" + system_hash() + R"("}, "cache": {"mm": {"inputs": {"highest": {)";
  for (const std::string& choice : choices) text += (text.ends_with('{') ? "\"" : ", \"") + choice + "\": 0.5";
  return text + "}}}}}";
}

/// torch's PersistentCache.lookup and update_local_cache, without any lock between nodes.
void add_timings(Host& host, const std::string& writer) {
  for (int i = 0; i < kRounds; ++i) {
    auto choices = choices_in(host.read(timings_path()).value_or(""));
    choices.insert("choice-" + writer + "-" + std::to_string(i));
    ASSERT_TRUE(host.publish_file(timings_path(), file_of(choices)));
  }
}

TEST(Merge, LosesNoTimingWhileTwoNodesWriteAtOnce) {
  const auto cluster = remote::make_memory_cluster();
  Host a(cluster);
  Host b(cluster);
  std::thread other([&] { add_timings(b, "b"); });
  add_timings(a, "a");
  other.join();
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.sync());

  std::set<std::string> wanted;
  for (int i = 0; i < kRounds; ++i) {
    for (const char* writer : {"a", "b"}) wanted.insert(std::string("choice-") + writer + "-" + std::to_string(i));
  }
  Host fresh(cluster);
  ASSERT_TRUE(eventually([&] { return choices_in(fresh.read(timings_path()).value_or("")).size() == wanted.size(); }));
  EXPECT_EQ(choices_in(*fresh.read(timings_path())), wanted);
}

}  // namespace
}  // namespace inductorfs::testing
