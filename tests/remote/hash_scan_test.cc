// SPDX-License-Identifier: Apache-2.0
#include "remote/formats/hash_scan.h"

#include <gtest/gtest.h>

#include <map>

#include "remote_fakes.h"
#include "support/scripted_server.h"

/// Scans over a server that never gives the last cursor, as something that stands between it and this host may do.
namespace inductorfs::remote {
namespace {

using inductorfs::testing::ScriptedClient;
using inductorfs::testing::ScriptedServer;

class EndlessScan : public ::testing::Test {
 protected:
  void SetUp() override {
    RemoteOptions options;
    options.url = server.url();
    auto opened = open_redis(options, counters);
    ASSERT_TRUE(opened) << opened.error().to_string();
    remote = std::move(*opened);
  }
  static void answer(ScriptedClient& client) {
    const std::map<std::string, std::string> answers = {
        {"HMGET", "*2\r\n$1\r\n5\r\n$5\r\nnonce\r\n"}, {"XREAD", "*-1\r\n"}, {"HLEN", ":3\r\n"},
        {"HSCAN", "*2\r\n$1\r\n7\r\n*0\r\n"},          {"SET", "$-1\r\n"},   {"EVAL", "*1\r\n$2\r\nOK\r\n"}};
    for (auto command = client.command(); !command.empty(); command = client.command()) {
      const auto known = answers.find(command.front());
      if (!client.send(known == answers.end() ? "+OK\r\n" : known->second)) return;
    }
  }
  template <typename T>
  static void expect_told(const Result<T>& outcome) {
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code(), ErrorCode::kCorrupt) << outcome.error().to_string();
    EXPECT_NE(outcome.error().what().find("scan of an index does not end"), std::string::npos);
  }

  ScriptedServer server{answer};
  Counters counters;
  Remote remote;
};

TEST_F(EndlessScan, EndsAReadOfAScopeWithTheReason) { expect_told(remote.index->read_changes("5c0be", {}, soon())); }

TEST_F(EndlessScan, EndsAPurgeWithTheReason) {
  expect_told(remote.operators->purge(
      "5c0be", [](const codec::Entry&) { return true; }, true, soon()));
}

TEST_F(EndlessScan, EndsASweepWithTheReason) { expect_told(remote.index->sweep("5c0be", true, soon())); }

TEST(ScanLimit, GrowsWithWhatTheHashHas) {
  ScanLimit small(10, 500);
  ScanLimit large(2'000'000, 500);
  int pages = 0;
  while (small.next()) ++pages;
  EXPECT_GE(pages, 900) << "a table that was large once has many empty pages";
  for (int page = 0; page < 4'000; ++page) ASSERT_TRUE(large.next()) << page;
}

}  // namespace
}  // namespace inductorfs::remote
