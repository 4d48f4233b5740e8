// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/root_scopes.h"

#include <gtest/gtest.h>

#include "support/lacks.h"
#include "vfs/failing_attributes.h"
#include "vfs/host.h"

/// Cache roots that share with the roots of the same user only.
namespace inductorfs::testing {
namespace {

constexpr uid_t kAlice = 1001;
constexpr uid_t kBob = 1002;

class RootScopes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::getuid() != 0) INDUCTORFS_LACKS("the right to give files to other users");
  }
  static HostOptions options() {
    HostOptions result;
    result.part_users = true;
    result.chown_to_caller = true;
    result.root_mode = 01777;
    return result;
  }
  /// As `mkdir` of this user, and the first name that torch asks for.
  static void use_as_root(Host& host, const std::string& root, uid_t user, mode_t mode = 0755) {
    host.user = user;
    ASSERT_TRUE(host.make_directory(root, mode));
    (void)host.exists(root + "/fxgraph");
  }
  /// Writes a generated source in this root; returns its name below any root.
  static std::string write(Host& host, const std::string& root, const std::string& seed) {
    const std::string path = in_code_directory(code_name(seed) + ".py");
    EXPECT_TRUE(host.make_directories(root + "/" + path.substr(0, 2)));
    EXPECT_TRUE(host.publish_file(root + "/" + path, "print('" + seed + "')"));
    return path;
  }
  static std::string publish(Host& host, const std::string& root, const std::string& seed) {
    const std::string path = write(host, root, seed);
    EXPECT_TRUE(host.sync());
    return path;
  }
  /// Writes a source and a Triton set in root "alice" while the name service is asked; returns their names below it.
  static std::pair<std::string, std::string> make_without_a_name(Host& host) {
    host.environment.ask(true);
    use_as_root(host, "alice", kAlice);
    const std::string path = write(host, "alice", "hers");
    const std::string key = "triton/0/" + triton_key_of("kernel");
    EXPECT_TRUE(host.make_directories("alice/" + key));
    EXPECT_TRUE(host.triton_compile("alice/" + key, "hers", own_pid()));
    EXPECT_FALSE(host.file_system->sync(Deadline::after(Milliseconds(300)))) << "it waits";
    return {path, key};
  }
  static bool shows(Host& host, const std::string& path) {
    return eventually([&] { return host.exists(path); });
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
};

TEST_F(RootScopes, ShowAUserWhatTheSameUserMadeAndNobodyElse) {
  Host a(cluster, options());
  Host b(cluster, options());
  use_as_root(a, "alice", kAlice);
  const std::string path = publish(a, "alice", "hers");

  use_as_root(b, "work", kAlice);
  EXPECT_TRUE(shows(b, "work/" + path));
  EXPECT_EQ(b.read("work/" + path).value_or("absent"), "print('hers')");
  use_as_root(b, "bob", kBob);
  EXPECT_FALSE(b.exists("bob/" + path));
  EXPECT_FALSE(b.exists(path)) << "the mountpoint is everybody's";
  use_as_root(a, "bob", kBob);
  EXPECT_FALSE(a.exists("bob/" + path)) << "on the same host neither";
  EXPECT_EQ(b.inspection().explain("work/" + path).scope, a.inspection().explain("alice/" + path).scope);
  EXPECT_NE(b.inspection().explain("bob/" + path).scope, b.inspection().explain("work/" + path).scope);
}

/// Many users begin at once, or the name service is slow: what their jobs make meanwhile waits for the names.
TEST_F(RootScopes, ShareWhatWasMadeBeforeTheUserHadAName) {
  Host a(cluster, options());
  Host b(cluster, options());
  const auto [path, key] = make_without_a_name(a);
  a.environment.ask(false);
  EXPECT_TRUE(a.sync());
  use_as_root(b, "work", kAlice);
  EXPECT_TRUE(shows(b, "work/" + path)) << a.inspection().explain("alice/" + path).why;
  ASSERT_TRUE(b.make_directories("work/triton/0"));
  EXPECT_TRUE(shows(b, "work/" + key + "/__grp__k.json"));
}

