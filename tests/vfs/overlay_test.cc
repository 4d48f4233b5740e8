// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <map>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/codec/digest.h"
#include "vfs/host.h"

namespace inductorfs::testing {
namespace {

/// An fxgraph entry: named by its content, as torch does.
std::string graph_path(const std::string& key_seed, const std::string& content) {
  const std::string key = code_name(key_seed, 'f');
  return "fxgraph/" + key.substr(1, 2) + "/" + key + "/" + codec::torch_hash(content);
}

std::string elf_library() {
  std::string elf(
      "\x7f"
      "ELF\x02\x01\x01",
      7);
  elf.resize(64, '\0');
  elf[18] = 62;  // e_machine: x86-64
  elf[16] = 3;   // e_type: shared object
  return elf;
}

std::string pickle(const std::string& text) { return "\x80\x04" + text + "."; }

class Overlay : public ::testing::Test {
 protected:
  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
};

TEST_F(Overlay, ShowsOnAnotherHostWhatOneRenamedIntoPlace) {
  Host a(cluster);
  Host b(cluster);
  const std::string content = pickle("graph");
  const std::string path = graph_path("key", content);

  ASSERT_TRUE(a.publish_file(path, content, 0444));
  ASSERT_TRUE(a.sync());

  ASSERT_TRUE(b.wait_for_entry(path));
  EXPECT_EQ(b.read(path).value_or("absent"), content);
  EXPECT_EQ(b.look_up(path)->attributes.mode & 07777, 0444U);
  EXPECT_EQ(b.list(path.substr(0, path.rfind('/'))).value().size(), 1U);
}

TEST_F(Overlay, NumbersWhatOnlyTheClusterHasBelowTheSign) {
  Host a(cluster);
  Host b(cluster);
  const std::string path = in_code_directory(code_name("numbered") + ".py");
  ASSERT_TRUE(a.publish_file(path, "text"));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.wait_for_entry(path));
  ASSERT_TRUE(b.create("own", "local"));
  std::map<std::string, uint64_t> listed;
  for (const std::string& directory : {std::string(), path.substr(0, 2)}) {
    ASSERT_TRUE(b.names().read_directory(b.look_up(directory)->node, 0, {}, [&](const vfs::DirectoryItem& item) {
      listed[std::string(item.name)] = item.inode_number;
      return true;
    }));
  }
  for (const std::string& name : {path, path.substr(0, 2)}) {
    const uint64_t number = b.look_up(name)->attributes.inode_number;
    EXPECT_EQ(number >> 62, 1U) << name;
    EXPECT_EQ(listed[name.substr(name.rfind('/') + 1)], number) << name;
  }
  EXPECT_EQ(b.look_up("own")->attributes.inode_number >> 62, 0U);
}

TEST_F(Overlay, ShowsNoTimeInTheFuture) {
  Host a(cluster);
  Host b(cluster);
  const std::string path = in_code_directory(code_name("tomorrow") + ".py");
  vfs::AttributeChange tomorrow;
  tomorrow.modified = vfs::Timestamp{::time(nullptr) + 86'400, 0};
  ASSERT_TRUE(a.make_directories("tmp"));
  ASSERT_TRUE(a.create("tmp/one", "text"));
  ASSERT_TRUE(a.attributes().set_attributes(a.look_up("tmp/one")->node, tomorrow, {}));
  ASSERT_TRUE(a.make_directories(path.substr(0, 2)));
  ASSERT_TRUE(a.rename("tmp/one", path));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.wait_for_entry(path));

  const auto first = b.look_up(path);
  ASSERT_TRUE(first);
  EXPECT_LE(first->attributes.modified.seconds, ::time(nullptr));
  EXPECT_GT(first->attributes.modified.seconds, ::time(nullptr) - 3600);
  EXPECT_EQ(b.look_up(path)->attributes.modified, first->attributes.modified) << "and none that moves";
  EXPECT_EQ(a.look_up(path)->attributes.modified.seconds, tomorrow.modified->seconds) << "what this host was told";
}

TEST_F(Overlay, KeepsTemporaryNamesAndLocksOnTheirHost) {
  Host a(cluster);
  Host b(cluster);

  ASSERT_TRUE(a.make_directories("ab"));
  ASSERT_TRUE(a.create("ab/.12.34.tmp", "half"));
  ASSERT_TRUE(a.make_directories("locks"));
  ASSERT_TRUE(a.create("locks/x.lock", ""));
  ASSERT_TRUE(a.publish_file("unknown/family", "bytes"));
  const std::string marker = in_code_directory(code_name("code") + ".py");
  ASSERT_TRUE(a.publish_file(marker, "print()"));
  ASSERT_TRUE(a.sync());

  ASSERT_TRUE(b.wait_for_entry(marker));
  EXPECT_FALSE(b.exists("ab/.12.34.tmp"));
  EXPECT_FALSE(b.exists("locks"));
  EXPECT_FALSE(b.exists("unknown"));
  EXPECT_TRUE(a.exists("unknown/family"));
}

TEST_F(Overlay, ChecksABlobThatIsHereForEachNameOnce) {
  const std::string sound = in_code_directory(code_name("sound") + ".py");
  const std::string corrupt = in_code_directory(code_name("corrupt") + ".py");
  const std::string foreign = in_code_directory(code_name("foreign") + ".py");
  Host b(cluster);
  for (const auto& path : {sound, corrupt, foreign}) ASSERT_TRUE(b.publish_file(path, "print()"));
  ASSERT_TRUE(b.sync());
  std::atomic<int> asked{0};
  HostOptions options;
  options.check = [&](const layout::Classification& classified, std::string_view, uint64_t) -> Result<void> {
    ++asked;
    if (classified.canonical == corrupt) return fail(ErrorCode::kCorrupt, "not what its name says");
    if (classified.canonical == foreign) return fail(ErrorCode::kNotSupported, "for another host");
    return {};
  };
  Host a(cluster, options);
  for (const auto& path : {sound, corrupt, foreign}) ASSERT_TRUE(a.wait_for_entry(path));
  const auto look_up_anew = [&] {
    const auto found = a.look_up(sound);
    if (found) a.names().forget(found->node, 1);
    return found.has_value();
  };
  ASSERT_TRUE(look_up_anew());
  ASSERT_EQ(asked, 1);
  ASSERT_TRUE(a.store->find(codec::digest_of("print()")));

  EXPECT_FALSE(a.exists(corrupt)) << "the blob is here, and another name's";
  EXPECT_EQ(a.count("lookup.lost"), 0U) << "it is what was published";
  EXPECT_FALSE(a.exists(foreign));
  EXPECT_EQ(a.count("fetch.not_for_this_host"), 2U);
  EXPECT_EQ(asked, 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(look_up_anew());
    EXPECT_FALSE(a.exists(corrupt));
    EXPECT_FALSE(a.exists(foreign));
  }
  EXPECT_EQ(asked, 3) << "once for each name";
  a.file_system->host_changed();
  EXPECT_TRUE(look_up_anew());
  EXPECT_TRUE(look_up_anew());
  EXPECT_EQ(asked, 4) << "the host is another";
  EXPECT_FALSE(a.exists(corrupt));
  EXPECT_FALSE(a.exists(foreign));
  EXPECT_EQ(asked, 6);
  EXPECT_EQ(a.read(sound).value_or("absent"), "print()");
}

TEST_F(Overlay, SyncsTheNamesThatTheHostHas) {
  Host a(cluster);
  Host b(cluster);
  const std::string shared = in_code_directory(code_name("shared") + ".py");
  ASSERT_TRUE(a.publish_file(shared, "print()"));
  ASSERT_TRUE(a.make_directory("own"));
  ASSERT_TRUE(a.create("own/file", "bytes"));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.wait_for_entry(shared));
  const auto sync = [](Host& host, const std::string& path) {
    const auto found = host.look_up(path);
    return found ? host.data().sync_file(found->node, false) : fail(found.error());
  };
  const std::string directory = shared.substr(0, shared.find('/'));
  EXPECT_TRUE(sync(a, "own"));
  EXPECT_TRUE(sync(a, directory));
  EXPECT_TRUE(sync(b, directory)) << "the cluster's";
  EXPECT_TRUE(a.data().sync_file(vfs::kRootNode, false));
  const auto removed = a.look_up("own");
  ASSERT_TRUE(removed);

