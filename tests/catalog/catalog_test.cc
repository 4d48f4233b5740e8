// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/catalog/catalog.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "catalog/catalog_fixture.h"
#include "catalog/database/database.h"

namespace inductorfs::catalog {
namespace {

using CatalogTest = CatalogFixture;

TEST_F(CatalogTest, AQueuedGroupSurvivesKillNine) {
  const Publish publish = plain("f", "bytes");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto catalog = try_open();
    if (!catalog || !(*catalog)->enqueue(publish)) ::_exit(1);
    (void)::kill(::getpid(), SIGKILL);
    ::_exit(2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  Catalog& catalog = start();
  EXPECT_TRUE(catalog.drain(Deadline::after(kPatience)));
  EXPECT_EQ(remote_.published(), (std::vector<std::string>{"f"}));
}

TEST_F(CatalogTest, TheQueueAndItsLastErrorSurviveARestart) {
  remote_.fail_with(Error(ErrorCode::kUnavailable, "connection refused"));
  ASSERT_TRUE(start().enqueue(plain("f", "bytes")));
  EXPECT_TRUE(eventually([&] { return !catalog_->publish_state("f")->why.empty(); }));
  Catalog& again = open();
  ASSERT_TRUE(again.publish_state("f"));
  EXPECT_EQ(again.publish_state("f")->state, PublishState::kQueued);
  EXPECT_NE(again.publish_state("f")->why.find("connection refused"), std::string::npos);
}

TEST_F(CatalogTest, WhatIsHiddenStaysHiddenUntilOtherBytesCome) {
  remote_.set("aa", elsewhere("d/f", "old"));
  remote_.set("aa", elsewhere("d/g", "old"));
  Catalog& catalog = start_synced();
  catalog.hide("d/f");
  catalog.hide("nothing/there");
  EXPECT_FALSE(catalog.find("d/f"));
  EXPECT_EQ(catalog.list("d").size(), 1U);
  EXPECT_EQ(catalog.status().hidden, 1U);
  remote_.trim("aa");  // a snapshot brings it again
  remote_.set("aa", elsewhere("d/g", "newer"));
  remote_.trim("aa");
  Catalog& again = start_synced();
  EXPECT_FALSE(again.find("d/f"));
  EXPECT_TRUE(again.find("d/g"));
  remote_.set("aa", elsewhere("d/f", "new"));
  EXPECT_TRUE(eventually([&] { return again.find("d/f").has_value(); }));
  close();
  remote_.fail_with(Error(ErrorCode::kUnavailable, "down"));
  EXPECT_TRUE(open().find("d/f")) << "its mark is gone from the disk too";
}

TEST_F(CatalogTest, WhatIsDeletedWhileItIsQueuedDoesNotComeBack) {
  Catalog& catalog = open();
  ASSERT_TRUE(catalog.enqueue(plain("f", "bytes")));
  catalog.hide("f");
  catalog.start({}, {});
  ASSERT_TRUE(catalog.drain(Deadline::after(kPatience)));
  EXPECT_TRUE(remote_.entry("aa", "f"));
  EXPECT_FALSE(catalog.find("f"));
}

TEST_F(CatalogTest, WhatIsWrittenAgainIsNoLongerDeleted) {
  remote_.set("aa", elsewhere("f", "bytes"));
  Catalog& catalog = start_synced();
  catalog.hide("f");
  EXPECT_EQ(publish(plain("f", "bytes")).state, PublishState::kPublished);
  EXPECT_TRUE(catalog.find("f"));
  EXPECT_TRUE(start_synced().find("f"));
}

TEST_F(CatalogTest, ADamagedFileIsSetAsideAndMadeAnew) {
  remote_.set("aa", elsewhere("f", "1"));
  start_synced();
  close();
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, options_.file, "this is no database at all, not even long"));
  Catalog& catalog = start_synced();
  EXPECT_TRUE(catalog.find("f")) << "the cluster has told it again";
  EXPECT_EQ(counted("catalog.damaged"), 1U);
  EXPECT_EQ(::access((options_.file + ".damaged").c_str(), F_OK), 0);
}

TEST_F(CatalogTest, DamageInTheMiddleKeepsTheQueueThatCanStillBeRead) {
  remote::Delta many{true, {}, {}, {1, "nonce-1"}};
  for (int i = 0; i < 5'000; ++i) many.set.push_back(elsewhere("d/" + std::to_string(i), "1"));
  remote_.script("aa", many);
  Catalog& catalog = start();
  ASSERT_TRUE(eventually([&] {
    auto beside = Database::open(options_.file, nullptr);
    const auto position = beside ? beside->position("aa") : fail(beside.error());
    return position && position->has_value();
  })) << "on the disk";
  ASSERT_EQ(catalog.status().entries, 5'000U);
  catalog.stop();
  ASSERT_TRUE(catalog.enqueue(plain("mine", "bytes")));
  close();
  // All pages that hold the many entries, but not the first ones and not the queue's.
  auto file = open_at(AT_FDCWD, options_.file, O_RDWR);
  ASSERT_TRUE(file);
  ASSERT_TRUE(pwrite_full(file->get(), std::string(100 * 4096, '\xee'), 20 * 4096));
  file->reset();
  Catalog& again = start();
  EXPECT_EQ(counted("catalog.damaged"), 1U);
  EXPECT_TRUE(again.drain(Deadline::after(kPatience)));
  EXPECT_EQ(remote_.published(), (std::vector<std::string>{"mine"}));
}

TEST_F(CatalogTest, ASecondDaemonIsTurnedAway) {
  open();
  const auto second = try_open();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), ErrorCode::kBusy);
}

TEST_F(CatalogTest, StopIsPromptAndNothingBlocksWhileTheClusterHangs) {
  remote_.hang(true, 2 * kPatience);
  Catalog& catalog = start();
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(catalog.enqueue(plain("f", "bytes")));
  EXPECT_FALSE(catalog.find("f"));
  EXPECT_TRUE(catalog.list("").empty());
  EXPECT_EQ(catalog.status().queued, 1U);
  catalog.hide("f");
  // Both threads are in the middle of a call that would take twice as long as all of this may.
  ASSERT_TRUE(eventually([&] { return remote_.state.with([](const auto& now) { return now.begun; }) == 2; }));
  catalog.stop();
  catalog.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
  EXPECT_FALSE(catalog.drain(Deadline::after(kPatience))) << "returns at once, there is nobody to publish";
  remote_.hang(false);
  EXPECT_EQ(open().status().queued, 1U);
}

TEST_F(CatalogTest, RefusesGroupsThatMakeNoSense) {
  Catalog& catalog = open();
  const auto refused = [&](const Publish& publish) {
    auto queued = catalog.enqueue(publish);
    return !queued && queued.error().code() == ErrorCode::kInvalid;
  };
  Publish publish = plain("f", "bytes");
  EXPECT_TRUE(refused({Publish::Kind::kPlain, "aa", {}, {}, {}}));
  publish.scope = "bb";
  EXPECT_TRUE(refused(publish)) << "the path is not of that scope";
  publish = plain("../f", "bytes");
  EXPECT_TRUE(refused(publish));
  publish = plain("f", "bytes");
  publish.entries.push_back(publish.entries[0]);
  EXPECT_TRUE(refused(publish)) << "one path twice";
  publish.kind = Publish::Kind::kMerge;
  EXPECT_TRUE(refused(publish));
  publish = plain("f", "bytes");
  publish.kind = Publish::Kind::kFirst;
  EXPECT_TRUE(refused(publish)) << "without a contest";
  publish = plain("f", "bytes");
  publish.seen = {"a//b"};
  EXPECT_TRUE(refused(publish));
  EXPECT_EQ(catalog.status().queued, 0U);
}

}  // namespace
}  // namespace inductorfs::catalog