/// Nobody has judged its writers then, whatever is known later.
TEST_F(RootScopes, KeepHereWhatWasMadeWhenNoNameCame) {
  Host a(cluster, options());
  const auto [path, key] = make_without_a_name(a);
  a.environment.ask(false, true);
  EXPECT_TRUE(a.sync());
  EXPECT_TRUE(a.inspection().explain("alice/" + path).why.starts_with("written on this host, and stays here: "))
      << a.inspection().explain("alice/" + path).why;
  a.environment.ask(false);
  ASSERT_TRUE(a.rename("alice/" + path, "alice/elsewhere"));
  ASSERT_TRUE(a.rename("alice/elsewhere", "alice/" + path));
  EXPECT_TRUE(a.sync());
  Host b(cluster, options());
  use_as_root(b, "work", kAlice);
  const std::string later = publish(a, "alice", "more");
  EXPECT_TRUE(shows(b, "work/" + later));
  EXPECT_FALSE(b.exists("work/" + path));
  ASSERT_TRUE(b.make_directories("work/triton/0"));
  EXPECT_FALSE(b.exists("work/" + key + "/__grp__k.json"));
}

TEST_F(RootScopes, ShowWhatEverybodySharesInDirectoriesOfRootAlone) {
  Host a(cluster, options());
  Host b(cluster, options());
  use_as_root(a, "team", 0);
  const std::string path = publish(a, "team", "everybody's");
  use_as_root(b, "other", 0);
  EXPECT_TRUE(shows(b, path));
  EXPECT_TRUE(b.exists("other/" + path));
  use_as_root(b, "alice", kAlice);
  EXPECT_FALSE(b.exists("alice/" + path)) << "anybody may have made it";
}

TEST_F(RootScopes, ShowTheSetsOfTheSameUser) {
  Host a(cluster, options());
  Host b(cluster, options());
  const std::string key = "triton/0/" + triton_key_of("kernel");
  use_as_root(a, "alice", kAlice);
  ASSERT_TRUE(a.make_directories("alice/" + key));
  ASSERT_TRUE(a.triton_compile("alice/" + key, "hers", own_pid()));
  ASSERT_TRUE(a.sync());
  for (const auto& [root, user] : {std::pair("alice", kAlice), {"bob", kBob}}) {
    use_as_root(b, root, user);
    ASSERT_TRUE(b.make_directories(std::string(root) + "/triton/0"));
  }
  EXPECT_TRUE(shows(b, "alice/" + key + "/__grp__k.json"));
  EXPECT_EQ(b.read("alice/" + key + "/k.ttir").value_or("absent"), "hers wrote k.ttir");
  EXPECT_FALSE(b.exists("bob/" + key + "/__grp__k.json"));
}

TEST_F(RootScopes, KeepHereWhatOthersPutIntoAUsersRoot) {
  Host a(cluster, options());
  use_as_root(a, "alice", kAlice, 01777);
  a.user = kBob;
  const std::string path = write(a, "alice", "his");
  const std::string key = "triton/0/" + triton_key_of("kernel");
  ASSERT_TRUE(a.make_directories("alice/" + key));
  ASSERT_TRUE(a.triton_compile("alice/" + key, "his", own_pid()));
  ASSERT_TRUE(a.sync());
  EXPECT_NE(a.inspection().explain("alice/" + path).why.find("user 1002 made it in a cache root of user 1001"),
            std::string::npos)
      << a.inspection().explain("alice/" + path).why;
  EXPECT_EQ(a.inspection().status().foreign, 5U) << "a source, and the four files of a set";
  a.user = kAlice;
  const std::string hers = publish(a, "alice", "hers");
  Host b(cluster, options());
  use_as_root(b, "alice", kAlice);
  EXPECT_TRUE(shows(b, "alice/" + hers));
  EXPECT_FALSE(b.exists("alice/" + path));
  EXPECT_FALSE(b.exists("alice/" + key));
}

