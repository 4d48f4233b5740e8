// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "inductorfs/base/handle.h"
#include "vfs/disk/inode_marks.h"
#include "vfs/failing_attributes.h"
#include "vfs/host.h"
#include "vfs/wipe.h"

namespace inductorfs::testing {
namespace {

/// What the next start makes of what a crash left.
class Recovery : public ::testing::Test {
 protected:
  static std::string code_path(const std::string& seed) { return in_code_directory(code_name(seed) + ".py"); }
  static std::string on_disk(const Host& host, const std::string& path) {
    return host.directory / "local/view/" + path;
  }
  /// As a start after a crash of the host: another boot, and no clean end.
  static void restart_after_host_crash(Host& host, const std::function<void()>& damage) {
    host.stop();
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, host.directory / "local/state", "another-boot open"));
    damage();
    host.start();
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  const std::string directory = "triton/0/" + triton_key_of("kernel");
};

TEST_F(Recovery, VerifiesSealedFilesAfterAHostCrash) {
  Host a(cluster);
  const std::string good = code_path("good");
  const std::string bad = code_path("bad");
  ASSERT_TRUE(a.publish_file(good, "good text"));
  ASSERT_TRUE(a.publish_file(bad, "sound text"));
  ASSERT_TRUE(a.publish_file("own/file", "private"));
  ASSERT_TRUE(a.sync());

  restart_after_host_crash(a, [&] {
    const Fd file(::open(on_disk(a, bad).c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::pwrite(file.get(), "TORN", 4, 0), 4);
  });

  EXPECT_EQ(a.read(good).value_or("absent"), "good text");
  EXPECT_EQ(a.count("recovery.removed"), 1U);
  EXPECT_NE(a.read(bad).value_or("absent").substr(0, 4), "TORN") << "absent, or again from the cluster";
  EXPECT_EQ(a.read("own/file").value_or("absent"), "private");
}

TEST_F(Recovery, DestroysNothingForAnErrorOfTheDisk) {
  Host a(cluster);
  const std::string path = code_path("good");
  ASSERT_TRUE(a.publish_file(path, "good text"));
  ASSERT_TRUE(a.sync());
  {
    std::optional<FailingAttributes> failing;
    restart_after_host_crash(a, [&] { failing.emplace(vfs::kSealMark); });
  }
  EXPECT_EQ(a.count("recovery.removed"), 0U);
  EXPECT_EQ(a.count("recovery.set_aside"), 1U);
  EXPECT_EQ(read_file(AT_FDCWD, a.directory / "local/set-aside/1", 100).value_or("absent"), "good text");
  EXPECT_EQ(a.read(path).value_or("absent"), "good text") << "of the cluster";
}

TEST_F(Recovery, RemovesWhatWasNotSealedWhenTheHostWentDown) {
  Host a(cluster);
  const std::string path = code_path("late");
  ASSERT_TRUE(a.make_directories(path.substr(0, 2)));
  restart_after_host_crash(a, [&] { ASSERT_TRUE(write_file_atomically(AT_FDCWD, on_disk(a, path), "half a te")); });
  EXPECT_FALSE(a.exists(path));
}

TEST_F(Recovery, TakesAnUnreadableMarkerForACrash) {
  Host a(cluster);
  const std::string path = code_path("late");
  ASSERT_TRUE(a.make_directories(path.substr(0, 2)));
  a.stop();
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, a.directory / "local/state", ""));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, on_disk(a, path), "half a te"));
  a.start();
  EXPECT_FALSE(a.exists(path));
}

TEST_F(Recovery, TrustsWhatACleanEndLeft) {
  Host a(cluster);
  const std::string path = code_path("clean");
  ASSERT_TRUE(a.make_directories(path.substr(0, 2)));
  a.stop();
  const std::string marker = read_file(AT_FDCWD, a.directory / "local/state", 256).value();
  EXPECT_TRUE(marker.ends_with(" clean")) << marker;
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, a.directory / "local/state", "another-boot clean"));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, on_disk(a, path), "whole"));
  a.start();
  EXPECT_EQ(a.read(path).value_or("absent"), "whole");
}

