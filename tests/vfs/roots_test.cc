// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "vfs/faulty_remote.h"
#include "vfs/host.h"
#include "vfs/tree/known_roots.h"
#include "vfs/tree/paths.h"

/// Cache roots below the mountpoint: by their paths alone, each with a local tree of its own.
namespace inductorfs::testing {
namespace {

class Roots : public ::testing::Test {
 protected:
  /// Publishes a generated source in this root of `host`; returns its name below any root.
  static std::string publish(Host& host, const std::string& root, const std::string& seed) {
    const std::string path = in_code_directory(code_name(seed) + ".py");
    EXPECT_TRUE(host.make_directories(root + "/" + path.substr(0, 2)));
    EXPECT_TRUE(host.publish_file(root + "/" + path, "print('" + seed + "')"));
    EXPECT_TRUE(host.sync());
    return path;
  }

  /// Makes a directory, and asks in it for what torch asks for first.
  static void use_as_root(Host& host, const std::string& root) {
    ASSERT_TRUE(host.make_directories(root));
    (void)host.exists(root + "/fxgraph");
  }

  static std::string timings(const std::string& choice) {
    return R"({"system": {"hash": ")" + std::string(64, 'a') + R"("}, "cache": {"mm": {"in": {"high": {")" + choice +
           R"(": 1.5}}}}})";
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
};

TEST_F(Roots, ShareWhatEachOfThemHas) {
  Host a(cluster);
  Host b(cluster);
  const std::string path = publish(a, "alice", "code");
  ASSERT_TRUE(b.wait_for_entry(path));

  use_as_root(b, "bob/job");
  EXPECT_EQ(b.read("bob/job/" + path).value_or("absent"), "print('code')");
  EXPECT_EQ(b.read(path).value_or("absent"), "print('code')") << "the mountpoint is a root too";
  use_as_root(a, "carol");
  EXPECT_EQ(a.read("carol/" + path).value_or("absent"), "print('code')") << "another root of the same mount";
  EXPECT_EQ(a.inspection().explain("carol/" + path).canonical, path);
}

TEST_F(Roots, ShareTheSetsOfTritonsOwnDirectories) {
  Host a(cluster);
  Host b(cluster);
  const std::string key = triton_key_of("kernel");
  ASSERT_TRUE(a.make_directories("job/triton_cache/" + key));
  ASSERT_TRUE(a.triton_compile("job/triton_cache/" + key, "first", own_pid()));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.wait_for_entry("triton/@/" + key + "/__grp__k.json"));

  for (const std::string& directory :
       {"other/" + key, "vllm/rank_0_0/triton_cache/" + key, "alice/triton/3/" + key, "triton/0/" + key}) {
    ASSERT_TRUE(b.make_directories(vfs::parent_path(directory))) << directory;
    const auto group = b.read(directory + "/__grp__k.json");
    ASSERT_TRUE(group) << directory << ": " << group.error().to_string();
    EXPECT_NE(group->find("\"/mnt/cache/" + directory + "/k.ttir\""), std::string::npos) << *group;
    EXPECT_EQ(b.read(directory + "/k.ttir").value_or("absent"), "first wrote k.ttir");
  }
}

TEST_F(Roots, KeepTheirSetsApartUntilTheyAreWhole) {
  Host a(cluster);
  const std::string key = triton_key_of("kernel");
  ASSERT_TRUE(a.make_directories("alice/" + key));
  ASSERT_TRUE(a.triton_put("alice/" + key, "k.ttir", "half", own_pid()));
  ASSERT_TRUE(a.triton_put("alice/" + key, "__grp__k.json", "{}", own_pid()));
  EXPECT_FALSE(a.look_up("alice/" + key + "/__grp__k.json", 1)) << "half a set is nobody's kernel";
  EXPECT_FALSE(a.exists("bob/" + key + "/k.ttir"));
  EXPECT_FALSE(a.exists("triton/0/" + key + "/k.ttir"));
  EXPECT_EQ(a.inspection().status().pending_sets, 1U);
}

