// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "vfs/faulty_remote.h"
#include "vfs/host.h"

namespace inductorfs::testing {
namespace {

std::string code_path(const std::string& seed) { return in_code_directory(code_name(seed) + ".py"); }

/// The facts of a host change, between two mounts over one store or under one.
class Stale : public ::testing::Test {
 protected:
  static std::string on_disk(const Host& host, const std::string& path) {
    return host.directory / "local/view/" + path;
  }
  static std::string bytes_of(Host& host, vfs::NodeId node) {
    std::string bytes(100, '\0');
    const auto got = host.data().read(node, bytes.data(), bytes.size(), 0);
    return got ? bytes.substr(0, *got) : got.error().to_string();
  }
  static HostOptions with_facts(const std::string& facts) {
    HostOptions options;
    options.facts = facts;
    return options;
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  const std::string path = code_path("code");
  const std::string directory = "triton/0/" + triton_key_of("kernel");
};

TEST_F(Stale, LeavesTheViewAtTheNextMountAndComesBackWithTheFacts) {
  Host a(cluster);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.triton_compile(directory, "first", own_pid()));
  ASSERT_TRUE(a.publish_file("own/file", "private"));
  ASSERT_TRUE(a.sync());

  a.stop();
  a.change_facts("two");
  a.start();

  EXPECT_FALSE(a.exists(path));
  EXPECT_FALSE(a.exists(directory + "/__grp__k.json"));
  EXPECT_FALSE(a.exists(directory + "/k.ttir"));
  EXPECT_EQ(a.read("own/file").value_or("absent"), "private");
  EXPECT_EQ(a.count("view.stale"), 5U);
  a.stop();
  a.change_facts("one");
  a.start();
  EXPECT_EQ(a.read(path).value_or("absent"), "print()");
  ASSERT_TRUE(eventually([&] { return a.exists(directory + "/__grp__k.json"); }));
  EXPECT_EQ(a.read(directory + "/k.ttir").value_or("absent"), "first wrote k.ttir");
}

TEST_F(Stale, LeavesTheViewOfALiveMountAndStaysForWhoHasItOpen) {
  Host a(cluster);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.triton_compile(directory, "first", own_pid()));
  ASSERT_TRUE(a.sync());
  const auto open = a.look_up(path);
  const auto child = a.look_up(directory + "/k.ttir");
  ASSERT_TRUE(open && child);

  a.change_facts("two");

  EXPECT_FALSE(a.exists(path));
  EXPECT_FALSE(a.exists(directory + "/k.ttir"));
  EXPECT_EQ(bytes_of(a, open->node), "print()");
  EXPECT_EQ(bytes_of(a, child->node), "first wrote k.ttir");
  EXPECT_EQ(a.attributes().get_attributes(open->node)->links, 0U);
  EXPECT_TRUE(eventually([&] { return a.kernel.told_name(path.substr(3)) && a.kernel.told_name("k.ttir"); }));
  EXPECT_TRUE(a.list(path.substr(0, 2))->empty());

  a.change_facts("one");
  ASSERT_TRUE(a.wait_for_entry(path));
  EXPECT_EQ(a.read(path).value_or("absent"), "print()");
  EXPECT_EQ(bytes_of(a, open->node), "print()");
}

TEST_F(Stale, TakesNothingAwayWhenTheFactsAreTheSame) {
  Host a(cluster);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.triton_compile(directory, "first", own_pid()));
  a.change_facts("one");
  ASSERT_TRUE(a.sync());
  a.change_facts("one");
  a.restart();
  EXPECT_EQ(a.count("view.stale"), 0U);
  EXPECT_EQ(a.inspection().explain(path).where, "sealed local file");
  EXPECT_EQ(a.inspection().explain(directory + "/k.ttir").where, "sealed local file");
}