TEST_F(Recovery, KeepsAWholeTritonSetAfterAHostCrash) {
  Host a(cluster);
  ASSERT_TRUE(a.triton_compile(directory, "first", own_pid()));
  ASSERT_TRUE(a.sync());
  restart_after_host_crash(a, [] {});
  EXPECT_EQ(a.list(directory).value_or(std::vector<std::string>{}).size(), 4U);
  EXPECT_EQ(a.count("recovery.removed"), 0U);
}

TEST_F(Recovery, ShowsNoSetThatLostAChildWithTheHost) {
  Host a(cluster);
  ASSERT_TRUE(a.triton_compile(directory, "first", own_pid()));
  ASSERT_TRUE(a.sync());
  restart_after_host_crash(a, [&] { ASSERT_EQ(::unlink(on_disk(a, directory + "/k.ttir").c_str()), 0); });
  EXPECT_FALSE(std::filesystem::exists(on_disk(a, directory + "/__grp__k.json"))) << "it names a child that is gone";
  EXPECT_TRUE(eventually([&] { return a.read(directory + "/k.ttir").value_or("absent") == "first wrote k.ttir"; }))
      << "the cluster has it whole";
  EXPECT_EQ(a.list(directory).value_or(std::vector<std::string>{}).size(), 4U);
}

TEST_F(Recovery, ShowsNoChildrenOfASetThatLostItsGroupFile) {
  // The daemon was killed while it moved a set into the view, and the cluster has another writer's.
  Host b(cluster);
  ASSERT_TRUE(b.triton_compile(directory, "second", own_pid()));
  ASSERT_TRUE(b.sync());
  Host a(cluster);
  a.stop();
  std::filesystem::create_directories(on_disk(a, directory));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, on_disk(a, directory + "/k.ttir"), "first wrote k.ttir"));
  a.start();

  ASSERT_TRUE(eventually([&] { return a.exists(directory + "/__grp__k.json"); }));
  EXPECT_EQ(a.read(directory + "/k.ttir").value_or("absent"), "second wrote k.ttir");
}

TEST_F(Recovery, KeepsWritersOffABlobThatWasNotMarkedYet) {
  Host a(cluster);
  const std::string path = code_path("linked");
  const std::string text = "linked text";
  ASSERT_TRUE(a.make_directories(path.substr(0, 2)));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, on_disk(a, path), text));
  ASSERT_TRUE(a.store->adopt(AT_FDCWD, on_disk(a, path), codec::digest_of(text)));

  a.restart();
  ASSERT_TRUE(a.append(path, " and more"));

  const auto blob = a.store->open_blob(codec::digest_of(text));
  ASSERT_TRUE(blob);
  std::string bytes(100, '\0');
  bytes.resize(blob->read(bytes.data(), bytes.size(), 0).value());
  EXPECT_EQ(bytes, text);
}

TEST_F(Recovery, ClearsPendingSetsAndOrphans) {  // the files of sets get their names
  Host a(cluster);
  ASSERT_TRUE(a.triton_put(directory, "k.ttir", "first", own_pid()));
  ASSERT_TRUE(a.publish_file("own/file", "bytes"));
  ASSERT_TRUE(a.exists("own/file"));
  ASSERT_TRUE(a.unlink("own/file"));
  a.restart();
  for (const char* name : {"pending", "orphans"}) {
    EXPECT_TRUE(std::filesystem::is_empty(a.directory / "local/" + name)) << name;
  }
  EXPECT_EQ(a.read(directory + "/k.ttir").value_or("absent"), "first") << "as a file of no set";
  EXPECT_FALSE(a.exists(directory + "/__grp__k.json"));
}

TEST_F(Recovery, ShowsNothingOfASetThatWasPendingWhenTheHostWentDown) {
  Host a(cluster);
  ASSERT_TRUE(a.triton_put(directory, "k.ttir", "first", own_pid()));
  restart_after_host_crash(a, [] {});
  EXPECT_TRUE(std::filesystem::is_empty(a.directory / "local/pending"));
  EXPECT_FALSE(a.exists(directory + "/k.ttir")) << "any of its bytes may be lacking";
}