  ASSERT_TRUE(arm_fail_points("disk.sync=EIO"));
  EXPECT_FALSE(sync(a, "own"));
  EXPECT_FALSE(sync(a, "own/file"));
  EXPECT_TRUE(sync(b, directory)) << "nothing is written for these";
  ASSERT_TRUE(a.unlink("own/file"));
  ASSERT_TRUE(a.remove_directory("own"));
  EXPECT_TRUE(a.data().sync_file(removed->node, false)) << "nobody can come back to its names";
  ASSERT_TRUE(arm_fail_points(""));
}

TEST_F(Overlay, ShowsTheModesThatAFamilyMakes) {
  Host a(cluster);
  Host b(cluster);
  const std::string code = in_code_directory(code_name("code") + ".py");
  const std::string binary = in_code_directory(code_name("binary") + ".so");
  for (const auto& path : {code, binary}) ASSERT_TRUE(a.publish_file(path, "bytes", 0755));
  ASSERT_TRUE(a.sync());
  for (const auto& path : {code, binary}) ASSERT_TRUE(b.wait_for_entry(path));
  EXPECT_EQ(b.look_up(code)->attributes.mode & 07777, 0644U);
  EXPECT_EQ(b.look_up(binary)->attributes.mode & 07777, 0755U);
}

