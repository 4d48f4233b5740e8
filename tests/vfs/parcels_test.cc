// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "inductorfs/codec/parcel.h"
#include "vfs/host.h"

/// Parcels: a directory that a program takes whole or dies of, over two hosts.
namespace inductorfs::testing {
namespace {

constexpr uint64_t kEverything = 1ULL << 40;
const std::string kKernel = "cache/kernel.gemm.0123456789abcdef0123456789abcdef";
const std::string kSource = kKernel + "/kernel.cu";
const std::string kBinary = kKernel + "/kernel.cubin";

/// DeepGEMM's protocol: a directory of its own, and a rename.
Result<void> compile(Host& host, const std::string& directory, const std::string& writer, mode_t mode = 0644) {
  const std::string staging = "tmp/" + writer;
  (void)host.make_directories("tmp");
  (void)host.make_directories("cache");
  INDUCTORFS_TRY(host.make_directory(staging));
  INDUCTORFS_TRY(host.create(staging + "/kernel.cu", writer + " wrote kernel.cu", mode));
  INDUCTORFS_TRY(host.create(staging + "/kernel.cubin", writer + " wrote kernel.cubin", mode));
  return host.rename(staging, directory);
}

class Parcels : public ::testing::Test {
 protected:
  static void forget(Host& host, const std::string& path) {
    if (const auto found = host.look_up(path)) host.names().forget(found->node, 1'000'000);
  }
  /// Of a host on which this process is another environment's, or unknown.
  static HostOptions with_writer(pid_t process, fingerprint::Match match) {
    HostOptions options;
    options.writers = std::make_shared<FakeWriters>();
    options.writers->set(process, match);
    return options;
  }
  static void forget_kernel(Host& host) {
    for (const auto& path : {kSource, kBinary, kKernel}) forget(host, path);
  }
  /// What a program finds: nothing, or both files by one writer.
  static std::string writer_of(Host& host, const std::string& directory = kKernel) {
    const auto names = host.list(directory);
    if (!names) return names.error().code() == ErrorCode::kNotFound ? "nobody" : names.error().to_string();
    const std::string source = host.read(directory + "/kernel.cu").value_or("absent");
    const std::string binary = host.read(directory + "/kernel.cubin").value_or("absent");
    const std::string writer = source.substr(0, source.find(' '));
    if (names->size() != 2 || source != writer + " wrote kernel.cu" || binary != writer + " wrote kernel.cubin") {
      return "a mix of " + std::to_string(names->size()) + " files: " + source + ", " + binary;
    }
    return writer;
  }
  void publish_by_a() {
    ASSERT_TRUE(compile(a, kKernel, "a"));
    ASSERT_TRUE(a.sync());
    ASSERT_TRUE(b.wait_for_entry(kKernel));
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  Host a{cluster};
  Host b{cluster};
};

TEST_F(Parcels, AreWholeOnAnotherHost) {
  publish_by_a();
  ASSERT_TRUE(b.make_directories("cache"));
  EXPECT_EQ(b.list("cache").value_or(std::vector<std::string>{}),
            std::vector<std::string>{"kernel.gemm.0123456789abcdef0123456789abcdef"});
  const auto found = b.look_up(kKernel);
  ASSERT_TRUE(found);
  EXPECT_TRUE(S_ISDIR(found->attributes.mode));
  EXPECT_EQ(writer_of(b), "a");
  EXPECT_EQ(writer_of(a), "a");
}

TEST_F(Parcels, AreShownToJobsOfOtherUsers) {
  ASSERT_TRUE(compile(a, kKernel, "a", 0600));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.wait_for_entry(kKernel));
  const auto found = b.look_up(kBinary);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->attributes.mode & 0777, 0644U);
}

TEST_F(Parcels, AreInNobodysWay) {
  publish_by_a();
  ASSERT_TRUE(b.exists(kKernel));
  const auto again = compile(b, kKernel, "b");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), ErrorCode::kNotEmpty);
  EXPECT_EQ(writer_of(b), "a");
}

