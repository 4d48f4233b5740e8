// SPDX-License-Identifier: Apache-2.0
#include "vfs/disk/user_charges.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/lacks.h"
#include "support/temporary_directory.h"
#include "vfs/disk/early_copy.h"
#include "vfs/disk/inode_marks.h"
#include "vfs/disk/local_tree.h"
#include "vfs/host.h"

namespace inductorfs::testing {
namespace {

using vfs::UserCharges;
using Holds = UserCharges::Holds;
using Had = std::map<uid_t, std::pair<uint64_t, uint64_t>>;  // bytes, files

constexpr uid_t kOne = 1000;
constexpr uid_t kTwo = 1001;
constexpr uint64_t kBlock = 4096;

Had had(const UserCharges& charges) {
  Had all;
  for (const auto& one : charges.report(SIZE_MAX)) {
    if (one.files > 0) all[one.user] = {one.bytes, one.files};
  }
  return all;
}

class Charges : public ::testing::Test {
 protected:
  Fd file(const std::string& name, uint64_t size = 0) {
    Fd made = open_at(AT_FDCWD, directory / name, O_RDWR | O_CREAT, 0600).value();
    EXPECT_EQ(::ftruncate(made.get(), static_cast<off_t>(size)), 0);
    return made;
  }
  TemporaryDirectory directory;
};

TEST_F(Charges, CountsAFileWithItsBlocksAndNamesAndForItsOwner) {
  UserCharges charges({});
  const Fd one = file("one", kBlock + 1);
  charges.set(one.get(), {kOne, Holds::kBytes});
  charges.set(one.get(), {kOne, Holds::kBytes});
  EXPECT_EQ(had(charges), (Had{{kOne, {2 * kBlock, 1}}}));
  charges.set(one.get(), {kTwo, Holds::kBytes});
  EXPECT_EQ(had(charges), (Had{{kTwo, {2 * kBlock, 1}}}));
  charges.find(one.get(), {kOne, Holds::kBytes});
  EXPECT_EQ(had(charges), (Had{{kTwo, {2 * kBlock, 1}}})) << "whoever changed it knew better";
  ASSERT_EQ(::link((directory / "one").c_str(), (directory / "blob").c_str()), 0);
  charges.set(one.get(), {kTwo, Holds::kBlob});
  EXPECT_EQ(had(charges), (Had{{kTwo, {0, 1}}})) << "the bytes are the store's, and so is the other name";
  ASSERT_EQ(::unlink((directory / "blob").c_str()), 0);
  charges.left_store(vfs::status_of(one.get()).value().st_ino, kBlock + 1);
  EXPECT_EQ(had(charges), (Had{{kTwo, {2 * kBlock, 1}}})) << "and not any more";
  ASSERT_EQ(::link((directory / "one").c_str(), (directory / "other").c_str()), 0);
  ASSERT_EQ(::unlink((directory / "one").c_str()), 0);
  charges.gained_name(one.get());
  EXPECT_EQ(had(charges), (Had{{kTwo, {2 * kBlock, 1}}})) << "one has come, and one has gone";
  ASSERT_EQ(::link((directory / "other").c_str(), (directory / "third").c_str()), 0);
  charges.gained_name(one.get());
  EXPECT_EQ(had(charges), (Had{{kTwo, {2 * kBlock, 2}}})) << "each name takes a place";
  ASSERT_EQ(::unlink((directory / "third").c_str()), 0);
  charges.lost_name(one.get(), false);
  EXPECT_EQ(had(charges), (Had{{kTwo, {2 * kBlock, 1}}})) << "it has another name";
  ASSERT_EQ(::unlink((directory / "other").c_str()), 0);
  charges.lost_name(one.get(), false);
  charges.lost_name(one.get(), false);
  EXPECT_EQ(had(charges), Had{});
}

TEST_F(Charges, RefusesWhatGoesBeyondAndNothingElse) {
  UserCharges charges({.bytes = 2 * kBlock, .files = 2});
  const Fd one = file("one");
  {
    auto first = charges.admit(kOne);
    const auto second = charges.admit(kOne);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(charges.admit(kOne).error().code(), ErrorCode::kOverQuota);
    EXPECT_TRUE(charges.admit(kTwo)) << "another user";
    EXPECT_TRUE(charges.admit(uid_t{0}) && charges.admit(uid_t{0}) && charges.admit(uid_t{0}));
    charges.set(one.get(), {kOne, Holds::kBytes}, &*first);
  }
  EXPECT_EQ(had(charges), (Had{{kOne, {0, 1}}})) << "the place of what was not made is free again";
  EXPECT_TRUE(charges.admit(one.get(), 2 * kBlock).value());
  EXPECT_EQ(charges.admit(one.get(), 2 * kBlock + 1).error().code(), ErrorCode::kOverQuota);
  EXPECT_TRUE(charges.admit(one.get(), 1).value()) << "it has more already";
  charges.resize(one.get());
  charges.resize(one.get());
  EXPECT_EQ(had(charges), (Had{{kOne, {0, 1}}})) << "nothing was written";
  EXPECT_FALSE(charges.admit(file("two").get(), 1).value()) << "nobody knows it";
  EXPECT_EQ(charges.report(1).front().refused, 2U);
}

TEST_F(Charges, KeepWhatWasAdmittedUntilItsWriterIsDone) {
  UserCharges charges({.bytes = 10 * kBlock, .files = 2});
  const Fd one = file("one");
  charges.set(one.get(), {kOne, Holds::kBytes});
  ASSERT_TRUE(charges.admit(one.get(), 10 * kBlock).value());
  ASSERT_TRUE(charges.admit(one.get(), 1).value());
  charges.resize(one.get());  // of the second writer
  charges.set(one.get(), {kOne, Holds::kBytes});
  EXPECT_EQ(had(charges), (Had{{kOne, {10 * kBlock, 1}}})) << "the first one may be about to write";
  charges.resize(one.get());
  EXPECT_EQ(had(charges), (Had{{kOne, {0, 1}}}));
}

TEST_F(Charges, IsExactWithManyAtOnce) {
  constexpr uint64_t kMost = 100;
  constexpr int kThreads = 8;
  UserCharges charges({.bytes = kMost * kBlock, .files = kMost});
  std::atomic<uint64_t> made{0};
  std::atomic<uint64_t> written{0};
  const auto work = [&](int number) {
    for (int i = 0; i < 40; ++i) {
      auto place = charges.admit(kOne);
      if (!place) continue;
      const Fd mine = file(std::to_string(number) + "-" + std::to_string(i));
      charges.set(mine.get(), {kOne, Holds::kBytes}, &*place);
      ++made;
      if (charges.admit(mine.get(), 2 * kBlock)) {
        EXPECT_EQ(::ftruncate(mine.get(), 2 * kBlock), 0);
        written += 2;
      }
      charges.resize(mine.get());
    }
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  threads.clear();
  EXPECT_EQ(made, kMost);
  EXPECT_EQ(written, kMost);
  EXPECT_EQ(had(charges), (Had{{kOne, {kMost * kBlock, kMost}}}));
}

/// What a tree has counted at each change is what a count of all finds.
TEST_F(Charges, AreWhatALaterCountFinds) {
  const std::string place = directory / "local";
  const auto open = [&] { return vfs::LocalTree::open(place, ::getuid(), ::getgid(), 0755).value(); };
  const auto tree = open();
  std::mt19937 chance(7);
  const auto below = [&](size_t most) { return static_cast<size_t>(chance() % most); };
  ASSERT_TRUE(tree.dress_root());
  ASSERT_TRUE(tree.make_view_directories("d/e", {kTwo, kTwo, 0755}));
  tree.charges().count_all(tree, {});
  const auto name = [&] {
    static constexpr const char* kIn[] = {"view/", "view/d/", "view/d/e/", "pending/", "orphans/"};
    return kIn[below(5)] + std::string(1, static_cast<char>('f' + below(6)));
  };
  int blobs = 0;
  const auto step = [&] {
    const std::string path = name();
    const uid_t user = below(2) == 0 ? kOne : kTwo;
    switch (below(10)) {
      case 0:
      case 1:
        if (const auto made = tree.create_file(path)) {
          EXPECT_TRUE(tree.charges().give(made->get(), {user, user, S_IFREG | 0600}));
        }
        break;
      case 2:
        if (const auto opened = tree.open_file(path, true)) {
          const uint64_t size = below(5 * kBlock);
          EXPECT_TRUE(tree.charges().admit_size(opened->get(), size));
          EXPECT_EQ(::ftruncate(opened->get(), static_cast<off_t>(size)), 0);
          tree.charges().resize(opened->get());
        }
        break;
      case 3:
        return (void)tree.unlink(path);
      case 4: {
        const std::string to = name();
        const auto status = tree.stat(path).value();
        const bool never =
            path == to || path.starts_with("orphans/") || (status && S_ISDIR(status->st_mode) && to.starts_with("orp"));
        return never ? void() : (void)tree.rename(path, to);
      }
      case 5:
        if (const auto opened = tree.open_file(path, true)) {
          if (const std::string to = name(); tree.link(path, to)) tree.charges().gained_name(tree.hold(to)->get());
        }
        break;
      case 6:
        return (void)tree.set_owner(path, user, {});
      case 7:
        return (void)tree.make_special(path, {user, user, S_IFLNK | 0777}, "target");
      case 8:
        if (path.starts_with("view/") && tree.make_directory(path)) {
          EXPECT_TRUE(tree.give_to(path, {user, user, S_IFDIR | 0700}));
        }
        return (void)tree.remove_directory(name());
      default:
        const auto status = tree.stat(path);
        const auto opened = tree.open_file(path, false);
        if (!opened || !status || (*status)->st_nlink > 1 || path.starts_with("orphans/")) break;
        if (!vfs::is_stores(opened->get()).value()) {
          EXPECT_TRUE(vfs::set_seal(opened->get(), {}));
          const std::string blob = directory / ("blob" + std::to_string(blobs++));
          const bool is_taken = below(3) != 0;  // else the store has such a blob
          if (is_taken) {
            EXPECT_EQ(::link((place + "/" + path).c_str(), blob.c_str()), 0);
          }
          tree.charges().sealed(opened->get(), is_taken ? opened->get() : -1);
        } else {
          vfs::EarlyCopy none({});
          EXPECT_TRUE(none.unshare(tree, path));
        }
    }
  };
  for (int i = 0; i < 4000; ++i) {
    step();
    if (i % 500 != 0) continue;
    const auto again = open();
    again.charges().count_all(again, {});
    EXPECT_TRUE(again.charges().all_counted());
    ASSERT_EQ(had(tree.charges()), had(again.charges())) << i;
  }
}

TEST_F(Charges, AreCountedWhileOthersChangeThem) {
  const std::string place = directory / "local";
  const auto open = [&] { return vfs::LocalTree::open(place, ::getuid(), ::getgid(), 0755).value(); };
  {
    const auto before = open();
    for (int i = 0; i < 40; ++i) {
      const std::string path = "d" + std::to_string(i);
      ASSERT_TRUE(before.make_view_directories(path, {kOne, kOne, 0755}));
      for (int j = 0; j < 10; ++j) {
        const Fd made = before.create_file("view/" + path + "/" + std::to_string(j)).value();
        ASSERT_TRUE(before.charges().give(made.get(), {kOne, kOne, S_IFREG | 0600}));
      }
    }
  }
  const auto tree = open();
  std::jthread counts([&] { tree.charges().count_all(tree, {}); });
  for (int i = 0; i < 40; ++i) {  // to and fro past what is counted
    const std::string path = "view/d" + std::to_string(i);
    ASSERT_TRUE(tree.rename(path, "view/z" + std::to_string(i)));
    ASSERT_TRUE(tree.rename("view/z" + std::to_string(i) + "/1", "view/a" + std::to_string(i)));
    ASSERT_TRUE(tree.unlink("view/z" + std::to_string(i) + "/2"));
    ASSERT_TRUE(tree.set_owner("view/z" + std::to_string(i) + "/3", kTwo, {}));
  }
  counts.join();
  EXPECT_EQ(had(tree.charges()), (Had{{kOne, {0, 40 * 9}}, {kTwo, {0, 40}}}));
}

/// Sets how many descriptors this process may have, for as long as it lives.
class Descriptors {
 public:
  explicit Descriptors(rlim_t most) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit now{most, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &now), 0);
  }
  ~Descriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

TEST_F(Charges, AreCountedInADeepTreeWithFewDescriptors) {
  constexpr uint64_t kDepth = 300;
  const auto tree = vfs::LocalTree::open(directory / "local", ::getuid(), ::getgid(), 0755).value();
  std::string path;
  for (uint64_t i = 0; i < kDepth; ++i) path += path.empty() ? "d" : "/d";
  ASSERT_TRUE(tree.make_view_directories(path, {kOne, kOne, 0755}));
  const auto again = vfs::LocalTree::open(directory / "local", ::getuid(), ::getgid(), 0755).value();
  {
    const Descriptors few(100);
    again.charges().count_all(again, {});
  }
  EXPECT_TRUE(again.charges().all_counted());
  EXPECT_EQ(had(again.charges()), (Had{{kOne, {0, kDepth}}}));
  EXPECT_TRUE(again.set_aside("d"));
  EXPECT_EQ(had(again.charges()), Had{}) << "what is set aside is nobody's";
}

TEST_F(Charges, AreNotKnownWhereTheDiskDoesNotTell) {
  const auto tree = vfs::LocalTree::open(directory / "local", ::getuid(), ::getgid(), 0755).value();
  ASSERT_TRUE(tree.make_view_directories("d", {kOne, kOne, 0755}));
  const auto again = vfs::LocalTree::open(directory / "local", ::getuid(), ::getgid(), 0755).value();
  {
    const Descriptors none(3);
    again.charges().count_all(again, {});
  }
  EXPECT_FALSE(again.charges().all_counted());
  again.charges().count_all(again, {});
  EXPECT_TRUE(again.charges().all_counted());
  EXPECT_EQ(had(again.charges()), (Had{{kOne, {0, 1}}}));
}

class LimitsByUser : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::getuid() != 0) INDUCTORFS_LACKS("root, who alone has files of several users");
  }
  static HostOptions options() {
    HostOptions result;
    result.chown_to_caller = true;
    result.root_mode = 01777;
    result.user_bytes = 16 * kBlock;
    result.user_files = 4;
    return result;
  }
  template <typename Answer>
  static bool is_over(const Answer& answer) {
    return !answer && answer.error().code() == ErrorCode::kOverQuota;
  }
  Had counted() {
    EXPECT_TRUE(eventually([&] { return host.inspection().status().users_known; }));
    Had all;
    for (const auto& one : host.inspection().status().users) all[one.user] = {one.bytes, one.files};
    all.erase(0);
    return all;
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  Host host{cluster, options()};
};

