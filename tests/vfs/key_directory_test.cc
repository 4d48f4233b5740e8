// SPDX-License-Identifier: Apache-2.0
#include "vfs/nodes/key_directory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>

#include "inductorfs/takeover/request_slots.h"
#include "support/lacks.h"
#include "vfs/host.h"
#include "vfs/process.h"
#include "vfs/thread.h"
#include "vfs/tree/view_files.h"

namespace inductorfs::testing {
namespace {

class KeyDirectory : public ::testing::Test {
 protected:
  /// Who wrote each file that a process sees, "" for absent.
  static std::string writers_seen(Host& host, const std::string& directory, pid_t process) {
    std::string seen;
    for (const char* name : {"k.json", "k.ttir", "k.source"}) {
      const auto text = host.read(directory + "/" + name, process);
      seen += !text ? "-" : text->find("first") != std::string::npos ? "1" : "2";
    }
    return seen;
  }

  /// Whether Triton takes the directory for a kernel, and not for a miss (runtime/cache.py: get_group).
  static bool is_set(Host& host, const std::string& directory, pid_t process) {
    return host.look_up(directory + "/__grp__k.json", process).has_value();
  }

  /// The cluster comes back with another writer's set, as after a failover that lost its tail.
  void exchange_cluster_set() {
    Host other(cluster);
    Process writer;
    ASSERT_TRUE(other.wait_for_entry(canonical + "/__grp__k.json"));
    for (const auto& known : other.catalog->entries_in(canonical)) other.catalog->report_lost(known);
    ASSERT_TRUE(other.triton_compile(directory, "second", writer.pid()));
    ASSERT_TRUE(eventually([&] {
      EXPECT_TRUE(other.sync());
      Host another(cluster);
      return writers_seen(another, directory, writer.pid()) == "222";
    }));
  }
  /// Has first's set in the cluster, and waits for the change of a file on `host`.
  [[nodiscard]] bool knows_second(Host& host) const {
    return eventually([&] {
      const auto known = host.catalog->find(canonical + "/k.ttir");
      return known && known->entry.digest == codec::digest_of("second wrote k.ttir");
    });
  }
  void publish_first() {
    Host a(cluster);
    Process one;
    ASSERT_TRUE(a.triton_compile(directory, "first", one.pid()));
    ASSERT_TRUE(a.sync());
  }

  static std::vector<std::string> sorted(Result<std::vector<std::string>> names) {
    if (names) std::ranges::sort(*names);
    return names.value_or(std::vector<std::string>{"no directory"});
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  const std::string key = triton_key_of("kernel");
  const std::string directory = "triton/0/" + key;
  const std::string canonical = "triton/@/" + key;
};

TEST_F(KeyDirectory, ShowsASetOnlyWhenItIsComplete) {
  Host a(cluster);
  Process one;
  Process other;
  ASSERT_TRUE(a.triton_put(directory, "k.ttir", "first", one.pid()));

  EXPECT_FALSE(is_set(a, directory, other.pid()));
  EXPECT_TRUE(a.look_up(directory + "/k.ttir", one.pid())) << "a process sees what it wrote";
  EXPECT_TRUE(a.exists(directory)) << "removedirs must not take a directory with a pending set";

  ASSERT_TRUE(a.triton_compile(directory, "first", one.pid()));
  EXPECT_EQ(writers_seen(a, directory, other.pid()), "111");
}

TEST_F(KeyDirectory, GoesOnWithASetThatItsProcessMadeAgainOverTakeovers) {
  Process one;
  Process second;
  Host a(cluster);
  ASSERT_TRUE(a.triton_compile(directory, "first", one.pid()));
  ASSERT_TRUE(a.triton_compile(directory, "before", second.pid()));
  a.take_over();  // whose thread has put the files is not known any more
  ASSERT_TRUE(a.triton_compile(directory, "again", second.pid()));
  a.take_over();
  EXPECT_EQ(a.read(directory + "/k.ttir", second.pid()).value_or("absent"), "again wrote k.ttir");
  EXPECT_EQ(a.read(directory + "/k.ttir", one.pid()).value_or("absent"), "first wrote k.ttir");
}

/// TRITON_KERNEL_DUMP: triton/compiler/compiler.py puts each stage by a FileCacheManager, and no group.
TEST_F(KeyDirectory, KeepsWhatAProcessHasPutWithoutAGroupFile) {
  Process one;  // before the host: a child would keep its catalog open
  Process other;
  Host a(cluster);
  const std::string dump = "dump/" + key;
  ASSERT_TRUE(a.triton_put(dump, "k.ttir", "first wrote k.ttir", one.pid()));
  ASSERT_TRUE(a.triton_put(dump, "k.source", "first wrote k.source", one.pid()));
  EXPECT_EQ(writers_seen(a, dump, other.pid()), "-11") << "while it lives";
  EXPECT_EQ(sorted(a.list(dump)), (std::vector<std::string>{"k.source", "k.ttir"}));
  one.end();
  EXPECT_EQ(sorted(a.list(dump)), (std::vector<std::string>{"k.source", "k.ttir"})) << "at once";
  EXPECT_EQ(writers_seen(a, dump, other.pid()), "-11");
  EXPECT_EQ(a.count("triton.sets_kept"), 1U);
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.count("publish.published"), 0U);
  const auto reasons = a.inspection().status().foreign_reasons;
  EXPECT_TRUE(std::ranges::any_of(reasons, [](const auto& text) { return text.find("no group file") != text.npos; }));