TEST_F(RootScopes, ChangeWithTheOwner) {
  Host a(cluster, options());
  Host b(cluster, options());
  use_as_root(a, "alice", kAlice);
  const std::string hers = publish(a, "alice", "hers");
  use_as_root(a, "bob", kBob);
  const std::string his = publish(a, "bob", "his");

  use_as_root(b, "root", kAlice);
  ASSERT_TRUE(shows(b, "root/" + hers));
  EXPECT_FALSE(b.exists("root/" + his));
  vfs::AttributeChange change;
  change.uid = kBob;
  b.user = 0;
  const auto node = b.look_up("root");
  ASSERT_TRUE(node);
  ASSERT_TRUE(b.attributes().set_attributes(node->node, change, {0, 0, own_pid()}));
  EXPECT_FALSE(b.exists("root/" + hers));
  EXPECT_TRUE(eventually([&] { return b.kernel.told_name(hers.substr(3)); })) << "the kernel has kept it";
  EXPECT_TRUE(shows(b, "root/" + his));
}

TEST_F(RootScopes, TellTheKernelOfTheRootThatChangesAndOfNoOther) {
  Host a(cluster, options());
  Host b(cluster, options());
  use_as_root(a, "alice", kAlice);
  const std::string hers = publish(a, "alice", "hers");
  std::vector<vfs::NodeId> directories;
  for (const std::string root : {"one", "other"}) {
    use_as_root(b, root, kAlice);
    ASSERT_TRUE(shows(b, root + "/" + hers));
    directories.push_back(b.look_up(root + "/" + hers.substr(0, 2))->node);
  }
  for (const auto& directory : directories) (void)b.kernel.take_content(directory);
  vfs::AttributeChange change;
  change.uid = kBob;
  b.user = 0;
  ASSERT_TRUE(b.attributes().set_attributes(b.look_up("one")->node, change, {0, 0, own_pid()}));
  EXPECT_TRUE(eventually([&] { return b.kernel.take_content(directories[0]); }));
  // The notices of one change are told in the order of their directories: what comes later is told by now.
  change.uid = kAlice;
  ASSERT_TRUE(b.attributes().set_attributes(b.look_up("one")->node, change, {0, 0, own_pid()}));
  EXPECT_TRUE(eventually([&] { return b.kernel.take_content(directories[0]); }));
  EXPECT_FALSE(b.kernel.take_content(directories[1]));
}

TEST_F(RootScopes, AreThoseOfTheNextOwnerOfTheName) {
  Host a(cluster, options());
  Host b(cluster, options());
  use_as_root(a, "alice", kAlice);
  const std::string path = publish(a, "alice", "hers");
  use_as_root(b, "job", kAlice);
  ASSERT_TRUE(shows(b, "job/" + path));
  ASSERT_TRUE(b.unlink("job/" + path));
  ASSERT_TRUE(b.remove_directory("job/" + path.substr(0, 2)));
  ASSERT_TRUE(b.remove_directory("job"));
  use_as_root(b, "job", kBob);
  EXPECT_FALSE(b.exists("job/" + path));
  use_as_root(b, "again", kAlice);
  EXPECT_TRUE(b.exists("again/" + path));
}

/// Under the path of a root of another user, of which nobody has asked for a name since.
TEST_F(RootScopes, AreThoseOfADirectoryThatWasRenamedThere) {
  Host a(cluster, options());
  use_as_root(a, "place", kAlice);
  ASSERT_TRUE(a.remove_directory("place"));
  use_as_root(a, "made", kBob);
  const std::string path = write(a, "made", "his");
  const std::string his = a.inspection().explain("made/" + path).scope;
  ASSERT_TRUE(a.rename("made", "place"));
  EXPECT_EQ(a.inspection().explain("place/" + path).scope, his);
  ASSERT_TRUE(a.sync());
  Host b(cluster, options());
  use_as_root(b, "alice", kAlice);
  use_as_root(b, "bob", kBob);
  EXPECT_TRUE(shows(b, "bob/" + path)) << "also if it was being sealed when its directory moved";
  EXPECT_FALSE(b.exists("alice/" + path));
}