TEST_F(Parcels, OfASecondWriterStayHere) {
  ASSERT_TRUE(compile(b, kKernel, "b"));
  ASSERT_TRUE(b.sync());
  ASSERT_TRUE(a.wait_for_entry(kKernel));
  Host late(cluster);
  // It has not looked: its own comes first, and the cluster keeps the first.
  ASSERT_TRUE(late.make_directories("cache"));
  ASSERT_TRUE(late.make_directories("tmp/late"));
  ASSERT_TRUE(late.create("tmp/late/kernel.cu", "late wrote kernel.cu"));
  ASSERT_TRUE(late.create("tmp/late/kernel.cubin", "late wrote kernel.cubin"));
  const bool renamed = late.rename("tmp/late", kKernel).has_value();
  EXPECT_EQ(writer_of(late), renamed ? "late" : "b");
  ASSERT_TRUE(late.sync());
  EXPECT_EQ(writer_of(a), "b");
}

TEST_F(Parcels, AreNotMadeOfWhatWasWrittenInPlace) {
  ASSERT_TRUE(a.make_directories(kKernel));
  ASSERT_TRUE(a.create(kSource, "half"));
  ASSERT_TRUE(a.sync());
  EXPECT_FALSE(a.catalog->publish_state(kKernel));
  a.restart();
  ASSERT_TRUE(a.sync());
  EXPECT_FALSE(a.catalog->publish_state(kKernel)) << "nothing shows that it is complete";
}

TEST_F(Parcels, RefuseWhatIsNoFile) {
  ASSERT_TRUE(a.make_directories("tmp/link"));
  ASSERT_TRUE(a.make_directories("cache"));
  const auto staging = a.look_up("tmp/link");
  ASSERT_TRUE(staging);
  ASSERT_TRUE(a.names().make_symlink(staging->node, "kernel.cu", "/etc/passwd", {}));
  ASSERT_TRUE(a.rename("tmp/link", kKernel));
  ASSERT_TRUE(a.sync());
  const auto refused = a.inspection().status().refused;
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_NE(refused.front().find("kernel.cu is neither a file nor a directory"), std::string::npos) << refused.front();
}

TEST_F(Parcels, AreNoFiles) {
  ASSERT_TRUE(a.make_directories("cache"));
  ASSERT_TRUE(a.publish_file(kKernel, "a file"));
  ASSERT_TRUE(a.sync());
  EXPECT_FALSE(a.catalog->publish_state(kKernel));
  EXPECT_EQ(a.read(kKernel).value_or("absent"), "a file");
}

TEST_F(Parcels, AreRemovedHereAlone) {
  publish_by_a();
  ASSERT_EQ(writer_of(b), "a");
  ASSERT_TRUE(b.unlink(kSource));
  ASSERT_TRUE(b.unlink(kBinary));
  ASSERT_TRUE(b.remove_directory(kKernel));
  EXPECT_FALSE(b.exists(kKernel));
  b.restart();
  EXPECT_FALSE(b.exists(kKernel));
  EXPECT_EQ(writer_of(a), "a");
  ASSERT_TRUE(compile(b, kKernel, "b"));
  EXPECT_EQ(writer_of(b), "b");
}

TEST_F(Parcels, LeaveHereWhenTheyAreRenamed) {
  publish_by_a();
  ASSERT_EQ(writer_of(b), "a");
  ASSERT_TRUE(b.rename(kKernel, "mine"));
  EXPECT_FALSE(b.exists(kKernel));
  EXPECT_EQ(writer_of(b, "mine"), "a");
}

TEST_F(Parcels, AreEvictedWhole) {
  publish_by_a();
  ASSERT_EQ(writer_of(b), "a");
  (void)b.store->free_space(kEverything);
  EXPECT_EQ(writer_of(b), "a") << "the kernel knows its names";
  forget_kernel(b);
  (void)b.store->free_space(kEverything);
  struct stat status {};
  const std::string place = b.directory.path() + "/files/view/" + kKernel;
  EXPECT_NE(::stat(place.c_str(), &status), 0) << "its files went with its blob";
  EXPECT_EQ(writer_of(b), "a") << "and come from the cluster again";
}