TEST_F(Roots, HideWhatIsDeletedInThemAlone) {
  Host a(cluster);
  const std::string path = publish(a, "alice", "code");
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));
  for (const char* root : {"one", "two"}) {
    use_as_root(b, root);
    ASSERT_TRUE(b.exists(std::string(root) + "/" + path));
  }

  ASSERT_TRUE(b.unlink("one/" + path));
  ASSERT_TRUE(b.remove_directory("one/" + path.substr(0, 2)));
  EXPECT_FALSE(b.exists("one/" + path));
  EXPECT_FALSE(b.exists("one/" + path.substr(0, 2)));
  EXPECT_TRUE(b.exists("two/" + path));
  EXPECT_TRUE(b.exists(path));
  b.restart();
  EXPECT_FALSE(b.exists("one/" + path));
  use_as_root(b, "two");
  EXPECT_TRUE(b.exists("two/" + path));
}

TEST_F(Roots, ListWhatSomebodyHasLookedUpAfterARestartToo) {
  Host a(cluster);
  const std::string path = publish(a, "alice", "code");
  const std::string key = triton_key_of("kernel");
  ASSERT_TRUE(a.triton_compile("triton/0/" + key, "first", own_pid()));
  ASSERT_TRUE(a.sync());
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry("triton/@/" + key + "/__grp__k.json"));
  use_as_root(b, "one");
  ASSERT_TRUE(b.exists("one/" + path));
  ASSERT_TRUE(b.exists("one/" + key + "/__grp__k.json"));
  ASSERT_TRUE(b.make_directory("one/fxgraph"));
  b.restart();
  auto listed = b.list("one").value();
  std::ranges::sort(listed);
  std::vector looked_up{key, path.substr(0, 2), std::string("fxgraph")};
  std::ranges::sort(looked_up);
  EXPECT_EQ(listed, looked_up);
  EXPECT_EQ(b.list("one/" + path.substr(0, 2)).value(), std::vector{path.substr(3)}) << "it is torch's";
  EXPECT_EQ(b.list("one/" + key).value().size(), 4U);
}

TEST_F(Roots, AreFreshAgainWhenTheyWereRemoved) {
  Host a(cluster);
  const std::string path = publish(a, "alice", "code");
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));
  use_as_root(b, "one");
  ASSERT_TRUE(b.exists("one/" + path));
  const auto listed = b.list("one");
  ASSERT_TRUE(listed);
  EXPECT_EQ(std::count(listed->begin(), listed->end(), path.substr(0, 2)), 1) << "rm -rf finds what it has to remove";

  ASSERT_TRUE(b.unlink("one/" + path));
  ASSERT_TRUE(b.remove_directory("one/" + path.substr(0, 2)));
  ASSERT_TRUE(b.remove_directory("one"));
  use_as_root(b, "one");
  EXPECT_TRUE(b.exists("one/" + path));
  b.restart();
  use_as_root(b, "one");
  EXPECT_TRUE(b.exists("one/" + path));
}

TEST_F(Roots, ShowAgainWhatIsMadeAnewInThem) {
  Host a(cluster);
  const std::string path = publish(a, "alice", "code");
  ASSERT_TRUE(a.unlink("alice/" + path));
  EXPECT_FALSE(a.exists("alice/" + path));
  ASSERT_TRUE(a.publish_file("alice/" + path, "print('code')"));
  ASSERT_TRUE(a.sync());
  EXPECT_TRUE(a.exists("alice/" + path));
  EXPECT_EQ(a.inspection().explain("alice/" + path).publish, "published");
}

TEST_F(Roots, TellTheKernelWhatComesToTheOnesInUse) {
  Host a(cluster);
  Host b(cluster);
  const std::string path = in_code_directory(code_name("code") + ".py");
  const std::string name = path.substr(3);
  ASSERT_TRUE(b.make_directories("bob/" + path.substr(0, 2)));
  ASSERT_FALSE(b.exists("bob/" + path));
  const auto absent = b.look_up("bob/fxgraph");
  ASSERT_FALSE(absent);

  publish(a, "alice", "code");

  EXPECT_TRUE(eventually([&] { return b.kernel.told_name(name); }));
  EXPECT_TRUE(b.exists("bob/" + path));
}