TEST_F(RootScopes, KeepHereWhatAUserHasInADirectoryOfRootAlone) {
  HostOptions of_root = options();
  of_root.root_mode = 0755;
  Host a(cluster, of_root);
  Host b(cluster, options());
  a.user = 0;
  const std::string path = in_code_directory(code_name("his") + ".py");
  ASSERT_TRUE(a.make_directory(path.substr(0, 2)));
  vfs::AttributeChange change;
  change.uid = kBob;
  ASSERT_TRUE(a.attributes().set_attributes(a.look_up(path.substr(0, 2))->node, change, {0, 0, own_pid()}));
  a.user = kBob;  // whose name is two letters
  ASSERT_TRUE(a.publish_file(path, "print('his')"));
  ASSERT_TRUE(a.sync());
  EXPECT_NE(a.inspection().explain(path).why.find("user 1002 made it in a cache root of user 0"), std::string::npos)
      << a.inspection().explain(path).why;
  EXPECT_FALSE(b.exists(path));
}

TEST_F(RootScopes, AreDeletedFromByThoseWhoAreShownThem) {
  Host a(cluster, options());
  use_as_root(a, "alice", kAlice);
  const std::string path = publish(a, "alice", "hers");
  use_as_root(a, "work", kAlice);
  ASSERT_TRUE(shows(a, "work/" + path));
  a.user = kBob;
  ASSERT_TRUE(a.make_directories(path.substr(0, 2)));
  ASSERT_TRUE(a.publish_file(path, "print('hers')"));  // any bytes: the path counts
  ASSERT_TRUE(a.unlink(path));
  use_as_root(a, "again", kAlice);
  EXPECT_TRUE(a.exists("again/" + path));
  a.restart();
  (void)a.exists("work/fxgraph");
  EXPECT_TRUE(shows(a, "work/" + path));
}

TEST_F(RootScopes, OfTheMountpointChangeWithItsOwner) {
  Host a(cluster, options());
  Host b(cluster, options());
  use_as_root(a, "alice", kAlice);
  const std::string path = publish(a, "alice", "hers");
  EXPECT_FALSE(b.exists(path));
  vfs::AttributeChange change;
  change.uid = kAlice;
  change.mode = 0755;
  ASSERT_TRUE(b.attributes().set_attributes(vfs::kRootNode, change, {0, 0, own_pid()}));
  EXPECT_TRUE(shows(b, path));
}

TEST_F(RootScopes, KeepTheFilesOfAUserWhoSharedWithEverybodyBefore) {
  TemporaryDirectory store;
  HostOptions all = options();
  all.part_users = false;
  all.store = store.path();
  std::string path;
  {
    Host a(cluster, all);
    use_as_root(a, "alice", kAlice);
    path = publish(a, "alice", "hers");
  }
  all.part_users = true;
  Host a(cluster, all);
  EXPECT_EQ(a.read("alice/" + path).value_or("absent"), "print('hers')");
}

TEST_F(RootScopes, StayOverARestartAndATakeover) {
  Host a(cluster, options());
  Host b(cluster, options());
  use_as_root(a, "alice", kAlice);
  const std::string path = publish(a, "alice", "hers");
  use_as_root(b, "alice", kAlice);
  use_as_root(b, "bob", kBob);
  ASSERT_TRUE(shows(b, "alice/" + path));
  const std::string mine = publish(b, "bob", "his");
  b.take_over();
  EXPECT_FALSE(b.exists("bob/" + path));
  EXPECT_TRUE(b.exists("alice/" + path));
  EXPECT_TRUE(eventually([&] { return b.count("view.resumed_nodes") > 0 && b.sync().has_value(); }));
  EXPECT_FALSE(b.kernel.told_name(path.substr(3))) << "nothing has changed for who has it";
  b.restart();
  EXPECT_FALSE(b.exists("bob/" + path));
  (void)b.exists("alice/fxgraph");  // as torch does, which proves the root
  EXPECT_TRUE(shows(b, "alice/" + path));
  EXPECT_EQ(b.read("bob/" + mine).value_or("absent"), "print('his')") << "a local file of another scope than before";
}