TEST_F(LimitsByUser, RefuseOneAndLetTheOthersGoOn) {
  host.user = kOne;
  ASSERT_TRUE(host.make_directory("one"));
  ASSERT_TRUE(host.create("one/a", std::string(10 * kBlock, 'a')));
  ASSERT_TRUE(host.create("one/b", ""));
  EXPECT_TRUE(is_over(host.append("one/b", std::string(7 * kBlock, 'b'))));
  EXPECT_TRUE(is_over(host.truncate("one/b", 7 * kBlock)));
  const auto node = host.look_up("one/b")->node;
  EXPECT_TRUE(is_over(host.data().allocate(node, 0, 0, 7 * kBlock, {kOne, kOne, ::getpid()})));
  EXPECT_TRUE(host.data().allocate(node, FALLOC_FL_KEEP_SIZE, 0, 70 * kBlock, {kOne, kOne, ::getpid()}));
  EXPECT_EQ(host.look_up("one/b")->attributes.blocks, 0U) << "nothing beyond the end is reserved that nobody counts";
  EXPECT_TRUE(host.append("one/b", std::string(6 * kBlock, 'b'))) << "what still fits";
  EXPECT_TRUE(host.make_directory("one/c"));
  EXPECT_TRUE(is_over(host.create("one/d", "")));
  EXPECT_TRUE(is_over(host.make_directory("one/d")));
  const auto directory = host.look_up("one")->node;
  EXPECT_TRUE(is_over(host.names().make_symlink(directory, "d", "a", {kOne, kOne, ::getpid()})));
  EXPECT_TRUE(is_over(host.names().link(node, directory, "d", {kOne, kOne, ::getpid()}))) << "a further name";
  EXPECT_EQ(counted(), (Had{{kOne, {16 * kBlock, 4}}}));
  for (const uid_t other : {kTwo, uid_t{0}}) {
    host.user = other;
    const std::string mine = "other" + std::to_string(other);
    ASSERT_TRUE(host.make_directory(mine));
    EXPECT_TRUE(host.create(mine + "/a", std::string(16 * kBlock, 'a')));
    EXPECT_EQ(host.append(mine + "/a", "b").has_value(), other == 0) << "root is never refused";
  }
  host.user = kOne;
  ASSERT_TRUE(host.truncate("one/a", 0));
  EXPECT_TRUE(host.append("one/b", std::string(10 * kBlock, 'b')));
  ASSERT_TRUE(host.remove_directory("one/c"));
  EXPECT_TRUE(host.create("one/e", ""));
}

