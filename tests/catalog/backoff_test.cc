// SPDX-License-Identifier: Apache-2.0
// What waits for the pauses between two attempts, which grow to seconds.
#include "catalog/backoff.h"

#include <thread>

#include "catalog/catalog_fixture.h"

namespace inductorfs::catalog {
namespace {

class Backoffs : public CatalogFixture {};

TEST_F(Backoffs, AGroupWithAnErrorOfItsOwnLetsTheOthersPass) {
  Catalog& catalog = start_synced();
  const auto refuse = [&](std::optional<Error> why) {
    remote_.refused_paths.with([&](auto& paths) {
      paths.clear();
      if (why) paths.emplace("f", *why);
    });
  };
  refuse(Error(ErrorCode::kInternal, "WRONGTYPE"));
  ASSERT_TRUE(catalog.enqueue(plain("f", "bytes")));
  ASSERT_TRUE(eventually([&] { return counted("publish.parked") == 1; }));
  // By now the group waits for at least kPause, and everything behind it would wait as well.
  ASSERT_TRUE(eventually([&] { return counted("publish.retries") >= 7; }));
  constexpr auto kPause = Backoff::kFirst * (1 << 6) * 3 / 4;
  const auto begun = std::chrono::steady_clock::now();
  ASSERT_TRUE(catalog.enqueue(plain("g", "other")));
  EXPECT_TRUE(eventually([&] { return catalog.publish_state("g")->state == PublishState::kPublished; }));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, kPause);
  EXPECT_EQ(catalog.publish_state("f")->state, PublishState::kQueued);
  EXPECT_NE(catalog.status().oldest_queued_error.find("WRONGTYPE"), std::string::npos);
  refuse(std::nullopt);
  EXPECT_TRUE(catalog.drain(Deadline::after(kPatience)));
  EXPECT_EQ(catalog.publish_state("f")->state, PublishState::kPublished);
  EXPECT_TRUE(eventually([&] { return counted("publish.parked") == 0; }));
}

TEST_F(Backoffs, WhatTheServerIsToBlameForIsNeverGivenUp) {
  Catalog& catalog = start_synced();
  remote_.fail_with(Error(ErrorCode::kInternal, "WRONGTYPE"));
  ASSERT_TRUE(catalog.enqueue(plain("f", "bytes")));
  bool drained = false;
  {
    const std::jthread drainer([&] { drained = catalog.drain(Deadline::after(kPatience)).has_value(); });
    ASSERT_TRUE(eventually([&] { return counted("publish.retries") > 20; }));
    EXPECT_EQ(catalog.publish_state("f")->state, PublishState::kQueued);
    remote_.fail_with(std::nullopt);
  }
  EXPECT_TRUE(drained);
  EXPECT_EQ(catalog.publish_state("f")->state, PublishState::kPublished);
}

TEST_F(Backoffs, AnAbsentClusterIsAskedSeldom) {
  remote_.fail_with(Error(ErrorCode::kUnavailable, "down"));
  start();
  // Five failures of each of two scopes take at least 75+150+300+600 ms; a hot loop makes thousands in that time.
  EXPECT_TRUE(eventually([&] { return counted("tail.errors") >= 10; }));
  EXPECT_LT(remote_.state.with([](const FakeRemote::State& now) { return now.reads; }), 20U);
}

}  // namespace
}  // namespace inductorfs::catalog
