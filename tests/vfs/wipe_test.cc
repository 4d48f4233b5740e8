// SPDX-License-Identifier: Apache-2.0
#include "vfs/wipe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "vfs/host.h"

/// Removing Triton sets under several names: what is listed can be looked up, and rm -rf works.
namespace inductorfs::testing {
namespace {

constexpr std::chrono::seconds kPatience{60};

/// A process whose set was complete when the directory showed another one already sees its own.
TEST(WipeOfTwoSets, RemovesTheOneThatItsProcessCompletedSecondToo) {
  const auto cluster = remote::make_memory_cluster();
  Host other(cluster);
  Host host(cluster);
  const std::string key = triton_key_of("kernel");
  ASSERT_TRUE(other.triton_compile("triton/0/" + key, "first", own_pid()));
  ASSERT_TRUE(other.sync());
  ASSERT_TRUE(host.wait_for_entry("triton/@/" + key + "/__grp__k.json"));
  for (const std::string& top : {"triton/0/" + key, std::string("triton")}) {
    ASSERT_TRUE(host.exists("triton/0/" + key + "/__grp__k.json"));
    ASSERT_TRUE(host.triton_compile("triton/0/" + key, "second", own_pid()));
    EXPECT_EQ(host.read("triton/0/" + key + "/k.ttir").value_or("absent"), "second wrote k.ttir");
    const auto removed = remove_tree(host, top);
    EXPECT_TRUE(removed) << (removed ? "" : removed.error().to_string());
    EXPECT_FALSE(host.exists(top));
    ASSERT_TRUE(host.triton_compile("triton/" + key, "first", own_pid())) << "made again: it is shown again";
    ASSERT_TRUE(host.sync());
  }
}

TEST(WipeOfTwoSets, TheSecondOneIsEverybodysWhereTheFirstHasGoneUnderAnotherName) {
  const auto cluster = remote::make_memory_cluster();
  Host host(cluster);
  const std::string key = triton_key_of("kernel");
  ASSERT_TRUE(host.triton_compile("triton/" + key, "first", own_pid()));
  ASSERT_TRUE(host.sync());
  ASSERT_TRUE(host.exists("triton/0/" + key + "/__grp__k.json"));
  ASSERT_TRUE(host.triton_compile("triton/0/" + key, "second", own_pid()));
  EXPECT_EQ(host.read("triton/0/" + key + "/k.ttir", 1).value_or("absent"), "first wrote k.ttir");
  ASSERT_TRUE(remove_tree(host, "triton/" + key));
  EXPECT_EQ(host.read("triton/0/" + key + "/k.ttir", 1).value_or("absent"), "second wrote k.ttir");
  EXPECT_EQ(host.list("triton/0/" + key).value().size(), 4U);
  const auto removed = remove_tree(host, "triton");
  EXPECT_TRUE(removed) << (removed ? "" : removed.error().to_string());
}

/// It is committed for its process, by whoever looks: it has to be in the environment that it was made in.
TEST(WipeOfTwoSets, TheSecondOneThatAnotherProcessHasCommittedIsShared) {
  const auto cluster = remote::make_memory_cluster();
  HostOptions options;
  options.jobs = {{own_pid(), "torch"}, {1, "torch"}};
  Host host(cluster, options);
  const std::string key = triton_key_of("kernel");
  ASSERT_TRUE(make_set(host, "triton/" + key, "first", own_pid()));
  ASSERT_TRUE(host.sync());
  ASSERT_TRUE(host.exists("triton/0/" + key + "/__grp__k.json"));
  ASSERT_TRUE(make_set(host, "triton/0/" + key, "second", own_pid()));
  ASSERT_TRUE(remove_tree(host, "triton/" + key));
  host.act_as(1);
  EXPECT_EQ(host.read("triton/0/" + key + "/k.source").value_or("absent"), "second");
  ASSERT_TRUE(host.sync());
  const auto files = host.inspection().status();
  EXPECT_EQ(files.foreign, 0U) << (files.foreign_reasons.empty() ? "" : files.foreign_reasons.front());
}

/// A kernel that keeps listing and names until it is told, which it is from another thread: it asks for the removal.
TEST(WipeOfTwoSets, WhatWasListedIsRemovedWithItsSet) {
  const auto cluster = remote::make_memory_cluster();
  Host host(cluster);
  const std::string key = triton_key_of("kernel");
  ASSERT_TRUE(host.triton_compile("triton/" + key, "first", own_pid()));
  ASSERT_TRUE(host.sync());
  ASSERT_TRUE(host.exists("triton/0/" + key + "/__grp__k.json"));
  const auto other = host.look_up("triton/0/" + key);
  ASSERT_TRUE(other);
  ASSERT_EQ(host.list("triton/0/" + key).value().size(), 4U);
  ASSERT_TRUE(host.unlink("triton/" + key + "/k.ttir"));
  const vfs::Caller caller{::getuid(), ::getgid(), own_pid()};
  EXPECT_TRUE(host.names().unlink(other->node, "__grp__k.json", caller));
  const auto again = host.names().unlink(other->node, "__grp__k.json", caller);
  EXPECT_TRUE(!again && again.error().code() == ErrorCode::kNotFound) << "once, as on a local disk";
  EXPECT_FALSE(host.names().unlink(other->node, "never there", caller));
}

/// Whoever is told that a name is gone lists no set that went with it, however late the kernel learns of the names.
TEST(WipeOfTwoSets, IsListedUnderItsOtherNameNoMoreWhenOneHasGone) {
  const auto cluster = remote::make_memory_cluster();
  Host host(cluster);
  std::promise<void> stuck;
  std::promise<void> goes_on;
  host.kernel.on_name = [&stuck, &goes_on, first = true](vfs::NodeId, const std::string&) mutable {
    if (!std::exchange(first, false)) return;
    stuck.set_value();
    goes_on.get_future().wait();
  };
  std::vector<vfs::NodeId> directories;
  for (const char* seed : {"one", "two"}) {
    const std::string key = triton_key_of(seed);
    ASSERT_TRUE(host.triton_compile("triton/" + key, "first", own_pid()));
    ASSERT_TRUE(host.sync());
    ASSERT_TRUE(host.exists("triton/0/" + key + "/__grp__k.json"));
    directories.push_back(host.look_up("triton/0/" + key)->node);
    ASSERT_TRUE(host.unlink("triton/" + key + "/k.ttir"));
    if (directories.size() == 1) {
      ASSERT_EQ(stuck.get_future().wait_for(kPatience), std::future_status::ready);
    }
  }
  EXPECT_TRUE(host.kernel.take_content(directories.back())) << "while it is told of a name of the first set";
  goes_on.set_value();
}

TEST(WipeOfTwoSets, ShowsNotTheOneBecauseTheOtherIsMadeAgain) {
  for (const std::string& root : {"", "alice/"}) {
    const auto cluster = remote::make_memory_cluster();
    Host host(cluster);
    const std::string key = triton_key_of("kernel");
    const std::string canonical = "triton/@/" + key;
    for (const char* version : {"second", "first"}) {
      Host other(cluster);
      ASSERT_TRUE(version == std::string("second") || other.wait_for_entry(canonical + "/__grp__k.json"));
      for (const auto& known : other.catalog->entries_in(canonical)) other.catalog->report_lost(known);
      ASSERT_TRUE(make_set(other, "triton/0/" + key, version, own_pid()));
      ASSERT_TRUE(other.sync());
      EXPECT_TRUE(eventually([&] { return host.read("triton/0/" + key + "/k.source").value_or("absent") == version; }));
      ASSERT_TRUE(remove_tree(host, "triton"));
    }
    ASSERT_TRUE(make_set(host, root + key, "second", own_pid()));
    ASSERT_TRUE(host.sync());
    EXPECT_EQ(host.read(root + key + "/k.source").value_or("absent"), "second");
    EXPECT_EQ(host.read("triton/0/" + key + "/k.source").value_or("absent"), "absent") << root;
  }
}

}  // namespace
}  // namespace inductorfs::testing