  ASSERT_TRUE(a.create(dump + "/edited", ""));  // as an editor saves
  ASSERT_TRUE(a.append(dump + "/edited", "second wrote it"));
  ASSERT_TRUE(a.rename(dump + "/edited", dump + "/k.ttir"));
  for (int i = 0; i < 2; ++i) {
    a.restart();
    EXPECT_EQ(writers_seen(a, dump, other.pid()), "-21") << i;
  }
  for (const auto& name : sorted(a.list(dump))) ASSERT_TRUE(a.unlink(dump + "/" + name)) << name;
  EXPECT_TRUE(a.remove_directory(dump));
}

TEST_F(KeyDirectory, KeepsItWhateverEndsFirst) {
  Process one;  // before the host, as above
  Process other;
  Host a(cluster);
  const auto put = [&] { return a.triton_put("dump/" + key, "k.ttir", "first wrote k.ttir", one.pid()); };
  ASSERT_TRUE(put());
  a.take_over();
  EXPECT_EQ(writers_seen(a, "dump/" + key, one.pid()), "-1-");
  a.restart();
  EXPECT_EQ(writers_seen(a, "dump/" + key, other.pid()), "-1-") << "the mount";
  ASSERT_TRUE(put()) << "once more, and the directory moves meanwhile";
  ASSERT_TRUE(a.rename("dump", "moved"));
  a.stop();
  one.end();
  a.start(true);
  EXPECT_EQ(writers_seen(a, "moved/" + key, other.pid()), "-1-") << "the process, and no worker sees it";
  EXPECT_EQ(sorted(a.list("moved/" + key)), std::vector<std::string>{"k.ttir"});
}

TEST_F(KeyDirectory, LetsWhoRemovesFilesRemoveThoseOfALivingProcess) {
  Process one;  // before the host, as above
  Host a(cluster);
  const std::string dump = "dump/" + key;
  ASSERT_TRUE(a.triton_put(dump, "k.ttir", "first wrote k.ttir", one.pid()));
  ASSERT_TRUE(a.triton_put(dump, "k.source", "first wrote k.source", one.pid()));
  ASSERT_TRUE(a.rename(dump + "/k.source", "kept"));
  EXPECT_EQ(a.read("kept").value(), "first wrote k.source");
  for (const auto& name : sorted(a.list(dump))) ASSERT_TRUE(a.unlink(dump + "/" + name)) << name;
  EXPECT_TRUE(a.remove_directory(dump)) << "as rm -rf";
}

/// A compiler that was killed: Triton finds no group file, and compiles again.
TEST_F(KeyDirectory, PutsACompleteSetInThePlaceOfHalfASet) {
  Process one;  // before the host, as above
  Process two;
  Process reader;
  Host a(cluster);
  ASSERT_TRUE(a.triton_put(directory, "k.ttir", "first wrote k.ttir", one.pid()));
  ASSERT_TRUE(a.triton_put(directory, "old.ttir", "first wrote old.ttir", one.pid()));
  one.end();
  const auto left = a.look_up(directory + "/k.ttir", reader.pid());
  ASSERT_TRUE(left);
  EXPECT_FALSE(left->keep) << "the kernel is not told when a set takes its place";
  ASSERT_TRUE(a.triton_compile(directory, "second", two.pid()));
  EXPECT_EQ(writers_seen(a, directory, reader.pid()), "222");
  std::string bytes(18, '\0');
  EXPECT_TRUE(a.data().read(left->node, bytes.data(), bytes.size(), 0));
  EXPECT_EQ(bytes, "first wrote k.ttir") << "who has it open reads on";
  EXPECT_TRUE(a.exists(directory + "/old.ttir"));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(a.wait_for_entry(canonical + "/__grp__k.json"));
  EXPECT_FALSE(a.catalog->find(canonical + "/old.ttir")) << "it is no file of the set";
  a.restart();
  EXPECT_EQ(writers_seen(a, directory, reader.pid()), "222");
  EXPECT_TRUE(a.exists(directory + "/old.ttir"));
}

TEST_F(KeyDirectory, NeverMixesHalfASetWithTheClusters) {
  Process one;  // before the host, as above
  Process reader;
  Host b(cluster);
  ASSERT_TRUE(b.triton_put(directory, "k.ttir", "second wrote k.ttir", one.pid()));
  one.end();
  EXPECT_TRUE(eventually([&] { return b.count("triton.sets_kept") == 1; })) << "without a look, too";
  publish_first();
  ASSERT_TRUE(b.wait_for_entry(canonical + "/__grp__k.json"));
  EXPECT_TRUE(is_set(b, directory, reader.pid()));
  EXPECT_EQ(writers_seen(b, directory, reader.pid()), "111");
}

TEST_F(KeyDirectory, ShowsAGroupFileThatItCannotReadWhenItsProcessHasEnded) {
  Process one;  // before the host, as above
  Process two;
  Process reader;
  Host a(cluster);
  ASSERT_TRUE(a.triton_put(directory, "k.ttir", "first wrote k.ttir", one.pid()));
  ASSERT_TRUE(a.triton_put(directory, "__grp__k.json", R"({"version": 9})", one.pid()));
  EXPECT_FALSE(a.look_up(directory + "/__grp__k.json", reader.pid()));
  one.end();
  EXPECT_TRUE(a.look_up(directory + "/__grp__k.json", reader.pid())) << "as on a local disk";
  a.restart();
  EXPECT_EQ(a.read(directory + "/__grp__k.json", reader.pid()).value_or("absent"), R"({"version": 9})");
  ASSERT_TRUE(a.triton_compile(directory, "second", two.pid()));
  EXPECT_EQ(writers_seen(a, directory, reader.pid()), "222") << "it is in nobody's way";
}

/// TRITON_CACHE_DIR as users type it.
TEST_F(KeyDirectory, HitsWhereTheGroupFileHasARelativePath) {
  Process one;  // before the host, as above
  Process reader;
  Host a(cluster);
  Host b(cluster);
  for (const std::string typed : {"./x", "x", "../jobs/x", "/mnt/cache/../cache/x"}) {
    const std::string name = triton_key_of(typed);
    const std::string place = "x/" + name;
    ASSERT_TRUE(a.triton_put(place, "k.ttir", "first wrote k.ttir", one.pid()));
    const std::string group = R"({"child_paths": {"k.ttir": ")" + typed + "/" + name + R"(/k.ttir"}})";
    ASSERT_TRUE(a.triton_put(place, "__grp__k.json", group, one.pid()));
    EXPECT_TRUE(a.look_up(place + "/__grp__k.json", reader.pid())) << typed;
    EXPECT_EQ(writers_seen(a, place, reader.pid()), "-1-") << typed;
    ASSERT_TRUE(a.sync());
    ASSERT_TRUE(b.wait_for_entry("triton/@/" + name + "/__grp__k.json")) << typed;
    EXPECT_EQ(b.read("triton/0/" + name + "/__grp__k.json", reader.pid()).value_or("absent"),
              R"({"child_paths": {"k.ttir": "/mnt/cache/triton/0/)" + name + R"(/k.ttir"}})");
  }
}

TEST_F(KeyDirectory, NeverMixesTheSetsOfTwoWriters) {
  Host a(cluster);
  Process one;
  Process two;
  Process reader;
  ASSERT_TRUE(a.triton_put(directory, "k.source", "first", one.pid()));
  ASSERT_TRUE(a.triton_put(directory, "k.ttir", "first", one.pid()));
  ASSERT_TRUE(a.triton_compile(directory, "second", two.pid()));
  ASSERT_TRUE(a.triton_compile(directory, "first", one.pid()));

  EXPECT_EQ(writers_seen(a, directory, reader.pid()), "222") << "the first complete set stays";
  EXPECT_EQ(writers_seen(a, directory, one.pid()), "111") << "its writer sees the later one while it lives";
  one.end();
  EXPECT_TRUE(eventually([&] { return a.inspection().status().pending_sets == 0; }));
  EXPECT_EQ(writers_seen(a, directory, reader.pid()), "222");
}

TEST_F(KeyDirectory, NeverMixesTheSetsOfTwoThreadsOfAProcess) {
  INDUCTORFS_NEEDS_OWN_PROC();
  Process one;  // before the host: a child would keep its catalog open
  Host a(cluster);
  Thread first;
  Thread second;
  ASSERT_TRUE(a.triton_put(directory, "k.ttir", "first wrote k.ttir", first.id()));
  ASSERT_TRUE(a.triton_put(directory, "k.ttir", "second wrote k.ttir", second.id()));
  ASSERT_TRUE(a.triton_compile(directory, "first", first.id()));
  EXPECT_EQ(writers_seen(a, directory, one.pid()), "111") << "the last of each name is the first thread's";

  const std::string other = "triton/0/" + triton_key_of("another");
  ASSERT_TRUE(a.triton_put(other, "k.ttir", "second wrote k.ttir", second.id()));
  ASSERT_TRUE(a.triton_put(other, "k.json", "second", second.id()));
  ASSERT_TRUE(a.triton_put(other, "k.json", "first", first.id()));
  ASSERT_TRUE(a.triton_put(other, "k.source", "first wrote k.source", first.id()));
  ASSERT_TRUE(a.triton_group(other, first.id()));
  EXPECT_EQ(writers_seen(a, other, own_pid()), "121") << "the process sees what it would see on a local disk";
  EXPECT_FALSE(is_set(a, other, one.pid())) << "and nobody else takes both for a set";
  a.take_over();
  ASSERT_TRUE(a.triton_group(other, first.id()));
  EXPECT_FALSE(is_set(a, other, one.pid())) << "another worker knows it too";

  ASSERT_TRUE(a.triton_compile(other, "second", second.id()));
  EXPECT_EQ(writers_seen(a, other, one.pid()), "222") << "the second thread ended its own";
}

TEST_F(KeyDirectory, TakesNoProcessForAnEarlierOneOfItsNumber) {
  INDUCTORFS_NEEDS_OWN_PROC();
  if (::geteuid() != 0) INDUCTORFS_LACKS("root, who alone chooses the number of a process");
  Process one;  // before the host: a child would keep its catalog open
  Process reader;
  Host a(cluster);
  const pid_t number = one.pid();
  const vfs::SetOwner first = vfs::set_owner_of(number);
  ASSERT_TRUE(a.triton_put(directory, "k.ttir", "first wrote k.ttir", number));
  ASSERT_TRUE(a.triton_put(directory, "k.source", "first wrote k.source", number));
  one.end();
  std::optional<Process> two;
  ASSERT_TRUE(eventually([&] {  // a start is told to 10 ms, in which no host gives all of its numbers away
    two.reset();
    two.emplace(number);
    return two->alive() && vfs::set_owner_of(number).start != first.start;
  }));

  EXPECT_EQ(writers_seen(a, directory, number), "-11");
  EXPECT_EQ(a.count("triton.sets_kept"), 1U) << "the dead one's, which are nobody's set now";
  ASSERT_TRUE(a.triton_put(directory, "k.json", R"({"writer": "second"})", number));
  ASSERT_TRUE(a.triton_group(directory, number));
  EXPECT_FALSE(is_set(a, directory, reader.pid())) << "half a set of each is no set";
  ASSERT_TRUE(a.triton_compile(directory, "second", number));
  EXPECT_EQ(writers_seen(a, directory, reader.pid()), "222");
}

TEST_F(KeyDirectory, KnowsAProcessByItsStart) {
  INDUCTORFS_NEEDS_OWN_PROC();
  const vfs::SetOwner own = vfs::set_owner_of(::gettid());
  Thread thread;
  EXPECT_EQ(own.process, own_pid());
  EXPECT_GT(own.start, 0U);
  EXPECT_EQ(vfs::set_owner_of(thread.id()), own);
  EXPECT_FALSE(vfs::is_gone(own));
  EXPECT_TRUE(vfs::is_gone({own.process, own.start + 1})) << "another has its number";
  EXPECT_FALSE(vfs::set_owner_of(0).is_known());

  Process one;
  const vfs::SetOwner child = vfs::set_owner_of(one.pid());
  one.end();
  EXPECT_TRUE(vfs::is_gone(child));
  EXPECT_FALSE(vfs::set_owner_of(child.process).is_known());
}

/// As in another pid namespace: no process has these numbers. Host puts them into the temporary names, as Triton puts
/// the number that a process has in its own namespace.
constexpr pid_t kUnseen = 4'100'001;
constexpr pid_t kOtherUnseen = 4'100'002;
constexpr pid_t kUnseenReader = 4'100'003;

TEST_F(KeyDirectory, NeverMixesTheSetsOfProcessesThatCannotBeSeen) {
  Process reader;  // before the host, as above
  Host a(cluster);
  ASSERT_TRUE(a.triton_put(directory, "k.source", "first wrote k.source", kUnseen));
  ASSERT_TRUE(a.triton_put(directory, "k.ttir", "first wrote k.ttir", kUnseen));
  EXPECT_EQ(writers_seen(a, directory, kUnseen), "-11");
  EXPECT_FALSE(is_set(a, directory, reader.pid()));
  a.take_over();
  ASSERT_TRUE(a.triton_compile(directory, "second", kOtherUnseen));
  EXPECT_EQ(writers_seen(a, directory, kUnseen), "222") << "nothing tells it from the others";
  ASSERT_TRUE(a.triton_put(directory, "k.json", R"({"writer": "first"})", kUnseen));
  ASSERT_TRUE(a.triton_group(directory, kUnseen));

  for (const pid_t process : {kUnseen, kOtherUnseen, kUnseenReader, reader.pid()})
    EXPECT_EQ(writers_seen(a, directory, process), "222") << process;
  ASSERT_TRUE(a.triton_put(directory, "k.ptx", "first wrote k.ptx", kUnseen));
  ASSERT_TRUE(a.triton_group(directory, kUnseen));
  EXPECT_TRUE(a.exists(directory + "/k.ttir"));
  EXPECT_TRUE(a.look_up(directory + "/k.ptx", kUnseen)) << "no other set has it";
  ASSERT_TRUE(a.sync());
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(canonical + "/__grp__k.json"));
  EXPECT_EQ(writers_seen(b, directory, kUnseenReader), "222");
}

TEST_F(KeyDirectory, SharesNoSetOfTwoProcessesThatHaveOneNumberInTheirNamespaces) {
  Process reader;  // before the host, as above
  Host a(cluster);
  const auto put = [&](const char* name, const std::string& text) {
    return a.triton_put(directory, name, text, kUnseen);
  };
  ASSERT_TRUE(put("k.ttir", "first wrote k.ttir"));
  ASSERT_TRUE(put("k.source", "first wrote k.source"));
  ASSERT_TRUE(put("k.ttir", "second wrote k.ttir"));
  ASSERT_TRUE(put("k.json", R"({"writer": "second"})"));
  ASSERT_TRUE(a.triton_group(directory, kUnseen));
  EXPECT_FALSE(is_set(a, directory, reader.pid()));
  EXPECT_EQ(writers_seen(a, directory, kUnseen), "221") << "a writer finds what it put";
  EXPECT_FALSE(a.look_up(directory + "/__grp__k.json", kUnseen)) << "and no reader takes that for a hit";
  ASSERT_TRUE(a.sync());
  EXPECT_FALSE(a.catalog->find(canonical + "/__grp__k.json"));
}

/// A process chooses its temporary names.
TEST_F(KeyDirectory, BoundsTheSetsOfProcessesThatCannotBeSeen) {
  Host a(cluster);
  constexpr pid_t kMany = 70;
  for (pid_t i = 0; i < kMany; ++i) ASSERT_TRUE(a.triton_put(directory, "k.ttir", "same", kUnseen + i)) << i;
  size_t pending = 0;
  for (const auto& item : std::filesystem::directory_iterator(a.directory / "local/pending")) pending += item.exists();
  EXPECT_EQ(pending, 65U) << "and one for all others";
}

TEST_F(KeyDirectory, ReadsTheNumberInATemporaryName) {
  const vfs::KeyState state;
  const auto start_of = [&](const char* path) { return state.owner_of_put({}, path).start; };
  EXPECT_EQ(start_of("triton/0/KEY/tmp.pid_7_01-23/k.json"), 7U);
  EXPECT_EQ(start_of("triton/0/KEY/k.json.tmp.pid_8_01-23"), 8U) << "Triton 2";
  for (const char* path : {"triton/0/KEY/tmp.01-23/k.json", "tmp.pid_", "tmp.pid_x_1/k", "tmp.pid_-1_1/k", "",
                           "tmp.pid_99999999999999999999_1/k"})
    EXPECT_EQ(start_of(path), 0U) << path;
  const vfs::SetOwner known{7, 9};
  EXPECT_EQ(state.owner_of_put(known, "tmp.pid_8_1/k.json"), known) << "what can be seen counts, not what is told";
}

/// A set is moved into view as a whole, under locks.
TEST_F(KeyDirectory, HasALimitOfFiles) {
  Host a(cluster);
  Process writer;
  const auto put = [&](size_t number) {
    return a.triton_put(directory, "k" + std::to_string(number) + ".ttir", "text", writer.pid());
  };
  for (size_t i = 0; i < vfs::kMostInSet; ++i) ASSERT_TRUE(put(i)) << i;
  EXPECT_TRUE(put(0)) << "one that it has may be put again";
  const auto more = put(vfs::kMostInSet);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code(), ErrorCode::kNoSpace);
}