TEST_F(Parcels, ThatWereMadeHereAreEvictedOncePublished) {
  publish_by_a();
  a.restart();
  (void)a.store->free_space(kEverything);
  EXPECT_GT(a.count("view.dropped"), 0U);
  EXPECT_EQ(writer_of(a), "a");
}

TEST_F(Parcels, StayWhereTheyWereChanged) {
  publish_by_a();
  ASSERT_EQ(writer_of(b), "a");
  ASSERT_TRUE(b.create(kKernel + "/added", "mine"));
  forget(b, kKernel + "/added");
  forget_kernel(b);
  (void)b.store->free_space(kEverything);
  EXPECT_EQ(b.read(kKernel + "/added").value_or("absent"), "mine");
  EXPECT_EQ(b.read(kSource).value_or("absent"), "a wrote kernel.cu");
}

TEST_F(Parcels, StayWhereTheirMakerChangedThem) {
  publish_by_a();
  ASSERT_TRUE(a.append(kBinary, "+more"));
  forget_kernel(a);
  (void)a.store->free_space(kEverything);
  EXPECT_EQ(a.read(kBinary).value_or("absent"), "a wrote kernel.cubin+more");
  EXPECT_EQ(writer_of(b), "a");
}

TEST_F(Parcels, AreNotPublishedAgainOnceTheyWereChanged) {
  publish_by_a();
  ASSERT_EQ(writer_of(b), "a");
  ASSERT_TRUE(a.append(kBinary, "+half"));     // by their maker
  ASSERT_TRUE(b.append(kBinary, "+foreign"));  // and by whoever got them
  for (Host* host : {&a, &b}) {
    host->take_over();
    ASSERT_TRUE(host->sync());
    host->restart();
    ASSERT_TRUE(host->sync());
  }
  Host c(cluster);
  ASSERT_TRUE(c.wait_for_entry(kKernel));
  EXPECT_EQ(writer_of(c), "a");
  EXPECT_NE(b.inspection().explain(kKernel).why.find("changed"), std::string::npos)
      << b.inspection().explain(kKernel).why;
}

TEST_F(Parcels, AreThisHostsOnceOneOfTheirFilesIsReplaced) {
  publish_by_a();
  ASSERT_EQ(writer_of(b), "a");
  ASSERT_TRUE(b.publish_file(kBinary, "of b"));
  b.catalog->freeze(true);
  forget_kernel(b);
  EXPECT_EQ(b.read(kBinary).value_or("absent"), "of b");
  b.catalog->freeze(false);
  forget_kernel(b);
  EXPECT_EQ(b.read(kBinary).value_or("absent"), "of b");
}

TEST_F(Parcels, ArePurgedThoughTheyWereChanged) {
  publish_by_a();
  ASSERT_EQ(writer_of(b), "a");
  ASSERT_TRUE(b.append(kBinary, "+more"));
  (void)b.file_system->purge({}, [] { return false; });
  b.catalog->freeze(true);
  EXPECT_FALSE(b.exists(kKernel));
}

TEST_F(Parcels, StayWhenTheyAreRenamed) {
  constexpr pid_t kShell = 4'100'003;
  Host c(cluster, with_writer(kShell, fingerprint::Match::kUnknown));
  publish_by_a();
  ASSERT_TRUE(c.wait_for_entry(kKernel));
  ASSERT_TRUE(c.make_directories("cache"));
  ASSERT_EQ(writer_of(c), "a");
  const std::string renamed = "cache/kernel.gemm.fedcba9876543210fedcba9876543210";
  ASSERT_TRUE(c.rename(kKernel, renamed, kShell));
  ASSERT_TRUE(c.sync());
  for (const char* name : {"/kernel.cu", "/kernel.cubin", ""}) forget(c, renamed + name);
  EXPECT_EQ(writer_of(c, renamed), "a");
  c.restart();
  EXPECT_EQ(writer_of(c, renamed), "a");
}