TEST_F(Stale, MakesRoomForWhatTheClusterHasOfTheNewFacts) {
  Host b(cluster, with_facts("two"));
  ASSERT_TRUE(b.publish_file(path, "print(2)"));
  ASSERT_TRUE(b.triton_compile(directory, "second", own_pid()));
  ASSERT_TRUE(b.sync());
  Host a(cluster);
  ASSERT_TRUE(a.publish_file(path, "print(1)"));
  ASSERT_TRUE(a.triton_compile(directory, "first", own_pid()));
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.read(path).value_or("absent"), "print(1)");

  a.change_facts("two");

  ASSERT_TRUE(a.wait_for_entry(path));
  EXPECT_EQ(a.read(path).value_or("absent"), "print(2)");
  ASSERT_TRUE(eventually([&] { return a.exists(directory + "/__grp__k.json"); }));
  EXPECT_EQ(a.read(directory + "/k.ttir").value_or("absent"), "second wrote k.ttir");
}

TEST_F(Stale, APurgeThatIsCancelledTakesNothingMoreAndTheNextOneEndsIt) {
  Host a(cluster);
  for (const char* seed : {"one", "two", "three"}) ASSERT_TRUE(a.publish_file(code_path(seed), seed));
  ASSERT_TRUE(a.publish_file("own/file", "private"));
  ASSERT_TRUE(a.sync());

  EXPECT_FALSE(a.file_system->purge({}, [] { return true; }));
  EXPECT_EQ(a.count("view.purged"), 0U);
  EXPECT_FALSE(a.file_system->purge({}, [&] { return a.count("view.purged") > 0; }));
  EXPECT_EQ(a.count("view.purged"), 1U);
  EXPECT_EQ(a.file_system->purge({}, [] { return false; }), 2U);
  EXPECT_EQ(a.read("own/file").value_or("absent"), "private");
}

TEST_F(Stale, KeepsWhatIsPrivateOnTheHost) {
  HostOptions options;
  options.writers = std::make_shared<FakeWriters>();
  options.writers->set_others(fingerprint::Match::kDiffers);
  Host a(cluster, options);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.publish_file("locks/x.lock", "1"));
  ASSERT_TRUE(a.triton_compile(directory, "foreign", own_pid()));
  a.change_facts("two");
  a.restart();
  for (const auto& kept : {path, std::string("locks/x.lock"), directory + "/k.ttir"})
    EXPECT_TRUE(a.exists(kept)) << kept;
  EXPECT_EQ(a.count("view.stale"), 0U);
}

TEST_F(Stale, TakesAwayWhatWasNeverSealed) {
  HostOptions options;
  options.check = [](const layout::Classification&, std::string_view, uint64_t) -> Result<void> {
    return fail(ErrorCode::kCorrupt, "as the test wishes");
  };
  for (const bool live : {true, false}) {
    Host a(cluster, options);
    ASSERT_TRUE(a.publish_file(path, "print()"));
    ASSERT_TRUE(a.sync());
    ASSERT_EQ(a.inspection().explain(path).where, "local file");
    if (!live) a.stop();
    a.change_facts("two");
    if (!live) a.start();
    EXPECT_FALSE(a.exists(path)) << live;
    EXPECT_EQ(a.count("view.stale"), 1U) << live;
  }
}

TEST_F(Stale, TakesAwayASealedFileWithoutAMark) {
  Host a(cluster);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.sync());
  a.stop();
  ASSERT_EQ(::removexattr(on_disk(a, path).c_str(), "user.inductorfs.scope"), 0);
  a.start();
  EXPECT_FALSE(std::filesystem::exists(on_disk(a, path)));
  EXPECT_EQ(a.read(path).value_or("absent"), "print()") << "the cluster has it";
}

TEST_F(Stale, TakesAwayWhatWasCopiedFromTheClusterAndChanged) {
  Host b(cluster);
  ASSERT_TRUE(b.publish_file(path, "print()"));
  ASSERT_TRUE(b.sync());
  Host a(cluster);
  ASSERT_TRUE(a.wait_for_entry(path));
  const auto found = a.look_up(path);
  ASSERT_TRUE(found);
  vfs::AttributeChange change;
  change.mode = 0600;
  ASSERT_TRUE(a.attributes().set_attributes(found->node, change, {::getuid(), ::getgid(), own_pid()}));
  a.restart();
  EXPECT_EQ(a.look_up(path)->attributes.mode & 07777, 0600U);
  a.change_facts("two");
  EXPECT_FALSE(a.exists(path));
}