TEST_F(KeyDirectory, SharesWhatTwoThreadsOfAProcessPutAlike) {
  Host a(cluster);
  Process reader;
  Thread first;
  Thread second;
  ASSERT_TRUE(a.triton_put(directory, "k.ttir", "first wrote k.ttir", first.id()));
  ASSERT_TRUE(a.triton_put(directory, "k.ttir", "first wrote k.ttir", second.id()));
  ASSERT_TRUE(a.triton_put(directory, "k.source", "first wrote k.source", second.id()));
  ASSERT_TRUE(a.triton_put(directory, "k.json", "{\"writer\": \"first\"}", second.id()));
  ASSERT_TRUE(a.triton_group(directory, first.id()));

  EXPECT_EQ(writers_seen(a, directory, reader.pid()), "111");
}

/// A sparse file of a terabyte costs its writer nothing, and the comparison of two would hold everybody up for minutes:
/// a directory is renamed when it has ended, and who comes later waits for the rename.
TEST_F(KeyDirectory, ComparesNoLargeFilesOfTwoThreads) {
  constexpr uint64_t kSize = 64 << 20;
  auto region = takeover::Region::create(1);
  ASSERT_TRUE(region);
  takeover::Slot& slot = takeover::RequestSlots(*region).of_thread(0);
  Host a(cluster);
  Process reader;
  Thread first;
  Thread second;
  const auto put = [&](const std::string& name, const Thread& thread) {
    ASSERT_TRUE(a.make_directories(directory));
    const std::string temporary = directory + "/tmp.pid_" + std::to_string(thread.id()) + "_0123";
    ASSERT_TRUE(a.make_directory(temporary));
    ASSERT_TRUE(a.create(temporary + "/" + name, ""));
    ASSERT_TRUE(a.truncate(temporary + "/" + name, kSize));
    const std::array<uint64_t, 5> header{40, 99, 0, 0, 0};
    std::memcpy(slot.request(), header.data(), sizeof header);
    slot.steps = 0;
    {
      const takeover::Serving serving(slot, false);
      ASSERT_TRUE(a.rename(temporary + "/" + name, directory + "/" + name, thread.id()));
    }
    slot.free();
    ASSERT_TRUE(a.remove_directory(temporary));
  };
  put("k.ttir", first);
  put("k.ttir", second);
  EXPECT_EQ(slot.steps, 0) << "signs of progress, one for each MiB that was compared";
  ASSERT_TRUE(a.triton_put(directory, "k.source", "first wrote k.source", first.id()));
  ASSERT_TRUE(a.triton_put(directory, "k.json", R"({"writer": "first"})", first.id()));
  ASSERT_TRUE(a.triton_group(directory, first.id()));
  EXPECT_FALSE(is_set(a, directory, reader.pid())) << "what was not compared counts as different";
}