TEST_F(Parcels, AreNotWhatIsOfAnotherType) {
  // A file where a directory is expected, and the reverse: they are like any other name.
  const std::string odd = "torch_compile_cache/0123456789/rank_0_0/backbone/vllm_compile_cache.py";
  ASSERT_TRUE(a.make_directories(odd));
  ASSERT_TRUE(a.create(odd + "/mine", "mine"));
  ASSERT_TRUE(a.sync());
  a.restart();
  (void)a.file_system->purge({}, [] { return false; });
  EXPECT_EQ(a.read(odd + "/mine").value_or("absent"), "mine");
}

TEST_F(Parcels, SayWhyTheyStayHere) {
  ASSERT_TRUE(a.make_directories(kKernel));
  ASSERT_TRUE(a.create(kSource, "half"));
  EXPECT_NE(a.inspection().explain(kKernel).why.find("make it beside, then rename it"), std::string::npos);
  EXPECT_NE(a.inspection().explain(kSource).why.find("comes and goes with the directory"), std::string::npos);
}

TEST_F(Parcels, GoWithTheFactsTheyWereMadeFor) {
  publish_by_a();
  ASSERT_EQ(writer_of(b), "a");
  a.change_facts("two");
  b.change_facts("two");
  forget_kernel(b);
  EXPECT_EQ(writer_of(a), "nobody");
  EXPECT_EQ(writer_of(b), "nobody");
  a.change_facts("one");
  b.change_facts("one");
  ASSERT_TRUE(a.wait_for_entry(kKernel) && b.wait_for_entry(kKernel));
  EXPECT_EQ(writer_of(a), "a");
  EXPECT_EQ(writer_of(b), "a");
}

TEST_F(Parcels, AreSealedByTheNextWorker) {
  ASSERT_TRUE(compile(a, kKernel, "a"));
  a.take_over();
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.wait_for_entry(kKernel));
  EXPECT_EQ(writer_of(b), "a");
  b.take_over();
  EXPECT_EQ(writer_of(b), "a");
  b.restart();
  EXPECT_EQ(writer_of(b), "a");
  EXPECT_EQ(b.count("view.unpacked"), 0U) << "it is on the disk";
}

TEST_F(Parcels, ArePurgedWhole) {
  publish_by_a();
  layout::Selection selection;
  selection.pattern = "cache/**";
  ASSERT_GT(a.file_system->purge(selection, [] { return false; }).value_or(0), 0U);
  EXPECT_EQ(writer_of(a), "a") << "the cluster still has it: a directory with nothing in it would be an error";
  EXPECT_EQ(a.count("view.unpacked"), 1U);
}

const std::string kRank = "torch_compile_cache/0123456789/rank_0_0/backbone";
const std::string kIndex = kRank + "/vllm_compile_cache.py";
const std::string kFirst = "artifact_compile_range_1_128_subgraph_0";
const std::string kSecond = "artifact_compile_range_1_128_subgraph_1";

/// As vllm/compilation/backends.py prints it.
std::string index_in(const std::string& directory) {
  const auto item = [&](int number, const std::string& name) {
    return "((1, 128), " + std::to_string(number) + ", 'inductor_standalone'): {'cache_key': 'a', 'graph_handle': ('" +
           name + "', '" + directory + "/" + name + "')}";
  };
  return "{" + item(0, kFirst) + ", " + item(1, kSecond) + "}";
}

