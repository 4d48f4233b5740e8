// SPDX-License-Identifier: Apache-2.0
#include "catalog/operator_orders.h"

#include "catalog/catalog_fixture.h"

namespace inductorfs::catalog {
namespace {

constexpr auto never = [] { return false; };

class OperatorOrdersTest : public CatalogFixture {
 protected:
  /// Until the publisher has had time to do what it must not do.
  void expect_unpublished() {
    (void)::poll(nullptr, 0, 100);
    EXPECT_EQ(remote_.state.with([](const FakeRemote::State& now) { return now.publishes; }), 0U);
  }
};

TEST_F(OperatorOrdersTest, WhileFrozenNothingIsShownOrPublishedAndTheListenerHearsOfEachPath) {
  remote_.set("aa", elsewhere("d/f", "theirs"));
  remote_.set("bb", elsewhere("b/g", "theirs"));
  Catalog& catalog = start_synced();
  ASSERT_TRUE(catalog.find("d/f"));
  const size_t told = changed().size();

  catalog.freeze(true);
  EXPECT_TRUE(catalog.frozen());
  EXPECT_TRUE(catalog.status().frozen);
  EXPECT_FALSE(catalog.find("d/f"));
  EXPECT_FALSE(catalog.has_directory("d"));
  EXPECT_TRUE(catalog.list("d").empty());
  EXPECT_TRUE(catalog.entries_in("d").empty());
  EXPECT_TRUE(catalog.newest(9).empty());
  EXPECT_EQ(changed().size(), told + 2);
  ASSERT_TRUE(catalog.enqueue(plain("mine", "bytes")));
  EXPECT_EQ(catalog.drain(Deadline::after(kPatience)).error().code(), ErrorCode::kUnavailable);  // at once
  expect_unpublished();
  EXPECT_EQ(catalog.status().queued, 1U);

  catalog.freeze(false);
  EXPECT_TRUE(catalog.find("d/f"));
  EXPECT_TRUE(catalog.find("b/g"));
  EXPECT_GE(changed().size(), told + 4);
  EXPECT_TRUE(catalog.drain(Deadline::after(kPatience)));
  EXPECT_TRUE(remote_.entry("aa", "mine"));
}

TEST_F(OperatorOrdersTest, WhatComesWhileFrozenIsShownAfterwards) {
  Catalog& catalog = start_synced();
  catalog.freeze(true);
  remote_.set("aa", elsewhere("d/f", "theirs"));
  EXPECT_TRUE(eventually([&] { return was_told("d/f"); }));
  EXPECT_FALSE(catalog.find("d/f"));
  catalog.freeze(false);
  EXPECT_TRUE(catalog.find("d/f"));
}

TEST_F(OperatorOrdersTest, TheQueueWaitsForPermission) {
  options_.awaits_permission = true;
  Catalog& catalog = start_synced();
  ASSERT_TRUE(catalog.enqueue(plain("mine", "bytes")));
  expect_unpublished();
  catalog.permit_publishing(std::chrono::steady_clock::now() - Milliseconds(1));
  expect_unpublished();
  catalog.permit_publishing(std::chrono::steady_clock::now() + kPatience);
  EXPECT_TRUE(catalog.drain(Deadline::after(kPatience)));
  EXPECT_TRUE(remote_.entry("aa", "mine"));
}

TEST_F(OperatorOrdersTest, SelectedGroupsLeaveTheQueueAsAWholeAndForGood) {
  options_.awaits_permission = true;
  Catalog& catalog = start_synced();
  Publish group = plain("d/old", "1");
  group.entries.push_back(stored("d/other", "2"));
  ASSERT_TRUE(catalog.enqueue(group));
  ASSERT_TRUE(catalog.enqueue(plain("e/kept", "3")));
  layout::Selection selection;
  selection.pattern = "d/o*d";
  EXPECT_TRUE(catalog.drop_queued(selection, never));
  EXPECT_EQ(catalog.status().queued, 1U);
  EXPECT_TRUE(eventually([&] { return reports().size() == 1; }));
  EXPECT_EQ(reports()[0].state, PublishState::kKeptLocal);
  EXPECT_NE(reports()[0].why.find("purge"), std::string::npos);
  EXPECT_EQ(catalog.publish_state("d/other")->state, PublishState::kKeptLocal);

  close();
  Catalog& again = start();
  EXPECT_EQ(again.status().queued, 1U);
  selection = {};
  selection.scopes = {"zz"};
  EXPECT_TRUE(again.drop_queued(selection, never));
  EXPECT_EQ(again.status().queued, 1U);
  selection.scopes = {"aa"};
  selection.before_ns = 1'000;  // that of stored()
  EXPECT_TRUE(again.drop_queued(selection, never));
  EXPECT_EQ(again.status().queued, 1U);
  selection.before_ns = 1'001;
  EXPECT_TRUE(again.drop_queued(selection, never));
  EXPECT_EQ(again.status().queued, 0U);
}

TEST_F(OperatorOrdersTest, EndsBetweenTwoGroupsWhereItIsCancelled) {
  options_.awaits_permission = true;
  Catalog& catalog = start_synced();
  for (const char* path : {"a", "b", "c"}) ASSERT_TRUE(catalog.enqueue(plain(path, path)));
  int asked = 0;
  EXPECT_FALSE(catalog.drop_queued({}, [&] { return ++asked == 2; }));
  EXPECT_EQ(catalog.status().queued, 2U);
  EXPECT_TRUE(catalog.drop_queued({}, never));
  EXPECT_EQ(catalog.status().queued, 0U);
}

TEST_F(OperatorOrdersTest, AGroupThatIsBeingPublishedIsNotDroppedBehindThePublishersBack) {
  Guarded<int> step{0};
  remote_.before_publish = [&](const remote::PublishGroup&) {
    step.notify_with([](int& now) { now = 1; });
    (void)step.wait_until(
        Deadline::after(kPatience).at(), [](int now) { return now == 2; }, [](int now) { return now; });
  };
  Catalog& catalog = start_synced();
  ASSERT_TRUE(catalog.enqueue(plain("mine", "bytes")));
  (void)step.wait_until(
      Deadline::after(kPatience).at(), [](int now) { return now == 1; }, [](int now) { return now; });
  EXPECT_FALSE(catalog.drop_queued({}, never));
  catalog.freeze(true);
  EXPECT_TRUE(catalog.status().sending) << "it was begun before the freeze";
  step.notify_with([](int& now) { now = 2; });
  EXPECT_TRUE(eventually([&] { return catalog.drop_queued({}, never); }));
  EXPECT_TRUE(eventually([&] { return !catalog.status().sending; }));
}

}  // namespace
}  // namespace inductorfs::catalog