TEST_F(Overlay, HidesWhatDoesNotFitTheHost) {
  Host a(cluster);
  HostOptions other;
  other.facts = "two";
  Host b(cluster, other);
  const std::string path = in_code_directory(code_name("code") + ".py");

  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.publish_file(in_code_directory(code_name("own") + ".py"), "print(1)"));
  ASSERT_TRUE(b.sync());

  EXPECT_FALSE(b.exists(path));
}

TEST_F(Overlay, NeverShowsAnEntryWhoseBytesAreGone) {
  Host a(cluster);
  const std::string content = pickle("graph");
  const std::string path = graph_path("key", content);
  ASSERT_TRUE(a.publish_file(path, content));
  ASSERT_TRUE(a.sync());
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));
  remote::evict_blob(*cluster, codec::digest_of(content));

  EXPECT_FALSE(b.exists(path));
  EXPECT_EQ(b.count("lookup.lost"), 1U);
  EXPECT_TRUE(b.wait_until_gone(path));
}

TEST_F(Overlay, DeletesLocallyOnly) {
  Host a(cluster);
  const std::string path = in_code_directory(code_name("code") + ".py");
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.sync());
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));
  ASSERT_TRUE(b.exists(path));

  ASSERT_TRUE(b.unlink(path));
  EXPECT_FALSE(b.exists(path));
  ASSERT_TRUE(b.remove_directory(path.substr(0, 2)));
  EXPECT_FALSE(b.exists(path.substr(0, 2)));
  b.restart();
  EXPECT_FALSE(b.exists(path));
  EXPECT_TRUE(a.exists(path));
  ASSERT_TRUE(a.unlink(path));
  EXPECT_FALSE(a.exists(path)) << "the writer's own entry must not show through its deleted file";
}

TEST_F(Overlay, RefusesToRemoveADirectoryThatHoldsEntriesOnly) {
  Host a(cluster);
  const std::string path = in_code_directory(code_name("code") + ".py");
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.sync());
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));

  const auto removed = b.remove_directory(path.substr(0, 2));

  ASSERT_FALSE(removed);
  EXPECT_EQ(removed.error().code(), ErrorCode::kNotEmpty);
}

TEST_F(Overlay, CopiesOnWriteAndLeavesTheBlobAlone) {
  Host a(cluster);
  const std::string path = in_code_directory(code_name("code") + ".py");
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.sync());
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));

  ASSERT_TRUE(b.append(path, " # mine"));
  ASSERT_TRUE(a.append(path, " # changed"));

  EXPECT_EQ(b.read(path).value(), "print() # mine");
  EXPECT_EQ(a.read(path).value(), "print() # changed");
  Host c(cluster);
  ASSERT_TRUE(c.wait_for_entry(path));
  EXPECT_EQ(c.read(path).value(), "print()");
}

TEST_F(Overlay, KeepsADeletedFileReadableForWhoHasItOpen) {
  Host a(cluster);
  const std::string path = in_code_directory(code_name("code") + ".py");
  ASSERT_TRUE(a.publish_file(path, "old bytes"));
  const auto open = a.look_up(path);
  ASSERT_TRUE(open);

  ASSERT_TRUE(a.publish_file(path, "new bytes"));

  std::string bytes(9, '\0');
  ASSERT_EQ(a.data().read(open->node, bytes.data(), bytes.size(), 0).value(), 9U);
  EXPECT_EQ(bytes, "old bytes");
  EXPECT_EQ(a.read(path).value(), "new bytes");
  ASSERT_TRUE(a.unlink(path));
  ASSERT_EQ(a.data().read(open->node, bytes.data(), bytes.size(), 0).value(), 9U);
  EXPECT_EQ(bytes, "old bytes");
}

