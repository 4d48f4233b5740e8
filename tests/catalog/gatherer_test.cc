// SPDX-License-Identifier: Apache-2.0
// What becomes of the artefacts of a start whose list this host has published.
#include <gtest/gtest.h>

#include "catalog/catalog_fixture.h"
#include "inductorfs/layout/start_list.h"

namespace inductorfs::catalog {
namespace {

class GathererTest : public CatalogFixture {
 protected:
  using Gathered = std::vector<std::vector<codec::Digest>>;
  static std::string text_of(const std::vector<std::string>& keys) {
    std::vector<layout::StartKey> list;
    for (const std::string& key : keys) list.push_back({key, 0});
    return layout::start_list_text(list);
  }
  Publish start_list(const std::vector<std::string>& keys) {
    return plain(layout::start_list_path(keys.front()), text_of(keys));
  }
  [[nodiscard]] Gathered gathered() {
    return remote_.state.with([](const FakeRemote::State& now) { return now.gathered; });
  }
};

TEST_F(GathererTest, WhatAPublishedListNamesIsGatheredLikeBesideLike) {
  const auto large = elsewhere("fxgraph/ab/key/large", "larger bytes");
  const auto small = elsewhere("fxgraph/ab/key/small", "bytes");
  const auto library = elsewhere("cd/code.main.so", "library");
  const auto source = elsewhere("cd/code.main.cpp", "source of it");
  for (const auto& entry : {library, large, elsewhere("ef/other.so", "of another job"), small, source}) {
    remote_.set("aa", entry);
  }
  start_synced();
  publish(plain("file", "no list"));
  EXPECT_TRUE(gathered().empty());
  publish(start_list({"cd/code.main.so", "fxgraph/ab/key", "cd/code.main.cpp", "never/published"}));
  ASSERT_TRUE(eventually([&] { return gathered().size() == 1; }));
  EXPECT_EQ(gathered().front(), (std::vector{small.digest, large.digest, source.digest, library.digest}));
}

TEST_F(GathererTest, AListThatTheClusterHadAlreadyGathersNothing) {
  const auto library = elsewhere("cd/code.main.so", "library");
  const auto source = elsewhere("cd/code.main.cpp", "source");
  remote_.set("aa", library);
  remote_.set("aa", source);
  remote_.set("aa", elsewhere(layout::start_list_path("cd/code.main.so"), text_of({"cd/code.main.so"})));
  start_synced();
  publish(start_list({"cd/code.main.so"}));
  publish(start_list({"cd/code.main.so", "cd/code.main.cpp"}));
  ASSERT_TRUE(eventually([&] { return !gathered().empty(); }));
  EXPECT_EQ(gathered(), (Gathered{{source.digest, library.digest}})) << "that of the second list alone";
}

TEST_F(GathererTest, OfARootWhatTheRootShows) {
  const auto shown = elsewhere("cd/code.main.so", "library of its scope");
  remote_.set("aa", elsewhere("cd/code.main.so", "library"));
  remote_.set("cc", shown);
  Catalog& catalog = start_synced();
  catalog.follow({"aa", "bb", "cc"});
  catalog.show("user", {"cc"});
  ASSERT_TRUE(eventually([&] { return catalog.find({"cd/code.main.so", "user"}).has_value(); }));
  Publish list = start_list({"cd/code.main.so"});
  list.scope = "cc";
  list.root = "user";
  publish(list);
  ASSERT_TRUE(eventually([&] { return !gathered().empty(); }));
  EXPECT_EQ(gathered(), (Gathered{{shown.digest}}));
}

TEST_F(GathererTest, ListsThatKeepComingDoNotKeepSweepsAway) {
  options_.sweep_interval = Milliseconds(200);
  remote_.set("aa", elsewhere("cd/code.main.so", "library"));
  start_synced();
  int number = 0;
  EXPECT_TRUE(eventually([&] {
    publish(start_list({"cd/code.main.so", "key " + std::to_string(++number)}));
    return remote_.state.with([](const FakeRemote::State& now) { return now.asked_to_sweep; }) > 0;
  }));
}

TEST_F(GathererTest, AFrozenClusterIsLeftAlone) {
  options_.sweep_interval = Milliseconds(100);
  remote_.set("aa", elsewhere("cd/code.main.so", "library"));
  Catalog& catalog = start_synced();
  remote_.before_publish = [&](const remote::PublishGroup&) { catalog.freeze(true); };
  ASSERT_TRUE(catalog.enqueue(start_list({"cd/code.main.so"})));
  ASSERT_TRUE(eventually([&] { return catalog.status().queued == 0 && !catalog.status().sending; }));
  // The thread that gathers sweeps as well: it has met the list by the time that it has swept all scopes twice.
  const auto swept = [&] {
    return remote_.state.with([](const FakeRemote::State& now) { return now.asked_to_sweep; });
  };
  const auto before = swept();
  ASSERT_TRUE(eventually([&] { return swept() > before + 4; }));
  EXPECT_TRUE(gathered().empty());
}

}  // namespace
}  // namespace inductorfs::catalog