TEST_F(KeyDirectory, ServesEveryDeviceAndMountPathFromOneEntry) {
  HostOptions elsewhere;
  elsewhere.mountpoint = "/home/me/cache";
  Host a(cluster);
  Host b(cluster, elsewhere);
  Process one;
  ASSERT_TRUE(a.triton_compile(directory, "first", one.pid()));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.wait_for_entry("triton/@/" + key + "/__grp__k.json"));

  const std::string there = "triton/3/" + key;
  const auto group = b.read(there + "/__grp__k.json");

  ASSERT_TRUE(group);
  EXPECT_NE(group->find("/home/me/cache/" + there + "/k.ttir"), std::string::npos) << *group;
  EXPECT_EQ(writers_seen(b, there, own_pid()), "111");
  EXPECT_EQ(b.list(there).value().size(), 4U);
}

TEST_F(KeyDirectory, ShowsNothingOfAClusterSetThatMissesOneBlob) {
  Host a(cluster);
  Process one;
  ASSERT_TRUE(a.triton_compile(directory, "first", one.pid()));
  ASSERT_TRUE(a.sync());
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry("triton/@/" + key + "/k.ttir"));
  remote::evict_blob(*cluster, codec::digest_of("first wrote k.ttir"));

  EXPECT_FALSE(b.exists(directory + "/__grp__k.json"));
  EXPECT_EQ(writers_seen(b, directory, own_pid()), "---");
  // The whole set is given up, so another writer's can take its place.
  Process two;
  ASSERT_TRUE(b.triton_compile(directory, "second", two.pid()));
  ASSERT_TRUE(b.sync());
  Host c(cluster);
  ASSERT_TRUE(eventually([&] { return writers_seen(c, directory, own_pid()) == "222"; }));
}

