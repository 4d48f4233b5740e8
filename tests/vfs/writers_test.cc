// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

#include "vfs/host.h"
#include "vfs/nodes/provenance.h"
#include "vfs/process.h"

namespace inductorfs::testing {
namespace {

using fingerprint::Match;

// No such processes: whoever asks for them by /proc finds nothing.
constexpr pid_t kTorch = 4'100'001;
constexpr pid_t kOtherTorch = 4'100'002;
constexpr pid_t kShell = 4'100'003;
constexpr pid_t kLinker = 4'100'004;
constexpr pid_t kNewTorch = 4'100'005;  ///< whose packages were never read

std::string code_path(const std::string& seed) { return in_code_directory(code_name(seed) + ".py"); }

/// Who writes decides what leaves the host.
class WritersTest : public ::testing::Test {
 protected:
  WritersTest() {
    writers->set(kOtherTorch, Match::kDiffers);
    writers->set(kShell, Match::kUnknown);
    writers->set(kLinker, Match::kUnknown);
    writers->set(kNewTorch, Match::kLater, Match::kMatches);
  }
  HostOptions watched() const {
    HostOptions options;
    options.writers = writers;
    options.process = kTorch;
    return options;
  }
  static std::string on_disk(const Host& host, const std::string& path) {
    return host.directory / "local/view/" + path;
  }
  static std::string mark(const Host& host, const std::string& path, const char* name) {
    std::string value(1000, '\0');
    const ssize_t size = ::getxattr(on_disk(host, path).c_str(), name, value.data(), value.size());
    return size < 0 ? std::string() : value.substr(0, static_cast<size_t>(size));
  }
  static std::string scope_of(const Host& host, const std::string& path, const std::string& architecture = {}) {
    return host.environment.scope_of(layout::classify(path).family, architecture).id;
  }
  static Result<std::string> xattr(Host& host, const std::string& path, const char* name) {
    const auto found = host.look_up(path);
    return found ? host.attributes().get_xattr(found->node, name) : fail(found.error());
  }
  /// Whether the cluster has it, once all that `host` has to say is said.
  static bool is_shared(Host& host, const std::string& path) {
    EXPECT_TRUE(host.sync());
    return host.catalog->find(layout::canonical_path(path)).has_value();
  }

  std::shared_ptr<FakeWriters> writers = std::make_shared<FakeWriters>();
  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  const std::string directory = "triton/0/" + triton_key_of("kernel");
};

TEST_F(WritersTest, SharesWhatAWriterOfThisEnvironmentRenamedIntoPlace) {
  Host a(cluster, watched());
  const std::string path = code_path("code");

  ASSERT_TRUE(a.publish_file(path, "print()"));

  EXPECT_TRUE(is_shared(a, path));
  EXPECT_EQ(mark(a, path, "user.inductorfs.scope"), scope_of(a, path));
  EXPECT_EQ(xattr(a, path, "user.inductorfs.scope").value_or(""), scope_of(a, path));
  EXPECT_EQ(a.inspection().explain(path).made_for, scope_of(a, path));
  const auto facets = layout::rule_of(layout::Family::kGeneratedCode).facets;
  EXPECT_EQ(writers->asked(), (std::vector<fingerprint::Facet>{facets.begin(), facets.end()}));
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));
  EXPECT_EQ(xattr(b, path, "user.inductorfs.scope").value_or(""), scope_of(a, path)) << "the scope that it came in";
}

TEST_F(WritersTest, KeepsOnItsHostWhatAnotherEnvironmentWrote) {
  Host a(cluster, watched());
  a.act_as(kOtherTorch);
  const std::string path = code_path("foreign");

  ASSERT_TRUE(a.publish_file(path, "print()"));

  EXPECT_FALSE(is_shared(a, path));
  EXPECT_EQ(a.read(path).value_or("absent"), "print()") << "as on a local disk";
  EXPECT_EQ(a.count("seal.foreign"), 1U);
  const auto status = a.inspection().status();
  EXPECT_EQ(status.foreign, 1U);
  EXPECT_EQ(status.foreign_reasons, std::vector<std::string>{"facet torch: another package"});
  EXPECT_TRUE(status.refused.empty()) << "nothing is wrong with it";
  EXPECT_EQ(xattr(a, path, "user.inductorfs.private").value_or(""), "facet torch: another package");
  EXPECT_FALSE(xattr(a, path, "user.inductorfs.scope"));
  EXPECT_NE(a.inspection().explain(path).why.find("another package"), std::string::npos);

  a.act_as(kTorch);
  a.restart();
  EXPECT_FALSE(is_shared(a, path));
  EXPECT_EQ(a.read(path).value_or("absent"), "print()");
  EXPECT_EQ(a.inspection().status().foreign, 1U) << "said again after a restart";
}