TEST_F(LimitsByUser, AreTheSameForTheNextWorkerAndTheNextMount) {
  host.user = kOne;
  ASSERT_TRUE(host.make_directory("one"));
  ASSERT_TRUE(host.create("one/a", "bytes"));
  host.user = kTwo;
  ASSERT_TRUE(host.create("b", std::string(2 * kBlock, 'b')));
  ASSERT_TRUE(host.publish_file(in_code_directory(code_name("sealed") + ".py"), std::string(3 * kBlock, 'c')));
  ASSERT_TRUE(host.sync());
  const Had before = counted();
  EXPECT_EQ(before, (Had{{kOne, {kBlock, 2}}, {kTwo, {2 * kBlock, 3}}})) << "sealed bytes are the store's";
  host.take_over();
  EXPECT_EQ(counted(), before);
  host.restart();
  EXPECT_EQ(counted(), before);
}

TEST_F(LimitsByUser, CountTheCopyOfWhoWritesToASealedFile) {
  const std::string path = in_code_directory(code_name("sealed") + ".py");
  host.user = kOne;
  ASSERT_TRUE(host.publish_file(path, std::string(10 * kBlock, 'c')));
  ASSERT_TRUE(host.sync());
  ASSERT_TRUE(host.create("mine", std::string(10 * kBlock, 'd')));
  EXPECT_TRUE(is_over(host.append(path, "more")));
  EXPECT_EQ(host.read(path)->size(), 10 * kBlock) << "it is as it was";
  ASSERT_TRUE(host.truncate("mine", 0));
  EXPECT_TRUE(host.append(path, "more"));
  EXPECT_EQ(counted(), (Had{{kOne, {11 * kBlock, 3}}})) << "with the directory";
}