TEST_F(Overlay, SealsALinkedLibraryWhenItsBuildDirectoryGoes) {
  Host a(cluster);
  Host b(cluster);
  const std::string stem = in_code_directory(code_name("kernel") + ".main");
  const std::string elf = elf_library();
  ASSERT_TRUE(a.make_directories(stem + "_CxxBuild"));
  ASSERT_TRUE(a.create(stem + ".so", elf, 0755));
  const std::string mark = in_code_directory(code_name("mark") + ".py");
  ASSERT_TRUE(a.publish_file(mark, "x"));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.wait_for_entry(mark));
  EXPECT_FALSE(b.exists(stem + ".so")) << "a library is not complete before the compiler has exited";

  ASSERT_TRUE(a.remove_directory(stem + "_CxxBuild"));
  ASSERT_TRUE(a.sync());

  ASSERT_TRUE(b.wait_for_entry(stem + ".so"));
  EXPECT_EQ(b.read(stem + ".so").value_or("absent"), elf);
  EXPECT_EQ(b.look_up(stem + ".so")->attributes.mode & 07777, 0755U);
}

TEST_F(Overlay, KeepsOneCandidateOfAStorm) {
  Host a(cluster);
  Host b(cluster);
  const std::string first = pickle("timing 1");
  const std::string second = pickle("timing 2");

  // Both have missed the key; a's entry reaches b before b has compiled.
  ASSERT_TRUE(a.publish_file(graph_path("key", first), first));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.wait_for_entry(graph_path("key", first)));
  ASSERT_TRUE(b.publish_file(graph_path("key", second), second));
  ASSERT_TRUE(b.sync());

  EXPECT_TRUE(b.exists(graph_path("key", second))) << "a process sees what it wrote";
  EXPECT_FALSE(b.catalog->find(graph_path("key", second)));
}

TEST_F(Overlay, PublishesASecondCandidateOfAWriterThatSawTheFirst) {
  Host a(cluster);
  Host b(cluster);
  const std::string first = pickle("guards 1");
  const std::string second = pickle("guards 2");
  ASSERT_TRUE(a.publish_file(graph_path("key", first), first));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.wait_for_entry(graph_path("key", first)));
  const std::string directory = graph_path("key", first).substr(0, graph_path("key", first).rfind('/'));

  ASSERT_EQ(b.list(directory).value().size(), 1U);
  ASSERT_TRUE(b.publish_file(graph_path("key", second), second));
  ASSERT_TRUE(b.sync());

  EXPECT_TRUE(a.wait_for_entry(graph_path("key", second)));
}

TEST_F(Overlay, MergesAutotuneTimingsOfTwoHosts) {
  Host a(cluster);
  Host b(cluster);
  const std::string path = "cache/" + std::string(64, 'a');
  const auto timings = [](const std::string& choice) {
    return "{\n    \"system\": {\n        \"hash\": \"" + std::string(64, 'a') +
           "\"\n    },\n    \"cache\": {\n        \"mm\": {\n            \"in\": {\n                \"high\": {\n"
           "                    \"" +
           choice + "\": 1.5\n                }\n            }\n        }\n    }\n}";
  };

  ASSERT_TRUE(a.publish_file(path, timings("one")));
  ASSERT_TRUE(b.publish_file(path, timings("two")));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(b.sync());

  const auto has_both = [&](Host& host) {
    const auto text = host.read(path);
    return text && text->find("\"one\"") != std::string::npos && text->find("\"two\"") != std::string::npos;
  };
  EXPECT_TRUE(eventually([&] { return has_both(a) && has_both(b); })) << a.read(path).value() << b.read(path).value();
}

TEST_F(Overlay, TellsTheKernelAboutNamesThatItHoldsAsAbsent) {
  Host a(cluster);
  Host b(cluster);
  const std::string path = in_code_directory(code_name("code") + ".py");
  ASSERT_FALSE(b.exists(path));

  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.sync());

  EXPECT_TRUE(eventually([&] { return b.kernel.told_name(path.substr(0, 2)); }));
}