TEST_F(KeyDirectory, KeepsALaterSetOfAnotherHostLocal) {
  Host a(cluster);
  Host b(cluster);
  Process one;
  Process two;
  ASSERT_TRUE(a.triton_put(directory, "k.source", "first", one.pid()));
  ASSERT_TRUE(b.triton_compile(directory, "second", two.pid()));
  ASSERT_TRUE(b.sync());
  ASSERT_TRUE(a.wait_for_entry("triton/@/" + key + "/__grp__k.json"));
  ASSERT_TRUE(a.exists(directory + "/__grp__k.json"));
  ASSERT_TRUE(a.triton_compile(directory, "first", one.pid()));
  ASSERT_TRUE(a.sync());

  EXPECT_EQ(writers_seen(a, directory, own_pid()), "222");
  EXPECT_EQ(writers_seen(b, directory, own_pid()), "222");
}

TEST_F(KeyDirectory, TakesTheBundlersDirectoryRenameAsASet) {
  Host a(cluster);
  Host b(cluster);
  const std::string staging = "triton/0/tmp.01234567-89ab-cdef-0123-456789abcdef";
  ASSERT_TRUE(a.make_directories(staging));
  ASSERT_TRUE(a.make_directories(directory));
  ASSERT_TRUE(a.create(staging + "/k.json", "{\"writer\": \"first\"}"));
  ASSERT_TRUE(a.create(staging + "/k.ttir", "first"));
  ASSERT_TRUE(a.create(staging + "/__grp__k.json", "{\"child_paths\": {\"k.json\": \"/mnt/cache/" + directory +
                                                       "/k.json\", \"k.ttir\": \"/mnt/cache/" + directory +
                                                       "/k.ttir\"}}"));

  ASSERT_TRUE(a.rename(staging, directory));
  ASSERT_TRUE(a.sync());

  EXPECT_EQ(a.list(directory).value().size(), 3U);
  EXPECT_FALSE(a.exists(staging));
  ASSERT_TRUE(b.wait_for_entry("triton/@/" + key + "/__grp__k.json"));
  EXPECT_EQ(b.read(directory + "/k.ttir").value_or("absent"), "first");
  const auto again = [&] {
    EXPECT_TRUE(b.make_directories(staging));
    return b.rename(staging, directory);
  }();
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), ErrorCode::kNotEmpty);
}

