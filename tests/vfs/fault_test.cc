// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <map>

#include "inductorfs/base/fail_point.h"
#include "support/lacks.h"
#include "vfs/faulty_remote.h"
#include "vfs/host.h"

namespace inductorfs::testing {
namespace {

class Faults : public ::testing::Test {
 protected:
  HostOptions faulty() {
    HostOptions options;
    options.wrap_remote = [fault = fault](auto inner) { return with_faults(std::move(inner), fault); };
    return options;
  }
  std::string publish(Host& host, const std::string& text) {
    const std::string path = in_code_directory(code_name(text) + ".py");
    EXPECT_TRUE(host.publish_file(path, text));
    EXPECT_TRUE(host.sync());
    return path;
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  std::shared_ptr<Fault> fault = std::make_shared<Fault>();
};

TEST_F(Faults, WhatLooksLikeANewerReleasesIsAskedForAgainByItself) {
  Host a(cluster);
  const std::string path = publish(a, "sound");
  Host b(cluster, faulty());
  ASSERT_TRUE(b.wait_for_entry(path));
  fault->set(Fault::Mode::kNewer);
  EXPECT_FALSE(b.exists(path));
  EXPECT_EQ(fault->fetched(codec::digest_of("sound")), 3U) << "two readings may be wrong alike";
  EXPECT_TRUE(b.list(path.substr(0, 2)).value_or(std::vector<std::string>{}).empty());
  fault->set(Fault::Mode::kNone);
  EXPECT_TRUE(eventually([&] { return !b.list(path.substr(0, 2)).value_or(std::vector<std::string>{}).empty(); }));
  EXPECT_TRUE(eventually([&] { return b.kernel.told_name(path.substr(3)); })) << "it may keep the absence";
  EXPECT_EQ(b.read(path).value_or("absent"), "sound");
}

TEST_F(Faults, NothingElseWaitsWhileOneFetchHangs) {
  Host a(cluster);
  const std::string slow = publish(a, "slow");
  const std::string quick = publish(a, "quick");
  Host b(cluster, faulty());
  ASSERT_TRUE(b.wait_for_entry(slow) && b.wait_for_entry(quick));
  const auto directory = b.look_up(slow.substr(0, 2));
  ASSERT_TRUE(directory);
  fault->only({codec::digest_of("slow")});
  fault->set(Fault::Mode::kHang);
  std::promise<vfs::LookupAnswer> answer;
  b.names().lookup(directory->node, slow.substr(3), {},
                   [&](vfs::LookupAnswer got) { answer.set_value(std::move(got)); });
  ASSERT_TRUE(eventually([&] { return fault->hanging() == 1; }));

  EXPECT_EQ(b.read(quick).value_or("absent"), "quick");
  ASSERT_TRUE(b.make_directories("p/q"));
  ASSERT_TRUE(b.create("p/q/file", "bytes"));
  ASSERT_TRUE(b.rename("p/q/file", "p/file"));
  EXPECT_EQ(b.read("p/file").value_or("absent"), "bytes");
  ASSERT_TRUE(b.rename("p/q", "r")) << "renames of directories take a lock of their own";
  EXPECT_TRUE(b.list(slow.substr(0, 2)).has_value());
  publish(b, "written meanwhile");

  fault->set(Fault::Mode::kNone);
  EXPECT_TRUE(answer.get_future().get().found);
}

TEST_F(Faults, AFetchThatFailsIsAnAbsenceThatTheKernelDoesNotKeep) {
  Host a(cluster);
  const std::string path = publish(a, "text");
  Host b(cluster, faulty());
  ASSERT_TRUE(b.wait_for_entry(path));
  const auto directory = b.look_up(path.substr(0, 2));
  ASSERT_TRUE(directory);
  fault->set(Fault::Mode::kFail);
  std::promise<vfs::LookupAnswer> answer;
  b.names().lookup(directory->node, path.substr(3), {},
                   [&](vfs::LookupAnswer got) { answer.set_value(std::move(got)); });
  const auto got = answer.get_future().get();

  ASSERT_FALSE(got.found);
  EXPECT_EQ(got.found.error().code(), ErrorCode::kNotFound);
  EXPECT_FALSE(got.keep_absence);
  EXPECT_TRUE(a.catalog->find(path)) << "an outage takes nothing from the cluster";
  fault->set(Fault::Mode::kNone);
  EXPECT_EQ(b.read(path).value_or("absent"), "text");
}

TEST_F(Faults, ReadsOfWhatWasLookedUpNeedNoCluster) {
  Host a(cluster);
  const std::string path = publish(a, "text");
  Host b(cluster, faulty());
  ASSERT_TRUE(b.wait_for_entry(path));
  ASSERT_TRUE(b.exists(path));
  fault->set(Fault::Mode::kFail);
  EXPECT_EQ(b.read(path).value_or("absent"), "text");
  ASSERT_TRUE(b.append(path, "!"));
  EXPECT_EQ(b.read(path).value_or("absent"), "text!");
  b.restart();
  EXPECT_EQ(b.read(path).value_or("absent"), "text!");
}

/// A small disk of its own, as TMPDIR, so that what is made during its life lies there.
class SmallDisk {
 public:
  SmallDisk() {
    mounted_ = ::mount("tmpfs", place_.path().c_str(), "tmpfs", 0, "size=6m") == 0;
    if (const char* old = std::getenv("TMPDIR")) old_ = old;
    if (mounted_) ::setenv("TMPDIR", place_.path().c_str(), 1);
  }
  ~SmallDisk() {
    if (!mounted_) return;
    if (old_.empty()) {
      ::unsetenv("TMPDIR");
    } else {
      ::setenv("TMPDIR", old_.c_str(), 1);
    }
    ::umount2(place_.path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  [[nodiscard]] bool mounted() const { return mounted_; }
  /// Leaves nothing of the disk.
  void fill() const {
    std::ofstream file(place_ / "fill");
    while (file) file << std::string(4096, 'f') << std::flush;
  }

 private:
  TemporaryDirectory place_;
  std::string old_;
  bool mounted_ = false;
};

TEST_F(Faults, WhatTheQueueCannotTakeNowIsPublishedOnceItCan) {
  Host other(cluster);
  for (const auto& [error, code] : {std::pair{"ENOSPC", ErrorCode::kNoSpace}, std::pair{"EROFS", ErrorCode::kReadOnly},
                                    std::pair{"EIO", ErrorCode::kInternal}}) {
    Host a(cluster);
    const std::string key = triton_key_of(error);
    ASSERT_TRUE(arm_fail_points(std::string("catalog.disk=") + error));
    const std::string text = std::string("written at ") + error;
    const std::string path = in_code_directory(code_name(text) + ".py");
    ASSERT_TRUE(a.publish_file(path, text));
    ASSERT_TRUE(a.triton_compile("triton/0/" + key, "writer", ::getpid()));
    EXPECT_TRUE(eventually([&] { return a.count("seal.no_room") > 1; })) << error;
    const auto synced = a.sync();
    ASSERT_FALSE(synced) << error;
    EXPECT_EQ(synced.error().code(), code) << synced.error().to_string();
    EXPECT_NE(synced.error().what().find(path), std::string::npos) << synced.error().to_string();
    EXPECT_EQ(a.count("seal.refused"), 0U) << error;
    ASSERT_TRUE(arm_fail_points(""));
    EXPECT_TRUE(other.wait_for_entry(path)) << error;
    EXPECT_TRUE(other.wait_for_entry("triton/@/" + key + "/k.json")) << error;
    EXPECT_TRUE(eventually([&] { return a.sync().has_value(); })) << error;
  }
}

TEST_F(Faults, AFullDiskRefusesWritesAndLosesNothing) {
  SmallDisk disk;
  if (!disk.mounted()) INDUCTORFS_LACKS("the right to mount a tmpfs");
  Host a(cluster);
  const std::string sealed = publish(a, std::string(500'000, 's'));
  ASSERT_TRUE(a.make_directories("p"));
  ASSERT_TRUE(a.create("p/own", "mine"));
  Result<void> written;
  for (int i = 0; i < 20 && written; ++i) written = a.create("p/fill" + std::to_string(i), std::string(1 << 20, 'f'));

  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kNoSpace);
  EXPECT_EQ(a.read("p/own").value_or("absent"), "mine");
  EXPECT_EQ(a.read(sealed).value_or("absent"), std::string(500'000, 's'));
  const auto copied_up = a.append(sealed, "!");
  EXPECT_TRUE(copied_up || copied_up.error().code() == ErrorCode::kNoSpace);
  EXPECT_EQ(a.read(sealed).value_or("absent").substr(0, 500'000), std::string(500'000, 's'));
  for (int i = 0; i < 20; ++i) {
    const std::string path = "p/fill" + std::to_string(i);
    const auto found = a.look_up(path);
    if (!found) continue;
    EXPECT_TRUE(a.unlink(path));
    a.names().forget(found->node, 1'000'000);  // nobody has it open
  }
  EXPECT_TRUE(a.create("p/again", std::string(1 << 20, 'g'))) << "room that was freed can be used";
  EXPECT_EQ(a.read("p/own").value_or("absent"), "mine");
}

/// Whatever of a file of the cluster needs a copy on this host.
TEST_F(Faults, AFullDiskMakesRoomForEachChangeThatNeedsACopy) {
  using Change = std::function<Result<void>(Host&, const std::string&, vfs::NodeId)>;
  const vfs::Caller me{::getuid(), ::getgid(), own_pid()};
  const auto set = [&](Host& a, vfs::NodeId node, const vfs::AttributeChange& change) -> Result<void> {
    const auto done = a.attributes().set_attributes(node, change, me);
    return done ? Result<void>{} : fail(done.error());
  };
  const std::map<std::string, Change> changes{
      {"write", [](Host& a, const std::string& path, vfs::NodeId) { return a.append(path, "!"); }},
      {"rename", [](Host& a, const std::string& path, vfs::NodeId) { return a.rename(path, "moved"); }},
      {"exchange", [](Host& a, const std::string& path,
                      vfs::NodeId) { return a.rename(path, "own", 0, vfs::RenameMode::kExchange); }},
      {"link",
       [&](Host& a, const std::string&, vfs::NodeId node) -> Result<void> {
         const auto done = a.names().link(node, vfs::kRootNode, "linked", me);
         return done ? Result<void>{} : fail(done.error());
       }},
      {"chmod", [&](Host& a, const std::string&, vfs::NodeId node) { return set(a, node, {.mode = 0600}); }},
      {"utimens",
       [&](Host& a, const std::string&, vfs::NodeId node) {
         return set(a, node, {.modified = vfs::Timestamp{5, 0}});
       }},
      {"setxattr", [](Host& a, const std::string&, vfs::NodeId node) {
         return a.attributes().set_xattr(node, "user.mine", "1", 0);
       }}};
  for (const size_t size : {size_t{200'000}, size_t{600'000}}) {
    for (const auto& [name, change] : changes) {
      SCOPED_TRACE(name + " of " + std::to_string(size));
      Host b(cluster);
      const std::string path = publish(b, std::string(size, 'e'));
      const std::string other = publish(b, std::string(900'000, 'v'));
      SmallDisk disk;
      if (!disk.mounted()) INDUCTORFS_LACKS("the right to mount a tmpfs");
      Host a(cluster);
      ASSERT_TRUE(a.wait_for_entry(path) && a.wait_for_entry(other));
      ASSERT_TRUE(a.create("own", "mine"));
      a.names().forget(a.look_up(other)->node, 1'000'000);
      const auto found = a.look_up(path);
      ASSERT_TRUE(found);
      disk.fill();

      const auto done = change(a, path, found->node);

      EXPECT_TRUE(done) << done.error().to_string();
      EXPECT_GE(a.count("store.evicted"), 1U);
    }
  }
}

TEST_F(Faults, ANameThatCannotGoLeavesNoFurtherLink) {
  Host a(cluster);
  ASSERT_TRUE(a.create("held", "one"));
  ASSERT_TRUE(a.create("other", "two"));
  ASSERT_TRUE(a.look_up("held") && a.look_up("other"));
  const std::string view = a.directory / "local/view/";
  const auto links = [&](const std::string& name) {
    struct stat status {};
    return ::stat((view + name).c_str(), &status) == 0 ? status.st_nlink : 0;
  };
  const std::string held = view + "held";
  if (::mount((view + "other").c_str(), held.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    INDUCTORFS_LACKS("the right to mount over a file");
  }
  const auto renamed = a.rename("held", "other");
  const auto removed = a.unlink("held");
  ASSERT_EQ(::umount2(held.c_str(), MNT_DETACH), 0);

  EXPECT_FALSE(renamed);
  EXPECT_FALSE(removed);
  EXPECT_EQ(links("other"), 1U);
  EXPECT_EQ(links("held"), 1U);
}

TEST_F(Faults, WhatWasQueuedDoesNotComeBackUnderTheNameOfARenamedDirectory) {
  const std::string path = in_code_directory(code_name("code") + ".py");
  const std::string other = in_code_directory(code_name("other") + ".py");
  const auto directory_of = [](const std::string& file) { return file.substr(0, 2); };
  ASSERT_NE(directory_of(other), directory_of(path));
  fault->refuse_publishes(true);
  Host a(cluster, faulty());
  for (const auto& name : {path, other}) {
    ASSERT_TRUE(a.publish_file(name, "print()"));
    ASSERT_TRUE(eventually([&] { return a.catalog->publish_state(name).has_value(); }));
  }
  ASSERT_TRUE(a.rename(directory_of(path), "kept"));
  ASSERT_TRUE(a.make_directory("third"));
  ASSERT_TRUE(a.rename(directory_of(other), "third", 0, vfs::RenameMode::kExchange));

  fault->refuse_publishes(false);
  ASSERT_TRUE(a.sync());
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));
  ASSERT_TRUE(b.wait_for_entry(other));
  ASSERT_TRUE(eventually([&] { return a.catalog->status().hidden >= 2; }));

  EXPECT_FALSE(a.exists(directory_of(path)));
  EXPECT_FALSE(a.exists(other));
  EXPECT_TRUE(a.exists("kept/" + path.substr(3)));
  EXPECT_TRUE(a.exists("third/" + other.substr(3)));
  a.restart();
  EXPECT_FALSE(a.exists(directory_of(path)));
}

}  // namespace
}  // namespace inductorfs::testing