/// The store was used before --writers pod was given.
TEST_F(WritersTest, TellsWhatToDoAboutWhatAnEarlierMountKept) {
  Host a(cluster, watched());
  a.act_as(kOtherTorch);
  const std::string path = code_path("foreign");
  ASSERT_TRUE(a.publish_file(path, "print()"));
  EXPECT_FALSE(is_shared(a, path));

  a.environment.set_writers(nullptr);
  a.restart();
  EXPECT_FALSE(is_shared(a, path)) << "nobody knows what it was made for";
  EXPECT_EQ(a.inspection().status().foreign_reasons,
            std::vector<std::string>{"an earlier mount kept it here: facet torch: another package; remove it from the "
                                     "mount, so that it is made again and shared"});
  ASSERT_TRUE(a.unlink(path));
  ASSERT_TRUE(a.publish_file(path, "print()"));
  EXPECT_TRUE(is_shared(a, path));
}

TEST_F(WritersTest, KeepsWhatAnUnknownProcessWroteAndTellsEachReasonOnce) {
  Host a(cluster, watched());
  a.act_as(kShell);
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(a.publish_file(code_path("shell" + std::to_string(i)), "x"));
  EXPECT_FALSE(is_shared(a, code_path("shell3")));
  EXPECT_EQ(a.inspection().status().foreign, 30U);
  EXPECT_EQ(a.inspection().status().foreign_reasons.size(), 1U);
}

TEST_F(WritersTest, AsksNobodyOnTheReadPathAndForTemporaryNames) {
  Host a(cluster, watched());
  const std::string path = code_path("code");
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(writers->identified(), 1U) << "the rename alone";
  a.act_as(kShell);
  EXPECT_TRUE(a.read(path));
  EXPECT_TRUE(a.list(path.substr(0, 2)));
  ASSERT_TRUE(a.create("s.4711.1.tmp", "text"));
  ASSERT_TRUE(a.append("s.4711.1.tmp", "more"));
  a.act_as(kOtherTorch);
  ASSERT_TRUE(a.append("s.4711.1.tmp", "more"));
  ASSERT_TRUE(a.publish_file("unknown/family", "text"));
  EXPECT_EQ(writers->identified(), 1U);
}

TEST_F(WritersTest, LeavesALateJudgementToTheBackground) {
  Host a(cluster, watched());
  writers->hold_judgements(true);
  a.act_as(kNewTorch);
  const std::string path = code_path("late");
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(eventually([&] { return writers->judging() > 0; })) << "the job has long gone on";
  EXPECT_FALSE(a.catalog->find(path));
  EXPECT_EQ(mark(a, path, "user.inductorfs.scope"), "") << "a crash now must leave it private";

  writers->hold_judgements(false);

  EXPECT_TRUE(is_shared(a, path));
  EXPECT_EQ(mark(a, path, "user.inductorfs.scope"), scope_of(a, path));
}

/// The package of one writer lies on a file system that does not answer.
TEST_F(WritersTest, DelaysNobodysArtefactsWhileOneWriterCannotBeJudged) {
  Host a(cluster, watched());
  writers->hold_judgements_of(kNewTorch);
  a.act_as(kNewTorch);
  const std::string stuck = code_path("stuck");
  ASSERT_TRUE(a.publish_file(stuck, "print()"));
  Process stuck_triton;
  writers->set(stuck_triton.pid(), Match::kLater, Match::kMatches);
  writers->hold_judgements_of(stuck_triton.pid());
  ASSERT_TRUE(a.triton_compile(directory, "stuck", stuck_triton.pid()));
  ASSERT_TRUE(eventually([&] { return writers->judging() > 1; }));

  a.act_as(kTorch);
  const std::string other = code_path("other");
  ASSERT_TRUE(a.publish_file(other, "print()"));

  EXPECT_TRUE(eventually([&] { return a.catalog->find(layout::canonical_path(other)).has_value(); }));
  EXPECT_FALSE(a.catalog->find(layout::canonical_path(stuck)));
  const auto unsealed = a.file_system->sync(Deadline::after(Milliseconds{1}));
  ASSERT_FALSE(unsealed);
  EXPECT_NE(unsealed.error().what().find(stuck), std::string::npos) << unsealed.error().what();
  a.stop();  // waits for nobody's package
}