TEST_F(KeyDirectory, CanBeRemovedFileByFileAndMadeAnew) {
  Host a(cluster);
  Process one;
  ASSERT_TRUE(a.triton_compile(directory, "first", one.pid()));
  ASSERT_TRUE(a.sync());
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry("triton/@/" + key + "/__grp__k.json"));
  ASSERT_TRUE(b.exists(directory + "/k.json"));
  const std::vector<std::string> names = b.list(directory).value();
  for (const auto& name : names) EXPECT_TRUE(b.unlink(directory + "/" + name)) << name;
  EXPECT_TRUE(b.remove_directory(directory));
  EXPECT_FALSE(b.exists(directory));

  ASSERT_TRUE(b.triton_compile(directory, "second", one.pid()));

  EXPECT_EQ(writers_seen(b, directory, own_pid()), "222");
}

TEST_F(KeyDirectory, KeepsTheSetThatItShowsWhenTheClusterHasAnother) {
  publish_first();
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(canonical + "/__grp__k.json"));
  const auto group = b.look_up(directory + "/__grp__k.json");
  ASSERT_TRUE(group);

  exchange_cluster_set();
  ASSERT_TRUE(knows_second(b));

  EXPECT_EQ(writers_seen(b, directory, own_pid()), "111");
  EXPECT_EQ(b.list(directory).value().size(), 4U);
  EXPECT_GT(b.count("triton.changes_not_shown"), 0U);
  const auto explanation = b.inspection().explain(directory + "/k.ttir");
  EXPECT_EQ(explanation.digest, codec::digest_of("first wrote k.ttir").to_hex());
  b.take_over();
  EXPECT_EQ(writers_seen(b, directory, own_pid()), "111") << "another worker goes on with it";
  b.restart();
  EXPECT_EQ(writers_seen(b, directory, own_pid()), "222") << "nobody has the first one's group file any more";
}