class Indexes : public Parcels {
 protected:
  static Result<void> write(Host& host, const std::string& writer) {
    INDUCTORFS_TRY(host.make_directories(kRank));
    INDUCTORFS_TRY(host.publish_file(kRank + "/" + kFirst, writer + " one"));
    INDUCTORFS_TRY(host.publish_file(kRank + "/" + kSecond, writer + " two"));
    if (!host.exists(kIndex)) return host.create(kIndex, index_in("/mnt/cache/" + kRank));
    INDUCTORFS_TRY(host.truncate(kIndex, 0));
    return host.append(kIndex, index_in("/mnt/cache/" + kRank));
  }
  static void forget_index(Host& host) {
    for (const auto& name : {kFirst, kSecond}) forget(host, kRank + "/" + name);
    forget(host, kIndex);
  }
  void publish_index_by_a() {
    ASSERT_TRUE(write(a, "a"));
    ASSERT_TRUE(a.sync());
    ASSERT_TRUE(b.wait_for_entry(kIndex));
    ASSERT_TRUE(b.make_directories(kRank));
  }
};

TEST_F(Indexes, ComeWithWhatTheyName) {
  publish_index_by_a();
  EXPECT_FALSE(b.exists(kRank + "/" + kFirst)) << "nobody asks for it before the index";
  EXPECT_EQ(b.read(kIndex).value_or("absent"), index_in("/mnt/cache/" + kRank));
  EXPECT_EQ(b.read(kRank + "/" + kFirst).value_or("absent"), "a one");
  EXPECT_EQ(b.read(kRank + "/" + kSecond).value_or("absent"), "a two");
}

TEST_F(Indexes, NameThePathsThatTheirReaderSees) {
  HostOptions options;
  options.mountpoint = "/elsewhere";
  Host c(cluster, options);
  publish_index_by_a();
  ASSERT_TRUE(c.wait_for_entry(kIndex));
  ASSERT_TRUE(c.make_directories(kRank));
  EXPECT_EQ(c.read(kIndex).value_or("absent"), index_in("/elsewhere/" + kRank));
  c.restart();
  EXPECT_EQ(c.read(kIndex).value_or("absent"), index_in("/elsewhere/" + kRank));
  EXPECT_EQ(c.count("view.unpacked"), 0U);
}

/// The first who asks, of whatever user, must not decide what an engine opens (vLLM up to 0.30 opens these paths).
TEST_F(Indexes, NameToEachProcessThePathsThatItSees) {
  constexpr pid_t kHere = 1'000'001;
  constexpr pid_t kContainer = 1'000'002;
  constexpr pid_t kOther = 1'000'003;
  HostOptions options;
  options.views = std::make_shared<FakeViews>(options.mountpoint);
  options.views->set(kContainer, "/container");
  options.views->set(kOther, "/tmp/other");
  Host c(cluster, options);
  publish_index_by_a();
  ASSERT_TRUE(c.wait_for_entry(kIndex));
  ASSERT_TRUE(c.make_directories(kRank));
  const std::vector<std::pair<pid_t, std::string>> views{
      {kOther, "/tmp/other/"}, {kHere, "/mnt/cache/"}, {kContainer, "/container/"}};
  const auto expect_own = [&] {
    for (const auto& [process, at] : views) {
      const auto found = c.look_up(kIndex, process);
      ASSERT_TRUE(found);
      EXPECT_FALSE(found->keep) << "the kernel has one name for all";
      EXPECT_EQ(c.read(kIndex, process).value_or("absent"), index_in(at + kRank));
    }
  };
  expect_own();
  expect_own();
  c.take_over();
  expect_own();
  c.restart();
  expect_own();
  EXPECT_EQ(c.read(kRank + "/" + kFirst).value_or("absent"), "a one");
}

