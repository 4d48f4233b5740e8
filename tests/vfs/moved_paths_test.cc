// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "vfs/host.h"

/// Directories that become others in the middle of a request whose path leads through them: by an exchange for a
/// symbolic link out of the mount, or because another user gets their name.
namespace inductorfs::testing {
namespace {

constexpr size_t kLarge = size_t{24} << 20;
/// An exchange may miss the copy: a busy machine may put it off until the bytes are copied.
constexpr size_t kTries = 10;

vfs::Caller me() { return {::getuid(), ::getgid(), own_pid()}; }

class MovedPaths : public ::testing::Test {
 protected:
  explicit MovedPaths(HostOptions options = {}) : a(cluster, std::move(options)) {
    std::filesystem::create_directories(outside / "deep");
    EXPECT_TRUE(a.make_directories("u/x/deep"));
    EXPECT_TRUE(a.names().make_symlink(node("u"), "s", outside.string(), me()));
  }
  vfs::NodeId node(const std::string& path) { return a.look_up(path)->node; }
  /// From now on u/x leads out of the mount.
  void exchange() { EXPECT_TRUE(a.rename("u/x", "u/s", 0, vfs::RenameMode::kExchange)); }
  std::string publish(Host& by, const std::string& name) {
    const std::string path = in_code_directory(code_name(name) + ".py");
    EXPECT_TRUE(by.publish_file(path, std::string(kLarge, 'x')));
    EXPECT_TRUE(by.sync());
    EXPECT_TRUE(a.wait_for_entry(path));
    return path;
  }
  bool is_half_copied() {
    std::error_code ignored;
    for (const auto& item : std::filesystem::recursive_directory_iterator(a.directory.path(), ignored)) {
      if (item.path().string().find("/orphans/") == std::string::npos) continue;
      const auto size = item.file_size(ignored);
      if (size > 0 && size < kLarge) return true;
    }
    return false;
  }
  /// Exchanges the directory while `request`, which copies the file first, is on its way. What it makes is
  /// u/x/deep/NAME by its directory's node. Returns whether the exchange was early enough to matter.
  bool exchange_during(const std::function<void()>& request) {
    std::atomic<bool> done{false};
    std::jthread requester([&] {
      request();
      done = true;
    });
    bool hit = false;
    while (!done && !hit) {
      if (!is_half_copied()) continue;
      exchange();
      hit = is_half_copied();
      if (!hit) exchange();  // back
    }
    requester.join();
    return hit;
  }
  void expect_inside(const std::string& name) {
    EXPECT_FALSE(std::filesystem::exists(outside / "deep" / name)) << "the daemon has made it outside of the mount";
    EXPECT_EQ(a.read("u/s/deep/" + name).value_or("absent").size(), kLarge) << "where its directory is now";
  }
  void expect_inside_always(Host& by,
                            const std::function<void(const std::string& path, const std::string& name)>& make) {
    bool hit = false;
    for (size_t tries = 1; tries <= kTries && !hit; ++tries) {
      const std::string name = "evil-" + std::to_string(tries);
      const std::string path = publish(by, name);
      ASSERT_TRUE(a.exists(path));
      hit = exchange_during([&] { make(path, name); });
      if (hit) expect_inside(name);
    }
    EXPECT_TRUE(hit);
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  Host a;
  const std::filesystem::path outside = std::filesystem::path(a.directory.path()) / "outside";
};

TEST_F(MovedPaths, AreNotThoseOfALinkThatIsMadeAfterALongCopy) {
  const vfs::NodeId deep = node("u/x/deep");
  expect_inside_always(a, [&](const std::string& path, const std::string& name) {
    EXPECT_TRUE(a.names().link(node(path), deep, name, me()));
  });
}

TEST_F(MovedPaths, AreNotThoseOfARenameThatCopiesFirst) {
  Host b{cluster};
  const vfs::NodeId deep = node("u/x/deep");
  expect_inside_always(b, [&](const std::string& path, const std::string& name) {
    const size_t slash = path.rfind('/');
    EXPECT_TRUE(a.names().rename(node(path.substr(0, slash)), path.substr(slash + 1), deep, name,
                                 vfs::RenameMode::kReplace, me()));
  });
}

class SeenPaths : public MovedPaths {
 protected:
  SeenPaths() : SeenPaths(std::make_shared<FakeViews>("/mnt/cache")) {}
  explicit SeenPaths(const std::shared_ptr<FakeViews>& shown) : MovedPaths({.views = shown}), views(shown) {}

  const std::shared_ptr<FakeViews> views;
};

TEST_F(SeenPaths, AreNotThoseOfALookupThatAsksWhereItIsSeen) {
  const std::string key = "triton/0/" + triton_key_of("k");
  const std::string group = "__grp__k.json";
  ASSERT_TRUE(a.make_directories("u/x/" + key));
  std::filesystem::create_directories(outside / key);
  std::ofstream(outside / key / group) << R"({"child_paths": {}})";
  const vfs::NodeId directory = node("u/x/" + key);
  bool exchanged = false;
  views->on_asked = [&] {
    if (!std::exchange(exchanged, true)) exchange();
  };
  bool found = true;
  a.names().lookup(directory, group, me(), [&](const vfs::LookupAnswer& answer) { found = answer.found.has_value(); });
  EXPECT_TRUE(exchanged);
  EXPECT_FALSE(found) << "a file that is outside of the mount";
}

class LearnedPaths : public MovedPaths {
 protected:
  LearnedPaths() : MovedPaths({.jobs = {{kJob, "one"}}}) {}
  static constexpr pid_t kJob = 4711;
};

/// The root's path is another user's by the time at which the program's environment is known.
TEST_F(LearnedPaths, OfARootAreNotAnotherUsersWhoGetsItsName) {
  ASSERT_TRUE(a.make_directory("root"));
  const vfs::NodeId root = node("root");
  bool renamed = false;
  a.environment.on_job_asked = [&] {
    if (std::exchange(renamed, true)) return;
    EXPECT_TRUE(a.rename("root", "moved"));
    EXPECT_TRUE(a.make_directory("root"));
  };
  const auto made = a.names().make_directory(root, "fxgraph", 0755, {::getuid(), ::getgid(), kJob});
  EXPECT_TRUE(renamed);
  EXPECT_FALSE(made);
  const auto view = std::filesystem::path(a.directory / "local") / "view";
  EXPECT_TRUE(std::filesystem::is_empty(view / "root")) << "it is another one, and perhaps another user's";
}

}  // namespace
}  // namespace inductorfs::testing