/// Its bytes stay on the disk under a name that the store does not know of.
TEST_F(LimitsByUser, CountWhatTheStoreLetsGoOf) {
  const std::string path = in_code_directory(code_name("sealed") + ".py");
  host.user = kOne;
  ASSERT_TRUE(host.publish_file(path, std::string(10 * kBlock, 'c')));
  ASSERT_TRUE(host.sync());
  ASSERT_TRUE(host.rename(path, "mine"));
  EXPECT_EQ(counted(), (Had{{kOne, {0, 2}}})) << "with the directory";
  ASSERT_GT(host.store->free_space(1ULL << 40), 0U);
  EXPECT_EQ(counted(), (Had{{kOne, {10 * kBlock, 2}}}));
  EXPECT_TRUE(is_over(host.create("more", std::string(7 * kBlock, 'd'))));
}

TEST_F(LimitsByUser, LetASecondCopyBeChanged) {
  const std::string one = in_code_directory(code_name("one") + ".py");
  const std::string same = in_code_directory(code_name("same") + ".py");
  host.user = kOne;
  ASSERT_TRUE(host.publish_file(one, std::string(10 * kBlock, 'c')));
  ASSERT_TRUE(host.sync());
  ASSERT_TRUE(host.publish_file(same, std::string(10 * kBlock, 'c')));
  ASSERT_TRUE(host.sync());
  const Had before = counted();
  EXPECT_EQ(before.at(kOne).first, 10 * kBlock);
  const auto node = host.look_up(same);
  ASSERT_TRUE(node);
  EXPECT_TRUE(host.data().write(node->node, "x", 0, {kOne, kOne, ::getpid()})) << "its copy takes its place";
  EXPECT_EQ(counted(), before);
}