TEST_F(RootScopes, FollowTheFactsOfTheHost) {
  Host a(cluster, options());
  Host b(cluster, options());
  use_as_root(a, "alice", kAlice);
  const std::string path = publish(a, "alice", "hers");
  use_as_root(b, "alice", kAlice);
  ASSERT_TRUE(shows(b, "alice/" + path));
  b.change_facts("two");
  EXPECT_FALSE(b.exists("alice/" + path));
  b.change_facts("one");
  EXPECT_TRUE(shows(b, "alice/" + path));
}

TEST_F(RootScopes, AreNamedInTheStatus) {
  Host a(cluster, options());
  use_as_root(a, "alice", kAlice);
  use_as_root(a, "team", 0);
  const auto roots = a.inspection().status().first_roots;
  ASSERT_EQ(roots.size(), 2U);
  EXPECT_EQ(roots[0].shared_with, "user=1001");
  EXPECT_EQ(roots[1].shared_with, "everybody");
}

TEST_F(RootScopes, CostNothingWhereAllShareWithAll) {
  HostOptions all = options();
  all.part_users = false;
  Host a(cluster, all);
  Host b(cluster, all);
  use_as_root(a, "alice", kAlice);
  const std::string path = publish(a, "alice", "hers");
  use_as_root(b, "bob", kBob);
  EXPECT_TRUE(shows(b, "bob/" + path));
}

/// What another user does to a file of hers that her umask lets everybody write to.
struct Meddling {
  const char* name;
  std::function<void(Host&, const std::string& temporary, const std::string& path)> by_bob;
};

class RootScopesOfMakers : public RootScopes, public ::testing::WithParamInterface<Meddling> {
 protected:
  static constexpr const char* kTemporary = "alice/.4711.tmp";
  static void make_temporary(Host& host, const std::string& seed) {
    host.user = kAlice;
    ASSERT_TRUE(host.create(kTemporary, "print('" + seed + "')", 0666));
  }
  /// Whatever umask the tests run under.
  static void set_mode(Host& host, const std::string& path, mode_t mode) {
    vfs::AttributeChange change;
    change.mode = mode;
    const auto node = host.look_up(path);
    ASSERT_TRUE(node);
    ASSERT_TRUE(host.attributes().set_attributes(node->node, change, {0, 0, own_pid()}));
  }
  static std::string name_of(const std::string& seed) { return in_code_directory(code_name(seed) + ".py"); }
};

TEST_P(RootScopesOfMakers, KeepHereWhatAnotherUserHadAHandIn) {
  TemporaryDirectory store;
  HostOptions kept = options();
  kept.store = store.path();
  const std::string path = name_of("hers");
  std::string later;
  {
    Host a(cluster, kept);
    use_as_root(a, "alice", kAlice);
    ASSERT_TRUE(a.make_directories("alice/" + path.substr(0, 2)));
    make_temporary(a, "hers");
    GetParam().by_bob(a, kTemporary, "alice/" + path);
    a.user = kAlice;
    if (!a.exists("alice/" + path)) {
      ASSERT_TRUE(a.rename(kTemporary, "alice/" + path));
    }
    ASSERT_TRUE(a.sync());
    const auto told = a.inspection().explain("alice/" + path);
    EXPECT_NE(told.why.find("user 1002 has written to it, or has given it its name"), std::string::npos) << told.why;
    EXPECT_EQ(a.inspection().status().foreign, 1U);
    // For good: under another name, after a restart, and when its owner begins it anew.
    ASSERT_TRUE(a.rename("alice/" + path, kTemporary));
    ASSERT_TRUE(a.rename(kTemporary, "alice/" + path));
    ASSERT_TRUE(a.truncate("alice/" + path, 0));
    ASSERT_TRUE(a.rename("alice/" + path, kTemporary));
    ASSERT_TRUE(a.rename(kTemporary, "alice/" + path));
    ASSERT_TRUE(a.sync());
    a.restart();
    a.user = kAlice;
    ASSERT_TRUE(a.sync());
    later = publish(a, "alice", "later");
  }
  Host b(cluster, options());
  use_as_root(b, "alice", kAlice);
  EXPECT_TRUE(shows(b, "alice/" + later));
  EXPECT_FALSE(b.exists("alice/" + path));
}