TEST_F(WritersTest, KeepsWhatALateJudgementFindsForeign) {
  Host a(cluster, watched());
  writers->set(kNewTorch, Match::kLater, Match::kDiffers);
  a.act_as(kNewTorch);
  const std::string path = code_path("late");
  ASSERT_TRUE(a.publish_file(path, "print()"));
  EXPECT_FALSE(is_shared(a, path));
  EXPECT_EQ(a.inspection().status().foreign_reasons,
            std::vector<std::string>{"facet torch: another package, read whole"});
}

TEST_F(WritersTest, JudgesAnotherThatWroteWhileTheFirstWasJudged) {
  Host a(cluster, watched());
  const std::string path = "ab/" + std::string(64, 'b') + ".best_config";
  writers->hold_judgements(true);
  a.act_as(kNewTorch);
  ASSERT_TRUE(a.make_directories("ab"));
  ASSERT_TRUE(a.create(path, "{}"));
  ASSERT_TRUE(eventually([&] { return writers->judging() > 0; }));
  a.act_as(kOtherTorch);
  ASSERT_TRUE(a.append(path, " "));
  writers->hold_judgements(false);
  EXPECT_FALSE(is_shared(a, path));
  EXPECT_EQ(a.count("seal.foreign"), 1U);
}

TEST_F(WritersTest, LooksAtEachFurtherWriterOfAFileThatIsWrittenInPlace) {
  Host a(cluster, watched());
  const std::string fine = "ab/" + std::string(64, 'a') + ".best_config";
  const std::string foreign = "ab/" + std::string(64, 'b') + ".best_config";
  ASSERT_TRUE(a.make_directories("ab"));
  ASSERT_TRUE(a.create(fine, "{"));
  const size_t asked = writers->identified();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(a.append(fine, " "));
  EXPECT_EQ(writers->identified(), asked) << "the same process";
  ASSERT_TRUE(a.create(foreign, "{"));
  a.act_as(kOtherTorch);
  ASSERT_TRUE(a.append(foreign, "}"));
  EXPECT_FALSE(is_shared(a, foreign));
  EXPECT_TRUE(is_shared(a, fine));
}

TEST_F(WritersTest, KeepsASealedFileThatAnotherEnvironmentChanged) {
  Host a(cluster, watched());
  const std::string path = "ab/" + std::string(64, 'a') + ".best_config";
  ASSERT_TRUE(a.make_directories("ab"));
  ASSERT_TRUE(a.create(path, "{}"));
  ASSERT_TRUE(is_shared(a, path));
  const auto before = a.catalog->find(path)->entry.digest;
  a.act_as(kOtherTorch);
  ASSERT_TRUE(a.append(path, " "));
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.catalog->find(path)->entry.digest, before);
  EXPECT_EQ(a.read(path).value_or("absent"), "{} ");
}

TEST_F(WritersTest, ForgetsAForeignWriterWhenTheFileIsWrittenAnew) {
  Host a(cluster, watched());
  const std::string path = "ab/" + std::string(64, 'c') + ".best_config";
  ASSERT_TRUE(a.make_directories("ab"));
  a.act_as(kOtherTorch);
  ASSERT_TRUE(a.create(path, "{\"foreign\": 1}"));
  ASSERT_FALSE(is_shared(a, path));
  a.act_as(kTorch);
  ASSERT_TRUE(a.append(path, " "));
  EXPECT_FALSE(is_shared(a, path)) << "its bytes are still there";
  ASSERT_TRUE(a.truncate(path, 0));
  ASSERT_TRUE(a.append(path, "{}"));
  EXPECT_TRUE(is_shared(a, path));
}