/// An engine that has compiled for more shapes writes the index anew, in place.
TEST_F(Indexes, AreWhatTheLastProcessOfAnyViewWrote) {
  constexpr pid_t kHere = 1'000'001;
  constexpr pid_t kContainer = 1'000'002;
  HostOptions options;
  options.views = std::make_shared<FakeViews>(options.mountpoint);
  options.views->set(kContainer, "/container");
  Host c(cluster, options);
  publish_index_by_a();
  ASSERT_TRUE(c.wait_for_entry(kIndex));
  ASSERT_TRUE(c.make_directories(kRank));
  const auto earlier = c.look_up(kIndex, kHere);
  ASSERT_TRUE(earlier);
  c.act_as(kContainer);
  ASSERT_TRUE(c.truncate(kIndex, 0));
  ASSERT_TRUE(c.append(kIndex, index_in("/container/" + kRank) + "  "));
  for (const pid_t process : {kHere, kContainer}) {
    EXPECT_EQ(c.read(kIndex, process).value_or("absent"), index_in("/container/" + kRank) + "  ")
        << "as it was written";
  }
  std::string bytes(earlier->attributes.size, '\0');
  ASSERT_TRUE(c.data().read(earlier->node, bytes.data(), bytes.size(), 0));
  EXPECT_EQ(bytes, index_in("/mnt/cache/" + kRank)) << "who has the earlier one open reads on";
  c.take_over();
  EXPECT_EQ(c.read(kIndex, kHere).value_or("absent"), index_in("/container/" + kRank) + "  ");
  c.restart();
  EXPECT_EQ(c.read(kIndex, kHere).value_or("absent"), index_in("/container/" + kRank) + "  ");
}

TEST_F(Indexes, StayHereWithoutOneOfTheirFiles) {
  ASSERT_TRUE(a.make_directories(kRank));
  ASSERT_TRUE(a.publish_file(kRank + "/" + kFirst, "a one"));
  ASSERT_TRUE(a.create(kIndex, index_in("/mnt/cache/" + kRank)));
  ASSERT_TRUE(a.sync());
  const auto refused = a.inspection().status().refused;
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_NE(refused.front().find("names " + kSecond + ", which is not there"), std::string::npos) << refused.front();
}

TEST_F(Indexes, DoNotComeAmongTheFilesOfAnotherWriter) {
  publish_index_by_a();
  ASSERT_TRUE(b.publish_file(kRank + "/" + kSecond, "b two"));
  EXPECT_FALSE(b.exists(kIndex));
  EXPECT_EQ(b.read(kRank + "/" + kSecond).value_or("absent"), "b two");
  EXPECT_EQ(b.count("lookup.not_unpacked"), 1U);
}

TEST_F(Indexes, ThatAreNotUnpackedAreExplained) {
  publish_index_by_a();
  EXPECT_TRUE(b.inspection().explain(kIndex).visible) << "nobody has asked for it";
  ASSERT_TRUE(b.publish_file(kRank + "/" + kSecond, "b two"));
  ASSERT_FALSE(b.exists(kIndex));
  const auto refused = b.inspection().explain(kIndex);
  EXPECT_TRUE(!refused.visible && refused.where == "store");
  EXPECT_NE(refused.why.find(kSecond + " is another writer's here; remove it"), std::string::npos) << refused.why;
  ASSERT_TRUE(b.unlink(kRank + "/" + kSecond));
  EXPECT_TRUE(b.exists(kIndex) && b.inspection().explain(kIndex).visible) << "the remedy helps";
}

TEST_F(Indexes, StayUnderAProgramThatHasReadThem) {
  publish_index_by_a();
  ASSERT_TRUE(b.exists(kIndex));
  const auto first = b.catalog->find(kIndex);
  ASSERT_TRUE(write(a, "a again"));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(eventually([&] { return b.catalog->find(kIndex)->entry.digest != first->entry.digest; }));
  forget_index(b);
  EXPECT_TRUE(b.exists(kIndex));
  EXPECT_EQ(b.read(kRank + "/" + kFirst).value_or("absent"), "a one") << "somebody may have read that index";
  Host c(cluster);
  ASSERT_TRUE(c.wait_for_entry(kIndex));
  ASSERT_TRUE(c.make_directories(kRank));
  EXPECT_TRUE(c.exists(kIndex));
  EXPECT_EQ(c.read(kRank + "/" + kFirst).value_or("absent"), "a again one");
}