TEST_F(Stale, KeepsAFileWithNamesInTwoFamilies) {
  Host a(cluster);
  const std::string source = path.substr(0, path.size() - 3) + ".main.cpp";
  ASSERT_TRUE(a.publish_file(path, "text"));
  const auto node = a.look_up(path);
  const auto parent = a.look_up(path.substr(0, 2));
  ASSERT_TRUE(a.names().link(node->node, parent->node, source.substr(3), {::getuid(), ::getgid(), own_pid()}));
  ASSERT_TRUE(a.sync());
  a.restart();
  EXPECT_TRUE(a.exists(path));
  EXPECT_TRUE(a.exists(source));
  a.change_facts("two");
  EXPECT_FALSE(a.exists(path));
  EXPECT_FALSE(a.exists(source));
}

TEST_F(Stale, PublishesWhatWasQueuedForTheOldFacts) {
  const auto fault = std::make_shared<Fault>();
  fault->refuse_publishes(true);
  HostOptions options;
  options.store_limit = 1'000'000;
  options.wrap_remote = [&](auto inner) { return with_faults(std::move(inner), fault); };
  Host a(cluster, options);
  const std::string bytes(200'000, 'x');
  ASSERT_TRUE(a.publish_file(path, bytes));
  ASSERT_TRUE(eventually([&] { return a.catalog->publish_state(path).has_value(); }));
  ASSERT_TRUE(eventually([&] { return a.inspection().status().unsealed == 0; }));

  a.change_facts("two");
  EXPECT_FALSE(a.exists(path));
  a.restart();
  a.restart();  // the second start finds no name of it in the view
  // Until nothing of what was there before can be in the store, but for what must not go.
  for (int i = 0; i < 12; ++i) {
    const std::string fill = "fill" + std::to_string(i);
    (void)a.store->put(std::string(200'000, static_cast<char>('a' + i)));
  }
  EXPECT_TRUE(a.store->find(codec::digest_of(bytes)));
  fault->refuse_publishes(false);

  ASSERT_TRUE(a.sync());
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));
  EXPECT_EQ(b.read(path).value_or("absent"), bytes);
  a.restart();
  EXPECT_TRUE(std::filesystem::is_empty(a.directory / "local/stale")) << "nothing is queued any more";
}

TEST_F(Stale, FollowsTheCatalogToOtherScopes) {
  Host b(cluster);
  ASSERT_TRUE(b.publish_file(path, "print()"));
  ASSERT_TRUE(b.sync());
  Host a(cluster);
  ASSERT_TRUE(a.wait_for_entry(path));
  const auto open = a.look_up(path);
  ASSERT_TRUE(open);

  a.environment.set_facts("two");
  a.catalog->follow(a.environment.scopes());

  EXPECT_FALSE(a.exists(path));
  EXPECT_TRUE(eventually([&] { return a.kernel.told_name(path.substr(3)); }));
  EXPECT_EQ(bytes_of(a, open->node), "print()") << "open files stay";
}

TEST_F(Stale, HidesFromThisMountAloneWhatIsForAnotherHost) {
  Host b(cluster);
  ASSERT_TRUE(b.publish_file(path, "new libc"));
  ASSERT_TRUE(b.sync());
  HostOptions options;
  options.check = [](const layout::Classification&, std::string_view bytes, uint64_t) -> Result<void> {
    if (bytes.starts_with("new libc")) return fail(ErrorCode::kNotSupported, "it needs GLIBC_2.40, this host has 2.36");
    return {};
  };
  Host a(cluster, options);
  ASSERT_TRUE(a.wait_for_entry(path));

  EXPECT_FALSE(a.exists(path));

  EXPECT_EQ(a.count("fetch.not_for_this_host"), 1U);
  EXPECT_EQ(a.count("lookup.lost"), 0U);
  EXPECT_EQ(a.count("fetch.corrupt"), 0U);
  EXPECT_FALSE(a.store->find(codec::digest_of("new libc")));
  EXPECT_FALSE(a.exists(path));
  EXPECT_EQ(a.count("fetch.not_for_this_host"), 1U) << "it is not fetched again";
  EXPECT_TRUE(a.list(path.substr(0, 2)).value_or(std::vector<std::string>{}).empty());
  const auto explained = a.inspection().explain(path);
  EXPECT_FALSE(explained.visible);
  EXPECT_NE(explained.why.find("GLIBC_2.40"), std::string::npos) << explained.why;
  EXPECT_TRUE(b.catalog->find(path)) << "nobody else is told";
  Host c(cluster);
  ASSERT_TRUE(c.wait_for_entry(path));
  EXPECT_EQ(c.read(path).value_or("absent"), "new libc");

  ASSERT_TRUE(c.unlink(path));
  ASSERT_TRUE(c.publish_file(path, "old libc"));
  ASSERT_TRUE(c.sync());
  ASSERT_TRUE(a.wait_for_entry(path));
  EXPECT_EQ(a.read(path).value_or("absent"), "old libc");
}

TEST_F(Stale, ShowsWhatItFoundUnfitWhenTheHostHasChangedAndAfterARestart) {
  std::atomic<bool> installed{false};
  HostOptions options;
  options.check = [&](const layout::Classification&, std::string_view, uint64_t) -> Result<void> {
    if (!installed) return fail(ErrorCode::kNotSupported, "needs libx.so.1, which this host does not have");
    return {};
  };
  Host a(cluster, options);
  Host b(cluster);
  const std::map<std::string, std::function<void()>> changes = {
      {"a library came", [&] { a.file_system->judge_again(); }},
      {"facts changed", [&] { a.file_system->host_changed(); }},
      {"mounted again", [&] { a.restart(); }},
  };
  for (const auto& [what, change] : changes) {
    const std::string file = code_path(what);
    installed = false;
    ASSERT_TRUE(b.publish_file(file, "needs libx"));
    ASSERT_TRUE(b.sync());
    ASSERT_TRUE(a.wait_for_entry(file));
    EXPECT_FALSE(a.exists(file));
    EXPECT_TRUE(a.wait_until_gone(file));
    EXPECT_NE(a.inspection().explain(file).why.find("libx.so.1"), std::string::npos) << what;
    installed = true;
    EXPECT_FALSE(a.exists(file)) << "nobody has told it";

    change();

    EXPECT_EQ(a.read(file).value_or("absent"), "needs libx") << what;
    EXPECT_EQ(a.catalog->status().hidden, 0U) << what;
    const auto told = [&] { return a.kernel.told_name(file.substr(3)) || a.kernel.told_name(file.substr(0, 2)); };
    EXPECT_TRUE(what == "mounted again" || eventually(told)) << what;
  }
}

/// Another release of this program may accept it: no node takes away for the cluster what others read.
TEST_F(Stale, KeepsForTheClusterWhatItsOwnCheckCallsDamaged) {
  Host b(cluster);
  ASSERT_TRUE(b.publish_file(path, "of a newer torch"));
  ASSERT_TRUE(b.triton_compile(directory, "first", own_pid()));
  ASSERT_TRUE(b.sync());
  HostOptions options;
  options.check = [&](const layout::Classification& classified, std::string_view, uint64_t) -> Result<void> {
    if (classified.canonical == path || classified.canonical.ends_with("k.ttir")) {
      return fail(ErrorCode::kCorrupt, "a form that this release does not know");
    }
    return {};
  };
  Host a(cluster, options);
  const std::string child = layout::canonical_path(directory) + "/k.ttir";
  ASSERT_TRUE(a.wait_for_entry(path));
  ASSERT_TRUE(a.wait_for_entry(child));

  EXPECT_FALSE(a.exists(path));
  EXPECT_FALSE(a.exists(directory + "/__grp__k.json"));
  EXPECT_TRUE(a.wait_until_gone(child));
  EXPECT_NE(a.inspection().explain(path).why.find("does not know"), std::string::npos);
  EXPECT_EQ(a.count("lookup.lost"), 0U);
  // What it would tell the cluster goes before what it publishes then.
  ASSERT_TRUE(a.publish_file(in_code_directory(code_name("later") + ".py"), "print()"));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.wait_for_entry(in_code_directory(code_name("later") + ".py")));
  EXPECT_EQ(a.count("catalog.lost_reported"), 0U);
  Host c(cluster);
  ASSERT_TRUE(eventually([&] { return c.exists(path) && c.exists(directory + "/__grp__k.json"); }));
}