TEST_F(Overlay, SaysOfADirectoryThatIsNamedLikeATemporaryOneWhyItIsPrivate) {
  Host a(cluster);
  const auto told = [&](const std::string& name) {
    const auto lines = a.inspection().status().refused;
    return std::count_if(lines.begin(), lines.end(), [&](const auto& line) { return line.starts_with(name + ": "); });
  };
  const auto use = [&](const std::string& name, mode_t mode) {
    ASSERT_TRUE(a.make_directory(name, mode));
    ASSERT_TRUE(a.make_directory(name + "/fxgraph"));
    ASSERT_TRUE(a.make_directory(name + "/aotautograd"));
  };
  use("tmp_compile", 0700);
  use("tmpcompiler", 0755);
  use("tmpab_1xyz9", 0700);  // tempfile.mkdtemp
  ASSERT_TRUE(a.make_directory("tmp_nothing"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(told("tmp_compile"), 1);
    EXPECT_EQ(told("tmpcompiler"), 1);
    EXPECT_EQ(told("tmpab_1xyz9"), 0);
    EXPECT_EQ(told("tmp_nothing"), 0);
    a.restart();
  }
}

TEST_F(Overlay, RefusesContentThatContradictsItsName) {
  Host a(cluster);
  const std::string content = pickle("graph");
  const std::string path = graph_path("key", pickle("another"));

  ASSERT_TRUE(a.publish_file(path, content));
  ASSERT_TRUE(a.sync());

  EXPECT_FALSE(a.catalog->find(path));
  EXPECT_EQ(a.count("seal.refused"), 1U);
  EXPECT_EQ(a.read(path).value(), content) << "the job keeps what it wrote";
}

TEST_F(Overlay, SealsAfterARestartWhatWasNotSealedBefore) {
  const std::string path = in_code_directory(code_name("code") + ".py");
  HostOptions options;
  options.quiet_time = std::chrono::hours(1);
  Host a(cluster, options);
  // Written without the mount, as if the daemon had been killed between the rename and the seal.
  ASSERT_TRUE(a.make_directories(path.substr(0, 2)));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, a.directory / "local/view/" + path, "print()"));

  a.restart();
  ASSERT_TRUE(a.sync());

  EXPECT_TRUE(a.catalog->find(path));
}

TEST_F(Overlay, DoesNotPublishAfterARestartWhatWasChangedInPlace) {
  const std::string path = in_code_directory(code_name("code") + ".py");
  Host a(cluster);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(a.append(path, " # changed"));

  a.restart();
  ASSERT_TRUE(a.sync());

  EXPECT_EQ(a.read(path).value(), "print() # changed");
  EXPECT_EQ(a.catalog->find(path)->entry.digest, codec::digest_of("print()"));
}

TEST_F(Overlay, RemovesALibraryWhoseBuildTheMountDidNotSurvive) {
  const std::string stem = in_code_directory(code_name("kernel") + ".main");
  Host a(cluster);
  ASSERT_TRUE(a.make_directories(stem + "_CxxBuild"));
  ASSERT_TRUE(a.create(stem + ".so", "half a library"));

  a.restart();

  EXPECT_FALSE(a.exists(stem + ".so"));
}

TEST_F(Overlay, MakesNoOtherNodeForAFileThatIsBeingRenamed) {
  const std::string stem = in_code_directory(code_name("kernel") + ".main");
  const std::string from = stem + ".tmp";
  const std::string to = stem + ".so";
  Host a(cluster);
  ASSERT_TRUE(a.make_directories(stem + "_CxxBuild"));
  ASSERT_TRUE(a.create(from, elf_library(), 0755));
  const auto held = a.look_up(from);
  ASSERT_TRUE(held);
  // The moment between the effect on the disk and the one on the node, in which the end of the build is seen.
  const std::string view = a.directory / "local/view/";
  ASSERT_EQ(::rename((view + from).c_str(), (view + to).c_str()), 0);
  ASSERT_TRUE(a.remove_directory(stem + "_CxxBuild"));
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.count("seal.sealed"), 0U) << "the job writes to it under the name that its node has";
  ASSERT_EQ(::rename((view + to).c_str(), (view + from).c_str()), 0);
  ASSERT_TRUE(a.rename(from, to));

  ASSERT_TRUE(a.append(to, "more"));
  EXPECT_EQ(a.read(to).value_or("absent"), elf_library() + "more");
  EXPECT_EQ(a.look_up(to)->node, held->node);
}

TEST_F(Overlay, HoldsItsLimitAlthoughFilesOfItsOwnAreLinkedToBlobs) {
  HostOptions options;
  options.store_limit = 4 << 20;
  Host a(cluster, options);
  for (int i = 0; i < 12; ++i) {
    const std::string path = in_code_directory(code_name(std::to_string(i)) + ".py");
    ASSERT_TRUE(a.publish_file(path, std::string(1 << 20, static_cast<char>('a' + i))));
    ASSERT_TRUE(a.sync());
    // The kernel forgets, as it does under memory pressure or when it is told to.
    for (const auto& p : {path, path.substr(0, 2)}) {
      const auto found = a.look_up(p);
      if (found) a.names().forget(found->node, 1'000'000);
    }
  }

  EXPECT_LE(a.store->usage().bytes, options.store_limit);
  for (int i = 0; i < 12; ++i) {
    const std::string path = in_code_directory(code_name(std::to_string(i)) + ".py");
    EXPECT_TRUE(a.read(path).value_or("absent") == std::string(1 << 20, static_cast<char>('a' + i))) << i;
    a.names().forget(a.look_up(path)->node, 1'000'000);
  }
}

}  // namespace
}  // namespace inductorfs::testing