TEST_F(Roots, LetTheKernelKeepNoAbsenceThatNobodyWouldEnd) {
  Host a(cluster);
  ASSERT_TRUE(a.make_directory("bob"));
  const auto parent = a.look_up("bob");
  ASSERT_TRUE(parent);
  const auto kept = [&](vfs::NodeId directory, const std::string& name) {
    std::optional<bool> keep;
    a.names().lookup(directory, name, {.uid = ::getuid(), .gid = ::getgid(), .pid = own_pid()},
                     [&](const vfs::LookupAnswer& answer) { keep = answer.keep_absence; });
    return keep.value_or(true);
  };
  EXPECT_FALSE(kept(parent->node, "fxgraph"));
  EXPECT_FALSE(kept(parent->node, triton_key_of("kernel")));
  EXPECT_TRUE(kept(parent->node, "notes"));
}

TEST_F(Roots, MoveAsLocalDirectoriesUnlessTheyShowEntries) {
  Host a(cluster);
  const std::string path = publish(a, "alice", "code");
  ASSERT_TRUE(a.rename("alice", "carol"));
  EXPECT_EQ(a.read("carol/" + path).value_or("absent"), "print('code')");

  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));
  use_as_root(b, "bob");
  ASSERT_TRUE(b.exists("bob/" + path));
  const auto moved = b.rename("bob", "dave");
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().code(), ErrorCode::kCrossDevice);
}

TEST_F(Roots, MergeTheTimingsOfAllOfThem) {
  Host a(cluster);
  const std::string path = "cache/" + std::string(64, 'a');
  for (const std::string root : {"one", "two"}) {
    ASSERT_TRUE(a.make_directories(root + "/cache"));
    ASSERT_TRUE(a.publish_file(root + "/" + path, timings(root)));
    ASSERT_TRUE(a.sync());
  }
  const auto has_both = [&](const std::string& root) {
    const auto text = a.read(root + "/" + path);
    return text && text->find("\"one\"") != std::string::npos && text->find("\"two\"") != std::string::npos;
  };
  EXPECT_TRUE(eventually([&] { return has_both("two"); })) << a.read("two/" + path).value_or("absent");
  EXPECT_TRUE(eventually([&] { return has_both("one"); })) << a.read("one/" + path).value_or("absent");
}

TEST_F(Roots, LoseNoTimingThatAnotherOneHasQueued) {
  HostOptions options;
  const auto fault = std::make_shared<Fault>();
  options.wrap_remote = [&](auto inner) { return with_faults(std::move(inner), fault); };
  Host a(cluster, options);
  const std::string path = "cache/" + std::string(64, 'a');
  fault->refuse_publishes(true);
  for (const std::string& root : {std::string("one"), std::string("two")}) {
    ASSERT_TRUE(a.make_directories(root + "/cache"));
    ASSERT_TRUE(a.publish_file(root + "/" + path, timings(root)));
    ASSERT_TRUE(
        eventually([&] { return a.inspection().explain(root + "/" + path).why.find("sealed") != std::string::npos; }));
  }
  fault->refuse_publishes(false);
  ASSERT_TRUE(a.sync());
  Host b(cluster);
  const auto text = b.read(path);
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("\"one\""), std::string::npos) << *text;
  EXPECT_NE(text->find("\"two\""), std::string::npos) << *text;
}

/// A tree that has nothing to do with torch, unpacked into a mount whose cluster has that code directory.
TEST_F(Roots, ShowNoDirectoryThatNobodyMadeToOtherPrograms) {
  Host a(cluster);
  const std::string path = publish(a, "alice", "code");
  const std::string letters = path.substr(0, 2);
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));
  ASSERT_TRUE(b.make_directories("share/locale"));
  for (const std::string& name : {letters, std::string("cache"), std::string("triton"), std::string("locks")}) {
    EXPECT_FALSE(b.exists("share/locale/" + name)) << name;
  }
  ASSERT_TRUE(b.make_directory("share/locale/" + letters));
  EXPECT_EQ(b.list("share/locale/" + letters).value().size(), 0U);
  ASSERT_TRUE(b.rename("share/locale", "share/other"));
  ASSERT_TRUE(b.remove_directory("share/other/" + letters));
  ASSERT_TRUE(b.create("share/other/" + letters, "a file"));
  EXPECT_EQ(b.read("share/other/" + letters).value_or("absent"), "a file");

  // What torch asks for first tells that a directory is a root; the rest is there from then on.
  ASSERT_TRUE(b.make_directory("job"));
  EXPECT_FALSE(b.exists("job/" + letters));
  EXPECT_FALSE(b.exists("job/fxgraph"));
  EXPECT_TRUE(b.exists("job/" + letters));
  EXPECT_EQ(b.list("job/" + letters).value(), std::vector<std::string>{path.substr(3)});
}