TEST_F(Stale, FetchesAgainWhatItsOwnDiskHasDamaged) {
  Host b(cluster);
  ASSERT_TRUE(b.publish_file(path, "print()"));
  ASSERT_TRUE(b.sync());
  HostOptions options;
  options.check = [](const layout::Classification&, std::string_view bytes, uint64_t) -> Result<void> {
    if (bytes != "print()") return fail(ErrorCode::kCorrupt, "not what its name says");
    return {};
  };
  Host a(cluster, options);
  ASSERT_TRUE(a.wait_for_entry(path));
  const auto digest = codec::digest_of("print()");
  const auto found = a.look_up(path);
  ASSERT_TRUE(found);
  a.names().forget(found->node, 1);
  {
    auto blob = a.store->open_blob(digest);
    ASSERT_TRUE(blob);
    const std::string file = "/proc/self/fd/" + std::to_string(blob->file());
    ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
    std::ofstream stream(file, std::ios::in | std::ios::out);
    stream.seekp(static_cast<std::streamoff>(blob->offset()));
    stream << "damage";
  }
  a.file_system->judge_again();

  EXPECT_FALSE(a.exists(path)) << "a miss: its bytes are on their way again";
  EXPECT_EQ(a.count("lookup.lost"), 0U);
  EXPECT_EQ(a.count("fetch.not_for_this_host"), 0U);
  EXPECT_TRUE(b.catalog->find(path));
  EXPECT_EQ(a.read(path).value_or("absent"), "print()");
}