TEST_F(Recovery, KeepsAFileOfNoSetOverAHostCrashOnceAStartHasMetIt) {
  Host a(cluster);
  ASSERT_TRUE(a.triton_put(directory, "k.ttir", "first", own_pid()));
  ASSERT_TRUE(a.triton_put(directory, "k.source", "first", own_pid()));
  a.restart();
  restart_after_host_crash(a, [&] {
    // As of a process that ended without a group file in the life that the crash ended.
    ASSERT_EQ(::setxattr(on_disk(a, directory + "/k.source").c_str(), "user.inductorfs.left", "new", 3, XATTR_REPLACE),
              0);
  });
  EXPECT_EQ(a.read(directory + "/k.ttir").value_or("absent"), "first");
  EXPECT_FALSE(a.exists(directory + "/k.source"));
}

TEST_F(Recovery, GoesOnWithAFileThatTheStoreTookAndNobodyMarked) {
  Host a(cluster);
  const std::string path = code_path("taken");
  ASSERT_TRUE(a.publish_file(path, "print(1)"));
  ASSERT_TRUE(a.sync());
  const auto held = a.look_up(path);
  ASSERT_TRUE(held);
  const auto bytes_of_held = [&] {
    std::string bytes(64, '\0');
    const auto got = a.data().read(held->node, bytes.data(), bytes.size(), 0);
    bytes.resize(got.value_or(0));
    return bytes;
  };
  // As after a kill at seal.adopted: the mark is there before the store has the inode, and its digest is not.
  const auto take_digest = [&] { return ::setxattr(on_disk(a, path).c_str(), "user.inductorfs.sealed", "", 0, 0); };
  ASSERT_EQ(take_digest(), 0);
  a.take_over();
  EXPECT_EQ(bytes_of_held(), "print(1)");
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.count("seal.sealed"), 1U) << "its seal is made up for";
  a.take_over();
  EXPECT_EQ(bytes_of_held(), "print(1)");

  a.stop();
  ASSERT_EQ(take_digest(), 0);
  ASSERT_EQ(::rename(on_disk(a, path).c_str(), on_disk(a, "own").c_str()), 0);  // a name that nobody seals
  a.start();
  ASSERT_TRUE(a.append("own", ", more"));
  EXPECT_EQ(a.read("own").value_or("absent"), "print(1), more");
  EXPECT_EQ(a.read(path).value_or("absent"), "print(1)");
  const auto blob = a.store->open_blob(codec::digest_of("print(1)"));
  ASSERT_TRUE(blob);
  EXPECT_EQ(blob->digest().value_or(codec::Digest{}), codec::digest_of("print(1)"));
}

TEST_F(Recovery, CountsNamesThatNobodyHasLookedUpAcrossATakeover) {
  Host a(cluster);
  ASSERT_TRUE(a.create("one", "bytes"));
  const auto made = a.look_up("one");
  ASSERT_TRUE(a.names().link(made->node, vfs::kRootNode, "two", {::getuid(), ::getgid(), own_pid()}));
  a.restart();
  const auto held = a.look_up("one");
  ASSERT_TRUE(held);
  ASSERT_TRUE(a.unlink("one"));
  const auto links = [&] { return a.attributes().get_attributes(held->node).value().links; };
  EXPECT_EQ(links(), 1U) << "the disk has a name that nobody has looked up";
  a.take_over();
  EXPECT_EQ(links(), 1U);
  EXPECT_EQ(a.look_up("two")->node, held->node);
  EXPECT_EQ(links(), 1U);

  // As after a kill before the name that it had as an orphan went.
  const std::string orphan = a.directory / "local/orphans/" + std::to_string(static_cast<uint64_t>(held->node));
  std::filesystem::create_hard_link(on_disk(a, "two"), orphan);
  a.take_over();
  EXPECT_FALSE(std::filesystem::exists(orphan));
  EXPECT_EQ(links(), 1U);
  ASSERT_TRUE(a.unlink("two"));
  EXPECT_EQ(links(), 0U);
  EXPECT_EQ(a.read("two").error().code(), ErrorCode::kNotFound);
}

TEST_F(Recovery, SyncsWhatAnEarlierWorkerHadNotBegunToSeal) {
  Host a(cluster);
  const std::string path = code_path("late");
  ASSERT_TRUE(a.make_directories(path.substr(0, 2)));
  a.stop();
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, on_disk(a, path), "print()"));
  a.start(true, false);

  const auto early = a.file_system->sync(Deadline::after(Milliseconds(50)));
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code(), ErrorCode::kTimedOut);
  EXPECT_FALSE(a.catalog->publish_state(path)) << "a request may be about to rename it";

  a.file_system->requests_finished();
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(a.catalog->publish_state(path));
  EXPECT_EQ(a.catalog->publish_state(path)->state, catalog::PublishState::kPublished);
}