TEST_F(Roots, MayComeIntoBeingByARename) {
  Host a(cluster);
  const std::string path = publish(a, "alice", "code");
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));
  ASSERT_TRUE(b.make_directories("tmpab_1xyz9/" + path.substr(0, 2)));
  const auto directory = b.look_up("tmpab_1xyz9/" + path.substr(0, 2));
  ASSERT_TRUE(directory);
  std::optional<bool> keep;
  b.names().lookup(directory->node, path.substr(3), {.uid = ::getuid(), .gid = ::getgid(), .pid = own_pid()},
                   [&](const vfs::LookupAnswer& answer) { keep = answer.keep_absence; });
  EXPECT_EQ(keep, std::optional(false)) << "after the rename nobody would tell the kernel";
  ASSERT_TRUE(b.rename("tmpab_1xyz9", "bob"));
  EXPECT_TRUE(b.exists("bob/" + path));
}

TEST_F(Roots, AreToldOfChangesAfterAnExchange) {
  Host a(cluster);
  Host b(cluster);
  const std::string path = in_code_directory(code_name("code") + ".py");
  ASSERT_TRUE(b.make_directories("bob/" + path.substr(0, 2)));
  ASSERT_TRUE(b.make_directory("plain"));
  ASSERT_FALSE(b.exists("bob/" + path));
  ASSERT_TRUE(b.rename("bob", "plain", 0, vfs::RenameMode::kExchange));
  publish(a, "alice", "code");
  EXPECT_TRUE(eventually([&] { return b.kernel.told_name(path.substr(3)); }));
  EXPECT_TRUE(b.exists("plain/" + path));
}

TEST_F(Roots, GoOnUnderTheNextWorker) {
  Host a(cluster);
  Host b(cluster);
  const std::string path = in_code_directory(code_name("code") + ".py");
  ASSERT_TRUE(b.make_directories("bob/" + path.substr(0, 2)));
  ASSERT_FALSE(b.exists("bob/" + path));

  b.take_over();
  publish(a, "alice", "code");

  EXPECT_TRUE(eventually([&] { return b.kernel.told_name(path.substr(3)); }));
  EXPECT_TRUE(b.exists("bob/" + path));
}

/// As of a user who gives each job a directory and never removes one.
TEST_F(Roots, LetTheIdlestGoWhereTheyAreTooMany) {
  Host a(cluster);
  const std::string path = publish(a, "alice", "code");
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));
  for (size_t i = 0; i < vfs::KnownRoots::kMostOfOne; ++i) {
    const std::string root = "root" + std::to_string(i);
    use_as_root(b, root);
    ASSERT_TRUE(b.exists(root + "/" + path.substr(0, 2))) << root;
  }
  for (const char* root : {"another", "one_more"}) {
    use_as_root(b, root);
    EXPECT_TRUE(eventually([&] {
      use_as_root(b, root);
      return b.exists(root + ("/" + path));
    })) << root;
    EXPECT_LE(b.inspection().status().roots, vfs::KnownRoots::kMostOfOne);
  }
  EXPECT_TRUE(eventually([&] { return b.kernel.told_name(path.substr(0, 2)); })) << "nobody tells it of changes there";
  EXPECT_TRUE(eventually([&] {
    use_as_root(b, "root0");
    return b.exists("root0/" + path);
  })) << "it comes back when it is asked for";
}

}  // namespace
}  // namespace inductorfs::testing