TEST_F(WritersTest, TakesTheProcessThatRemovesTheBuildDirectoryForTheWriterOfALibrary) {
  Host a(cluster, watched());
  for (const pid_t remover : {kTorch, kOtherTorch}) {
    const std::string stem = in_code_directory(code_name("lib" + std::to_string(remover)));
    ASSERT_TRUE(a.make_directories(stem + ".main_CxxBuild"));
    a.act_as(kLinker);
    ASSERT_TRUE(a.create(stem + ".main.so", "library", 0755));
    ASSERT_TRUE(a.append(stem + ".main.so", "more"));
    const auto foreign = a.count("seal.foreign");
    EXPECT_EQ(foreign, 0U) << "the linker is not asked";
    a.act_as(remover);
    ASSERT_TRUE(a.remove_directory(stem + ".main_CxxBuild"));
    EXPECT_EQ(is_shared(a, stem + ".main.so"), remover == kTorch);
    a.act_as(kTorch);
  }
  EXPECT_EQ(a.count("seal.foreign"), 1U);
}

TEST_F(WritersTest, LooksAtWhoRenamesADirectoryWithArtefacts) {
  Host a(cluster, watched());
  const std::string fine = code_path("fine");
  const std::string foreign = code_path("foreign");
  const auto rename_into_place = [&](const std::string& path, pid_t process) {
    const std::string staging = "staging" + path.substr(0, 2);
    ASSERT_TRUE(a.make_directories(staging));
    ASSERT_TRUE(a.create(staging + path.substr(2), "print()"));
    ASSERT_TRUE(a.rename(staging, path.substr(0, 2), process));
  };
  ASSERT_NE(fine.substr(0, 2), foreign.substr(0, 2));
  rename_into_place(fine, kTorch);
  rename_into_place(foreign, kOtherTorch);
  EXPECT_TRUE(is_shared(a, fine));
  EXPECT_FALSE(is_shared(a, foreign));
}

TEST_F(WritersTest, LooksAtWhoLinksOrExchanges) {
  Host a(cluster, watched());
  const std::string linked = code_path("linked");
  const std::string exchanged = code_path("exchanged");
  ASSERT_TRUE(a.make_directories(linked.substr(0, 2)));
  ASSERT_TRUE(a.create("private", "print()"));
  const auto node = a.look_up("private");
  const auto parent = a.look_up(linked.substr(0, 2));
  ASSERT_TRUE(node && parent);
  ASSERT_TRUE(a.names().link(node->node, parent->node, linked.substr(3), {::getuid(), ::getgid(), kOtherTorch}));
  EXPECT_FALSE(mark(a, linked, "user.inductorfs.private").empty());
  EXPECT_FALSE(is_shared(a, linked));

  ASSERT_TRUE(a.publish_file(exchanged, "print()"));
  ASSERT_TRUE(a.create("other", "foreign()"));
  ASSERT_TRUE(a.rename("other", exchanged, kOtherTorch, vfs::RenameMode::kExchange));
  EXPECT_FALSE(mark(a, exchanged, "user.inductorfs.private").empty());
}

TEST_F(WritersTest, NeverSharesWhatWasForeignOnce) {
  Host a(cluster, watched());
  const std::string path = code_path("foreign");
  ASSERT_TRUE(a.make_directories(path.substr(0, 2)));
  a.act_as(kOtherTorch);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  a.act_as(kTorch);
  const std::string other = path.substr(0, 3) + code_name("another") + ".py";
  ASSERT_TRUE(a.rename(path, other));
  EXPECT_FALSE(is_shared(a, other));
}