TEST_F(KeyDirectory, LetsASetGoThatIsDeletedThoughTheClusterHasAnother) {
  publish_first();
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(canonical + "/__grp__k.json"));
  ASSERT_TRUE(b.exists(directory + "/__grp__k.json"));
  exchange_cluster_set();
  ASSERT_TRUE(knows_second(b));

  const auto removed = b.remove_directory(directory);
  ASSERT_FALSE(removed);
  EXPECT_EQ(removed.error().code(), ErrorCode::kNotEmpty);
  const std::vector<std::string> names = b.list(directory).value();
  EXPECT_EQ(names.size(), 4U);
  for (const auto& name : names) EXPECT_TRUE(b.unlink(directory + "/" + name)) << name;

  EXPECT_EQ(writers_seen(b, directory, own_pid()), "---") << "what has these names in the cluster is hidden too";
  EXPECT_EQ(b.list(directory).value().size(), 0U);
  EXPECT_TRUE(b.remove_directory(directory));
}

TEST_F(KeyDirectory, ListsADirectoryThatOnlyASetOfEarlierHolds) {
  publish_first();
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(canonical + "/__grp__k.json"));
  ASSERT_TRUE(b.exists(directory + "/__grp__k.json"));
  Host other(cluster);
  ASSERT_TRUE(other.wait_for_entry(canonical + "/__grp__k.json"));
  for (const auto& known : other.catalog->entries_in(canonical)) other.catalog->report_lost(known);
  ASSERT_TRUE(b.wait_until_gone(canonical + "/k.ttir"));

  EXPECT_EQ(b.list("triton").value(), std::vector<std::string>{"0"});
  EXPECT_EQ(b.list("triton/0").value(), std::vector<std::string>{key});
  EXPECT_EQ(b.remove_directory("triton/0").error().code(), ErrorCode::kNotEmpty);
  EXPECT_EQ(b.rename("triton/0", "triton/1").error().code(), ErrorCode::kCrossDevice);
  EXPECT_EQ(writers_seen(b, directory, own_pid()), "111");
}

TEST_F(KeyDirectory, DropsTheSetThatItShowsWhenTheFactsOfTheHostChange) {
  publish_first();
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(canonical + "/__grp__k.json"));
  ASSERT_EQ(writers_seen(b, directory, own_pid()), "111");
  exchange_cluster_set();
  ASSERT_TRUE(knows_second(b));

  b.change_facts("two");

  EXPECT_EQ(writers_seen(b, directory, own_pid()), "---");
  EXPECT_TRUE(eventually([&] { return b.kernel.told_name("k.ttir"); }));
  b.change_facts("one");
  EXPECT_TRUE(eventually([&] { return writers_seen(b, directory, own_pid()) == "222"; }));
}

}  // namespace
}  // namespace inductorfs::testing