const Meddling kMeddlings[] = {
    {"Writes",
     [](Host& host, const std::string& temporary, const std::string&) {
       host.user = kBob;
       ASSERT_TRUE(host.append(temporary, "\nimport his"));
     }},
    {"Truncates",
     [](Host& host, const std::string& temporary, const std::string&) {
       host.user = kBob;
       ASSERT_TRUE(host.truncate(temporary, 5));
     }},
    {"GivesTheName",
     [](Host& host, const std::string& temporary, const std::string& path) {
       host.user = kBob;
       ASSERT_TRUE(host.rename(temporary, path));
     }},
    {"GivesATemporaryName",
     [](Host& host, const std::string& temporary, const std::string&) {
       host.user = kBob;
       ASSERT_TRUE(host.rename(temporary, "alice/.1.tmp"));
       ASSERT_TRUE(host.rename("alice/.1.tmp", temporary));
     }},
    {"Exchanges",
     [](Host& host, const std::string& temporary, const std::string& path) {
       ASSERT_TRUE(host.create("alice/.2.tmp", "print('another of hers')", 0666));
       host.user = kBob;
       ASSERT_TRUE(host.rename("alice/.2.tmp", temporary, 0, vfs::RenameMode::kExchange));
       host.user = kAlice;
       ASSERT_TRUE(host.rename(temporary, path));
     }},
    {"Links",
     [](Host& host, const std::string& temporary, const std::string& path) {
       const auto node = host.look_up(temporary);
       const auto directory = host.look_up(path.substr(0, path.rfind('/')));
       ASSERT_TRUE(node && directory);
       ASSERT_TRUE(
           host.names().link(node->node, directory->node, path.substr(path.rfind('/') + 1), {kBob, kBob, own_pid()}));
       ASSERT_TRUE(host.unlink(temporary));
       ASSERT_TRUE(host.rename(path, temporary));  // she gives it the name, which is a sign
     }},
};
INSTANTIATE_TEST_SUITE_P(ByAnother, RootScopesOfMakers, ::testing::ValuesIn(kMeddlings),
                         [](const auto& named) { return std::string(named.param.name); });

TEST_F(RootScopesOfMakers, KeepHereWhatLiesInADirectoryThatAnotherUserHasNamed) {
  Host a(cluster, options());
  use_as_root(a, "alice", kAlice);
  const std::string key = "alice/triton/0/" + triton_key_of("kernel");
  const std::string other = "alice/triton/0/" + triton_key_of("another kernel");
  ASSERT_TRUE(a.make_directories(key));
  a.user = kBob;
  ASSERT_TRUE(a.rename(key, other));  // her job goes on in the directory that it has
  a.user = kAlice;
  ASSERT_TRUE(a.triton_compile(other, "hers", own_pid()));
  ASSERT_TRUE(a.sync());
  const std::string later = publish(a, "alice", "later");
  Host b(cluster, options());
  use_as_root(b, "alice", kAlice);
  ASSERT_TRUE(shows(b, "alice/" + later));
  ASSERT_TRUE(b.make_directories("alice/triton/0"));
  EXPECT_FALSE(b.exists(other + "/__grp__k.json"));
  const auto told = a.inspection().explain(other + "/k.ttir");
  EXPECT_NE(told.why.find("of its directory " + triton_key_of("another kernel") + ": user 1002"), std::string::npos)
      << told.why;
}

TEST_F(RootScopesOfMakers, KeepHereWhatTheClusterHadWhenAnotherUserMovesIt) {
  Host a(cluster, options());
  use_as_root(a, "alice", kAlice);
  const std::string hers = publish(a, "alice", "hers");
  Host b(cluster, options());
  use_as_root(b, "alice", kAlice);
  ASSERT_TRUE(shows(b, "alice/" + hers));
  const std::string path = name_of("another");
  ASSERT_TRUE(b.make_directories("alice/" + path.substr(0, 2)));
  b.user = kBob;
  const auto moved = b.rename("alice/" + hers, "alice/" + path);
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().code(), ErrorCode::kCrossDevice);
  ASSERT_TRUE(b.publish_file("alice/" + path, *b.read("alice/" + hers)));  // as mv(1) does then
  ASSERT_TRUE(b.unlink("alice/" + hers));
  b.user = kAlice;
  const std::string later = publish(b, "alice", "later");
  EXPECT_TRUE(shows(a, "alice/" + later));
  EXPECT_FALSE(a.exists("alice/" + path));
}