TEST_F(WritersTest, KeepsATritonSetOfAnotherEnvironmentAsAWhole) {
  Process foreign;  // before the host, whose locks it would inherit
  Host a(cluster, watched());
  writers->set(foreign.pid(), Match::kDiffers);
  ASSERT_TRUE(a.triton_compile(directory, "foreign", foreign.pid()));
  EXPECT_FALSE(is_shared(a, directory + "/__grp__k.json"));
  EXPECT_EQ(a.read(directory + "/k.ttir").value_or("absent"), "foreign wrote k.ttir");
  EXPECT_EQ(a.inspection().status().foreign, 4U);
  EXPECT_NE(a.inspection().explain(directory + "/k.ttir").why.find("another package"), std::string::npos);
  a.restart();
  EXPECT_FALSE(is_shared(a, directory + "/__grp__k.json"));
  EXPECT_TRUE(a.exists(directory + "/k.ttir"));

  Host b(cluster, watched());
  Process torch;
  ASSERT_TRUE(b.triton_compile(directory, "second", torch.pid()));
  EXPECT_TRUE(is_shared(b, directory + "/__grp__k.json"));
}

TEST_F(WritersTest, JudgesTheWriterOfATritonSetLate) {
  Host a(cluster, watched());
  Process torch;
  Process foreign;
  writers->set(torch.pid(), Match::kLater, Match::kMatches);
  writers->set(foreign.pid(), Match::kLater, Match::kDiffers);
  const std::string other = "triton/0/" + triton_key_of("other");
  ASSERT_TRUE(a.triton_compile(directory, "first", torch.pid()));
  ASSERT_TRUE(a.triton_compile(other, "foreign", foreign.pid()));
  EXPECT_TRUE(is_shared(a, directory + "/__grp__k.json"));
  EXPECT_FALSE(is_shared(a, other + "/__grp__k.json"));
  EXPECT_EQ(mark(a, directory + "/k.ttir", "user.inductorfs.scope"), scope_of(a, directory + "/k.ttir"));
  EXPECT_EQ(a.inspection().status().foreign, 4U);
}

TEST_F(WritersTest, LooksAtWhoRenamesAStagedTritonSet) {
  Host a(cluster, watched());
  const auto stage = [&](const std::string& key_directory, pid_t process) {
    const std::string staging = "triton/0/tmp.01234567-89ab-cdef-0123-456789abcdef";
    ASSERT_TRUE(a.make_directories(staging));
    ASSERT_TRUE(a.create(staging + "/k.ttir", "text"));
    ASSERT_TRUE(a.create(staging + "/__grp__k.json",
                         "{\"child_paths\": {\"k.ttir\": \"/mnt/cache/" + key_directory + "/k.ttir\"}}"));
    ASSERT_TRUE(a.rename(staging, key_directory, process));
  };
  const std::string other = "triton/0/" + triton_key_of("other");
  stage(directory, kTorch);
  stage(other, kOtherTorch);
  EXPECT_TRUE(is_shared(a, directory + "/__grp__k.json"));
  EXPECT_FALSE(is_shared(a, other + "/__grp__k.json"));
}

TEST_F(WritersTest, GivesATritonSetTheScopeOfItsArchitecture) {
  HostOptions options = watched();
  options.architectures = "cc=8.0\ncc=9.0";
  Host a(cluster, options);
  Process torch;
  const std::string other = "triton/1/" + triton_key_of("other");
  const std::string absent = "triton/1/" + triton_key_of("absent");
  ASSERT_TRUE(a.triton_compile(directory, "first", torch.pid(), 90));
  ASSERT_TRUE(a.triton_compile(other, "first", torch.pid(), 80));
  ASSERT_TRUE(a.triton_compile(absent, "first", torch.pid(), 100));
  ASSERT_TRUE(is_shared(a, directory + "/k.ttir"));
  EXPECT_EQ(a.catalog->find(layout::canonical_path(directory) + "/k.ttir")->scope,
            scope_of(a, directory + "/k.ttir", "9.0"));
  EXPECT_FALSE(is_shared(a, absent + "/k.ttir"));
  EXPECT_EQ(a.inspection().status().foreign_reasons.size(), 1U) << "that this host has no such device";
  EXPECT_EQ(a.inspection().explain(directory + "/k.ttir").scope, scope_of(a, directory + "/k.ttir", "9.0"));

  options.architectures = "cc=9.0";
  Host b(cluster, options);
  ASSERT_TRUE(b.wait_for_entry(layout::canonical_path(directory) + "/k.ttir"));
  EXPECT_TRUE(b.exists(directory + "/__grp__k.json"));
  EXPECT_FALSE(b.exists(other + "/__grp__k.json")) << "of a device that it does not have";
}