TEST_F(Indexes, LeaveAloneWhenTheClusterHasNone) {
  publish_index_by_a();
  ASSERT_TRUE(b.exists(kIndex));
  ASSERT_TRUE(b.exists(kRank + "/" + kFirst));  // a program is about to read it
  b.catalog->freeze(true);
  forget(b, kIndex);
  EXPECT_FALSE(b.exists(kIndex));
  EXPECT_EQ(b.read(kRank + "/" + kFirst).value_or("absent"), "a one");
  b.catalog->freeze(false);
  EXPECT_EQ(b.read(kIndex).value_or("absent"), index_in("/mnt/cache/" + kRank));
  b.catalog->freeze(true);
  forget_index(b);
  ASSERT_FALSE(b.exists(kIndex));
  b.restart();
  EXPECT_FALSE(b.exists(kRank + "/" + kSecond)) << "of no index any more";
}

TEST_F(Indexes, ReplaceWhatAnEarlierOneLeft) {
  publish_index_by_a();
  ASSERT_TRUE(b.exists(kIndex));
  b.catalog->freeze(true);
  forget_index(b);
  ASSERT_FALSE(b.exists(kIndex));
  const auto first = a.catalog->find(kIndex);
  ASSERT_TRUE(write(a, "a again"));
  ASSERT_TRUE(a.sync());
  ASSERT_EQ(b.read(kRank + "/" + kFirst).value_or("absent"), "a one");  // by who had read the index
  b.catalog->freeze(false);
  ASSERT_TRUE(eventually([&] { return b.catalog->find(kIndex)->entry.digest != first->entry.digest; }));
  EXPECT_FALSE(b.exists(kIndex)) << "its bytes cannot change under who has it";
  EXPECT_EQ(b.read(kRank + "/" + kFirst).value_or("absent"), "a one");
  forget(b, kRank + "/" + kFirst);
  ASSERT_TRUE(b.exists(kIndex));
  EXPECT_EQ(b.read(kRank + "/" + kFirst).value_or("absent"), "a again one");
}

TEST_F(Indexes, TakeTheirFilesWithThemWhenTheFactsAreOthers) {
  ASSERT_TRUE(write(a, "a"));
  ASSERT_TRUE(a.sync());
  a.stop();
  a.change_facts("two");
  a.start();
  EXPECT_FALSE(a.exists(kIndex));
  EXPECT_FALSE(a.exists(kRank + "/" + kFirst)) << "it would be in the way of the cluster's index";
}

TEST_F(Indexes, StayHereWithAFileOfAnotherEnvironment) {
  constexpr pid_t kOther = 4'100'002;
  Host c(cluster, with_writer(kOther, fingerprint::Match::kDiffers));
  ASSERT_TRUE(c.make_directories(kRank));
  ASSERT_TRUE(c.publish_file(kRank + "/" + kFirst, "c one"));
  c.act_as(kOther);
  ASSERT_TRUE(c.publish_file(kRank + "/" + kSecond, "another's two"));
  c.act_as(0);
  ASSERT_TRUE(c.create(kIndex, index_in("/mnt/cache/" + kRank)));
  ASSERT_TRUE(c.sync());
  EXPECT_FALSE(c.catalog->find(kIndex));
  const auto refused = c.inspection().status().refused;
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_NE(refused.front().find(kSecond + ": "), std::string::npos) << refused.front();
  ASSERT_TRUE(write(c, "c"));
  ASSERT_TRUE(c.sync());
  EXPECT_TRUE(c.catalog->find(kIndex)) << "all of it anew";
}

TEST_F(Indexes, LeaveTheDiskWithTheirFiles) {
  publish_index_by_a();
  ASSERT_TRUE(b.exists(kIndex));
  b.restart();
  (void)b.store->free_space(kEverything);
  EXPECT_FALSE(b.exists(kRank + "/" + kFirst));
  EXPECT_TRUE(b.exists(kIndex));
  EXPECT_EQ(b.read(kRank + "/" + kFirst).value_or("absent"), "a one");
}

}  // namespace
}  // namespace inductorfs::testing