/// What the disk does not tell once is neither "nobody" nor "everybody".
TEST_F(RootScopesOfMakers, AreAskedForAgainWhereTheDiskHasNotTold) {
  Host a(cluster, options());
  use_as_root(a, "alice", kAlice);
  std::string path;
  {
    const FailingAttributes failing("user.inductorfs.makers");
    path = write(a, "alice", "hers");
    const auto synced = a.sync();
    ASSERT_FALSE(synced.has_value());
    EXPECT_NE(synced.error().what().find(path), std::string::npos) << synced.error().what();
  }
  ASSERT_TRUE(a.sync());
  Host b(cluster, options());
  use_as_root(b, "alice", kAlice);
  EXPECT_TRUE(shows(b, "alice/" + path));
}

/// A mapping's pages come back without a name: whoever could write to the file may have.
TEST_F(RootScopesOfMakers, KeepHereWhatAnybodyMayHaveMapped) {
  Host a(cluster, options());
  use_as_root(a, "alice", kAlice);
  const auto map = [&](const std::string& seed, mode_t mode, mode_t later) {
    const std::string path = name_of(seed);
    a.user = kAlice;
    EXPECT_TRUE(a.make_directories("alice/" + path.substr(0, 2)));
    EXPECT_TRUE(a.create(kTemporary, "print('" + seed + "')", mode));
    const auto node = a.look_up(kTemporary);
    for (const mode_t chosen : {mode, later}) set_mode(a, kTemporary, chosen);
    EXPECT_TRUE(a.data().write(node->node, "print", 0, {0, 0, vfs::kWriteBack}));
    EXPECT_TRUE(a.rename(kTemporary, "alice/" + path));
    return path;
  };
  const std::string open = map("open", 0666, 0666);
  const std::string once_open = map("once open", 0666, 0644);
  const std::string closed = map("closed", 0644, 0644);
  ASSERT_TRUE(a.sync());
  Host b(cluster, options());
  use_as_root(b, "alice", kAlice);
  EXPECT_TRUE(shows(b, "alice/" + closed));
  EXPECT_FALSE(b.exists("alice/" + open));
  EXPECT_FALSE(b.exists("alice/" + once_open));
  const auto told = a.inspection().explain("alice/" + open);
  EXPECT_NE(told.why.find("any user may have written to it through a shared mapping"), std::string::npos) << told.why;
}

TEST_F(RootScopesOfMakers, ShareWhatSeveralUsersMadeWhereAllOfThemMay) {
  Host a(cluster, options());
  use_as_root(a, "team", 0);
  set_mode(a, "team", 01777);
  a.user = kAlice;
  ASSERT_TRUE(a.create("team/.1.tmp", "print('", 0666));
  a.user = kBob;
  ASSERT_TRUE(a.append("team/.1.tmp", "ours')"));
  const std::string path = name_of("ours");
  ASSERT_TRUE(a.make_directories("team/" + path.substr(0, 2)));
  ASSERT_TRUE(a.rename("team/.1.tmp", "team/" + path));
  ASSERT_TRUE(a.sync());
  Host b(cluster, options());
  EXPECT_TRUE(shows(b, path));
}

/// As a number that is given to another account.
TEST_F(RootScopes, AskForTheNameAgainWhenTheAccountsOfTheHostChange) {
  Host a(cluster, options());
  use_as_root(a, "alice", kAlice);
  const std::string before = a.inspection().explain("alice/" + write(a, "alice", "hers")).scope;
  a.environment.rename_users("other");
  EXPECT_NE(a.inspection().explain("alice/" + write(a, "alice", "his")).scope, before);
}

}  // namespace
}  // namespace inductorfs::testing