TEST_F(WritersTest, KeepsWhatACrashLeftWithoutAMark) {
  HostOptions options = watched();
  Host a(cluster, options);
  const std::string path = code_path("crash");
  ASSERT_TRUE(a.make_directories(path.substr(0, 2)));
  ASSERT_TRUE(a.triton_compile(directory, "first", own_pid()));
  ASSERT_TRUE(a.sync());
  a.stop();
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, on_disk(a, path), "print()"));
  for (const char* name : {"k.json", "k.source", "k.ttir", "__grp__k.json"}) {
    ASSERT_EQ(::removexattr(on_disk(a, directory + "/" + name).c_str(), "user.inductorfs.sealed"), 0);
    ASSERT_EQ(::removexattr(on_disk(a, directory + "/" + name).c_str(), "user.inductorfs.scope"), 0);
  }
  a.start();
  EXPECT_FALSE(is_shared(a, path));
  EXPECT_EQ(a.read(path).value_or("absent"), "print()");
  EXPECT_TRUE(a.exists(directory + "/__grp__k.json"));
  const auto reasons = a.inspection().status().foreign_reasons;
  ASSERT_EQ(reasons.size(), 1U);
  EXPECT_NE(reasons.front().find("not known any more"), std::string::npos) << reasons.front();
  EXPECT_EQ(a.inspection().status().foreign, 5U);
}

TEST_F(WritersTest, SharesWhatACrashLeftWhereEverybodyMayWrite) {
  Host a(cluster);
  const std::string path = code_path("crash");
  ASSERT_TRUE(a.make_directories(path.substr(0, 2)));
  a.stop();
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, on_disk(a, path), "print()"));
  a.start();
  EXPECT_TRUE(is_shared(a, path));
}

TEST_F(WritersTest, SharesAfterARestartWhatWasMarkedAndNotSealed) {
  Host a(cluster, watched());
  const std::string path = code_path("placed");
  ASSERT_TRUE(a.make_directories(path.substr(0, 2)));
  ASSERT_TRUE(a.create(path, "print()"));  // in place: nothing shows that it is complete
  EXPECT_FALSE(is_shared(a, path));
  a.restart();
  EXPECT_TRUE(is_shared(a, path));
}

TEST_F(WritersTest, MarksFilesThatNobodyMayWriteTo) {
  Host a(cluster, watched());
  const std::string path = code_path("readonly");
  ASSERT_TRUE(a.publish_file(path, "print()", 0444));
  EXPECT_EQ(mark(a, path, "user.inductorfs.scope"), scope_of(a, path));
  EXPECT_EQ(a.look_up(path)->attributes.mode & 07777, 0444U);
}

TEST(Provenance, HoldsScopesOfSeveralNamesWithinALimit) {
  vfs::Provenance provenance;
  for (int i = 0; i < 40; ++i) provenance.add_scope("scope" + std::to_string(i));
  EXPECT_TRUE(provenance.is_for("scope39"));
  EXPECT_TRUE(provenance.is_for("scope38"));
  EXPECT_FALSE(provenance.is_for("scope0"));
  EXPECT_FALSE(provenance.is_for("scope"));
  EXPECT_FALSE(provenance.is_for(""));
  EXPECT_LT(provenance.scopes.size(), 100U);
}

TEST(Provenance, StaysPrivateAndBoundsItsReason) {
  vfs::Provenance provenance;
  provenance.add({"scope", {Match::kDiffers, std::string(10'000, 'x')}, nullptr});
  provenance.add({"scope", {Match::kMatches, {}}, nullptr});
  EXPECT_TRUE(provenance.is_private());
  EXPECT_FALSE(provenance.is_for("scope"));
  EXPECT_LE(provenance.why_private.size(), 512U);
}

TEST(Provenance, GivesUpOnTooManyWritersAtOnce) {
  vfs::Provenance provenance;
  for (int i = 0; i < 100; ++i) provenance.add({"scope", {Match::kLater, {}}, nullptr});
  EXPECT_TRUE(provenance.is_private());
  EXPECT_TRUE(provenance.unjudged.empty());
}

}  // namespace
}  // namespace inductorfs::testing
