// SPDX-License-Identifier: Apache-2.0
#include "vfs/disk/early_copy.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "inductorfs/base/fail_point.h"
#include "vfs/host.h"

/// Copies of large files, for which nobody else waits.
namespace inductorfs::testing {
namespace {

constexpr size_t kLarge = size_t{24} << 20;
/// A question may miss the copy: a busy machine may put it off until the bytes are copied.
constexpr size_t kTries = 10;

class LargeFiles : public ::testing::Test {
 protected:
  vfs::NodeId node(const std::string& path) { return a.look_up(path)->node; }
  static vfs::Caller me() { return {::getuid(), ::getgid(), own_pid()}; }
  /// An artefact of this host that the store has too, or of the cluster.
  std::string publish(Host& by, size_t size, const std::string& name = "large") {
    const std::string path = in_code_directory(code_name(name) + ".py");
    EXPECT_TRUE(by.publish_file(path, std::string(size, 'x')));
    EXPECT_TRUE(by.sync());
    EXPECT_TRUE(a.wait_for_entry(path));
    return path;
  }
  /// Names in orphans/ that a copy has now, and how much is in the smallest.
  std::vector<uint64_t> copies() {
    std::vector<uint64_t> sizes;
    std::error_code ignored;
    for (const auto& item : std::filesystem::recursive_directory_iterator(a.directory.path(), ignored)) {
      const std::string name = item.path().string();
      if (name.find("/orphans/") != std::string::npos) sizes.push_back(item.file_size(ignored));
    }
    return sizes;
  }
  bool is_half_copied() {
    const auto sizes = copies();
    return sizes.size() == 1 && sizes.front() > 0 && sizes.front() < kLarge;
  }
  /// Whether a question about the file was put and answered while it was copied for its writer.
  bool answers_while_copied(const std::string& path, const std::function<void()>& ask) {
    const vfs::NodeId id = node(path);
    std::atomic<bool> done{false};
    std::jthread writer([&] {
      EXPECT_TRUE(a.data().write(id, "y", 0, me()));
      done = true;
    });
    bool answered = false;
    while (!done && !answered) {
      if (!is_half_copied()) continue;
      ask();
      answered = is_half_copied();
    }
    writer.join();
    return answered;
  }
  void expect_changed(const std::string& path, size_t size) {
    EXPECT_TRUE(copies().empty());
    const std::string now = a.read(path).value_or("absent");
    EXPECT_EQ(now.size(), size);
    EXPECT_EQ(now.substr(0, 2), "yx");
    EXPECT_EQ(now.find_first_not_of('x', 1), std::string::npos);
  }
  /// The same of one of several files that `by` publishes. Each of them is copied, and counted once.
  bool some_copy_answers(Host& by, const std::string& counter, const std::function<void(vfs::NodeId)>& ask) {
    bool answered = false;
    for (size_t tries = 1; tries <= kTries && !answered; ++tries) {
      const std::string path = publish(by, kLarge, "large " + std::to_string(tries));
      const vfs::NodeId id = node(path);
      answered = answers_while_copied(path, [&] { ask(id); });
      expect_changed(path, kLarge);
      EXPECT_EQ(a.count(counter), tries);
    }
    return answered;
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  Host a{cluster};
  Host b{cluster};
};

TEST_F(LargeFiles, OfThisHostAreAskedForWhileTheyAreCopied) {
  EXPECT_TRUE(some_copy_answers(a, "view.unsealed", [&](vfs::NodeId id) {
    EXPECT_TRUE(a.attributes().get_attributes(id));
    EXPECT_TRUE(a.attributes().get_xattr(id, "user.inductorfs.digest"));
  }));
}

TEST_F(LargeFiles, OfTheClusterAreAskedForWhileTheyAreCopied) {
  EXPECT_TRUE(
      some_copy_answers(b, "view.copied_up", [&](vfs::NodeId id) { EXPECT_TRUE(a.attributes().get_attributes(id)); }));
}

TEST_F(LargeFiles, AreCopiedOnceForWritersAtOnce) {
  const std::string path = publish(a, size_t{12} << 20);
  const vfs::NodeId id = node(path);
  std::atomic<bool> done{false};
  size_t most = 0;
  std::jthread watcher([&] {
    while (!done) most = std::max(most, copies().size());
  });
  {
    std::vector<std::jthread> writers;
    for (uint64_t i = 0; i < 4; ++i) {
      writers.emplace_back([&, i] { EXPECT_TRUE(a.data().write(id, "y", i, me())); });
    }
  }
  done = true;
  watcher.join();
  EXPECT_LE(most, 1U) << "or a few writers would fill the disk";
  EXPECT_EQ(a.count("view.unsealed"), 1U);
  EXPECT_EQ(a.read(path).value_or("absent").substr(0, 5), "yyyyx");
  EXPECT_TRUE(copies().empty());
}

TEST_F(LargeFiles, GetTheirOwnInodeByAnyChange) {
  const std::string path = publish(b, 1 << 20);
  const uint64_t inode = a.look_up(path)->attributes.inode_number;
  vfs::AttributeChange change;
  change.modified = vfs::Timestamp{5, 0};
  ASSERT_TRUE(a.attributes().set_attributes(node(path), change, me()));
  EXPECT_EQ(a.look_up(path)->attributes.inode_number, inode);
  EXPECT_EQ(a.look_up(path)->attributes.modified.seconds, 5);
  EXPECT_EQ(a.read(path).value_or("absent"), std::string(1 << 20, 'x'));
  ASSERT_TRUE(a.truncate(path, 600'000));
  EXPECT_EQ(a.read(path).value_or("absent"), std::string(600'000, 'x'));
  EXPECT_TRUE(copies().empty());
}

TEST_F(LargeFiles, KeepNoMoreThanATruncationLeaves) {
  const std::string path = publish(a, 1 << 20);
  ASSERT_TRUE(a.truncate(path, 600'000));
  EXPECT_EQ(a.read(path).value_or("absent"), std::string(600'000, 'x'));
}

TEST_F(LargeFiles, CanBeRenamedAndLinkedWhenTheyAreTheClusters) {
  const std::string path = publish(b, 1 << 20);
  ASSERT_TRUE(a.rename(path, "moved"));
  EXPECT_EQ(a.read("moved").value_or("absent"), std::string(1 << 20, 'x'));
  const auto root = a.look_up("");
  ASSERT_TRUE(a.names().link(node("moved"), root->node, "linked", me()));
  EXPECT_EQ(a.read("linked").value_or("absent"), std::string(1 << 20, 'x'));
  ASSERT_TRUE(a.create("other", "text"));
  ASSERT_TRUE(a.rename("other", "moved", 0, vfs::RenameMode::kExchange));
  EXPECT_EQ(a.read("moved").value_or("absent"), "text");
  EXPECT_TRUE(copies().empty());
}

TEST_F(LargeFiles, StayAsTheyAreWhenTheDiskIsFull) {
  const std::string path = publish(a, 1 << 20);
  ASSERT_TRUE(arm_fail_points("disk.write=ENOSPC"));
  const auto written = a.data().write(node(path), "y", 0, me());
  ASSERT_TRUE(arm_fail_points(""));
  EXPECT_EQ(written.error().code(), ErrorCode::kNoSpace);
  EXPECT_TRUE(copies().empty());
  ASSERT_TRUE(a.data().write(node(path), "y", 0, me())) << "another try";
  expect_changed(path, 1 << 20);
}

class DroppedCopy : public ::testing::Test {
 protected:
  TemporaryDirectory directory;
  vfs::LocalTree tree = vfs::LocalTree::open(directory / "local", ::getuid(), ::getgid(), 0750).value();
  Fd root = open_at(AT_FDCWD, directory / "local", O_RDONLY | O_DIRECTORY).value();
  vfs::NodePtr node = std::make_shared<vfs::Node>(vfs::NodeId{2}, S_IFREG, 2);
};

TEST_F(DroppedCopy, LeavesNoFile) {
  ASSERT_TRUE(write_file_atomically(root.get(), "view/one", "bytes"));
  ASSERT_TRUE(write_file_atomically(root.get(), "view/other", "bytes"));
  const auto one = tree.open_file("view/one", false);
  const auto other = tree.open_file("view/other", false);
  {
    vfs::EarlyCopy copy(uint64_t{3});
    node->content.with([&](vfs::Content& content) { copy.begin(tree, node, content); });
    ASSERT_TRUE(copy.fill(one->get()));
    EXPECT_FALSE(tree.is_empty("orphans"));
    EXPECT_FALSE(copy.take(other->get())) << "the file is another one by now";
    vfs::EarlyCopy moved(std::move(copy));
    EXPECT_TRUE(node->content.with([](const vfs::Content& content) { return content.copying; }));
  }
  EXPECT_TRUE(tree.is_empty("orphans"));
  EXPECT_FALSE(node->content.with([](const vfs::Content& content) { return content.copying; }));

  vfs::EarlyCopy copy(std::nullopt);
  node->content.with([&](vfs::Content& content) { copy.begin(tree, node, content); });
  ASSERT_TRUE(copy.fill(one->get()));
  const auto taken = copy.take(one->get());
  ASSERT_TRUE(taken);
  EXPECT_EQ(read_file(root.get(), taken->name, 100).value_or("absent"), "bytes");
  EXPECT_FALSE(copy.take(one->get())) << "it is somebody's";
}

}  // namespace
}  // namespace inductorfs::testing