/// It is open to whoever may write to its root, and counts for its maker.
TEST_F(LimitsByUser, LetNobodyFillAnotherUsersLock) {
  const std::string path = "locks/one.lock";
  host.user = kTwo;
  ASSERT_TRUE(host.make_directory("locks"));
  ASSERT_TRUE(host.create(path, ""));
  host.user = kOne;
  EXPECT_TRUE(host.append(path, "4711"));
  EXPECT_TRUE(is_over(host.append(path, std::string(16 * kBlock, 'l'))));
  host.user = kTwo;
  EXPECT_TRUE(host.append(path, std::string(15 * kBlock, 'l'))) << "it is his own";
}

TEST_F(LimitsByUser, LetNobodyMakeAnotherUsersFilesOfTheCluster) {
  const std::string path = in_code_directory(code_name("theirs") + ".py");
  ASSERT_TRUE(host.publish_file(path, "theirs"));
  ASSERT_TRUE(host.sync());
  Host other(cluster, options());
  ASSERT_TRUE(other.wait_for_entry(path));
  ASSERT_TRUE(other.exists(path));
  other.user = kOne;
  const auto refused = other.rename(path, path.substr(0, path.rfind('/')) + "/mine");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kCrossDevice) << "mv copies it, and who does has the copy";
  other.user = 0;
  EXPECT_TRUE(other.rename(path, path.substr(0, path.rfind('/')) + "/mine"));
}

TEST_F(LimitsByUser, BoundTheAttributesOfAFile) {
  host.user = kOne;
  ASSERT_TRUE(host.create("mine", ""));
  const auto node = host.look_up("mine")->node;
  EXPECT_TRUE(host.attributes().set_xattr(node, "user.one", std::string(2000, 'a'), 0));
  EXPECT_TRUE(host.attributes().set_xattr(node, "user.one", std::string(1000, 'a'), 0)) << "in its place";
  const auto more = host.attributes().set_xattr(node, "user.two", std::string(3100, 'b'), 0);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code(), ErrorCode::kNoSpace);
}

}  // namespace
}  // namespace inductorfs::testing