TEST_F(Stale, HidesATritonSetWithOneChildForAnotherHost) {
  Host b(cluster);
  ASSERT_TRUE(b.triton_compile(directory, "first", own_pid()));
  ASSERT_TRUE(b.sync());
  HostOptions options;
  options.check = [](const layout::Classification& classified, std::string_view, uint64_t) -> Result<void> {
    if (classified.canonical.ends_with("k.ttir")) return fail(ErrorCode::kNotSupported, "it is for sm_100");
    return {};
  };
  Host a(cluster, options);
  ASSERT_TRUE(a.wait_for_entry(layout::canonical_path(directory) + "/k.ttir"));
  EXPECT_FALSE(a.exists(directory + "/__grp__k.json"));
  EXPECT_TRUE(a.wait_until_gone(layout::canonical_path(directory) + "/__grp__k.json"));
  EXPECT_NE(a.inspection().explain(directory + "/k.ttir").why.find("sm_100"), std::string::npos);
  Host c(cluster);
  ASSERT_TRUE(eventually([&] { return c.exists(directory + "/__grp__k.json"); }));
}

TEST_F(Stale, RefusesToPublishWhatIsForAnotherHost) {
  HostOptions options;
  options.check = [](const layout::Classification&, std::string_view, uint64_t) -> Result<void> {
    return fail(ErrorCode::kNotSupported, "it needs GLIBC_2.40");
  };
  Host a(cluster, options);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.sync());
  EXPECT_FALSE(a.catalog->find(path));
  ASSERT_EQ(a.inspection().status().refused.size(), 1U);
  EXPECT_EQ(a.inspection().status().foreign, 0U);
}

}  // namespace
}  // namespace inductorfs::testing