TEST_F(Recovery, PublishesNoSetThatMissesAChild) {
  Host a(cluster);
  const std::string staging = "triton/0/tmp.01234567-89ab-cdef-0123-456789abcdef";
  ASSERT_TRUE(a.make_directories(staging));
  ASSERT_TRUE(
      a.create(staging + "/__grp__k.json", "{\"child_paths\": {\"k.ttir\": \"/mnt/cache/" + directory + "/k.ttir\"}}"));
  ASSERT_TRUE(a.rename(staging, directory));
  ASSERT_TRUE(a.sync());
  EXPECT_FALSE(a.catalog->find(layout::canonical_path(directory + "/__grp__k.json")));
  EXPECT_EQ(a.count("seal.incomplete_sets"), 1U);
  // The key is still free for a writer with all files.
  Host b(cluster);
  ASSERT_TRUE(b.triton_compile(directory, "second", own_pid()));
  ASSERT_TRUE(b.sync());
  Host c(cluster);
  EXPECT_TRUE(eventually([&] { return c.exists(directory + "/__grp__k.json"); }));
}

/// As a worker finds its queue that was killed.
void forget_that_the_queue_is_whole(const Host& host) {
  sqlite3* raw = nullptr;
  ASSERT_EQ(sqlite3_open((host.directory / "catalog.sqlite").c_str(), &raw), SQLITE_OK);
  Handle<sqlite3, sqlite3_close> handle(raw);
  ASSERT_EQ(sqlite3_exec(raw, "DELETE FROM meta WHERE name='queue'", nullptr, nullptr, nullptr), SQLITE_OK);
}

/// What was deleted here is not what the cluster lacks of this host.
TEST(RecoveryOfWhatWasDeleted, LeavesItDeletedWhereThisHostHasItElsewhere) {
  for (const bool resumes : {true, false}) {
    const auto cluster = remote::make_memory_cluster();
    Host host(cluster);
    const std::string key = triton_key_of("kernel");
    for (const std::string place : {"marks", "triton"}) {
      ASSERT_TRUE(host.triton_compile(place + "/" + key, "one", own_pid()));
      ASSERT_TRUE(host.sync());
      ASSERT_TRUE(host.exists("triton/1/" + key + "/k.ttir")) << place << ": made anew";
      ASSERT_TRUE(remove_tree(host, "triton/1"));
      host.stop();
      forget_that_the_queue_is_whole(host);
      host.start(resumes);
      ASSERT_TRUE(host.catalog->queue_may_be_short());
      ASSERT_TRUE(host.sync());
      EXPECT_EQ(host.read(place + "/" + key + "/k.ttir").value_or("absent"), "one wrote k.ttir");
      EXPECT_FALSE(host.exists("triton/1/" + key + "/k.ttir")) << place << resumes;
    }
  }
}

TEST(RecoveryOfWhatWasDeleted, LeavesItDeletedWhenTheClusterHasLostIt) {
  for (const std::string place : {"marks", "triton"}) {
    const TemporaryDirectory kept;
    HostOptions options;
    options.store = kept.path() + "/store";
    const std::string key = triton_key_of("kernel");
    {
      Host host(remote::make_memory_cluster(), options);
      ASSERT_TRUE(host.triton_compile(place + "/" + key, "one", own_pid()));
      ASSERT_TRUE(host.sync());
      ASSERT_TRUE(remove_tree(host, "triton/1"));
      host.stop();
      forget_that_the_queue_is_whole(host);
    }
    const auto anew = remote::make_memory_cluster();
    Host host(anew, options);
    ASSERT_TRUE(host.sync());
    EXPECT_EQ(host.count("seal.groups"), 1U);
    Host other(anew);
    EXPECT_TRUE(other.wait_for_entry("triton/@/" + key + "/k.ttir")) << "the cluster has it again";
    EXPECT_EQ(host.read(place + "/" + key + "/k.ttir").value_or("absent"), "one wrote k.ttir");
    EXPECT_FALSE(host.exists("triton/1/" + key + "/k.ttir")) << place;
  }
}

}  // namespace
}  // namespace inductorfs::testing
