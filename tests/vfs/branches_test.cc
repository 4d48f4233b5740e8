// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/branches.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "support/lacks.h"
#include "support/temporary_directory.h"
#include "vfs/host.h"
#include "vfs/tree/branch_paths.h"

/// Programs of several environments in one cache root: each is answered for its own.
namespace inductorfs::testing {
namespace {

constexpr pid_t kOld = 101;
constexpr pid_t kNew = 102;
constexpr pid_t kHidden = 103;
constexpr pid_t kShell = 104;
constexpr pid_t kLate = 105;

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

class BranchesTest : public ::testing::Test {
 protected:
  static HostOptions learning() {
    HostOptions options;
    options.jobs = {{kOld, "torch 2.9"}, {kNew, "torch 2.15"}, {kHidden, ""}, {kLate, FakeEnvironment::kNotYet}};
    return options;
  }
  static std::string publish(Host& host, pid_t process, const std::string& root, const std::string& seed) {
    host.act_as(process);
    const std::string path = in_code_directory(code_name(seed) + ".py");
    const std::string prefix = root.empty() ? std::string() : root + "/";
    EXPECT_TRUE(host.make_directories(prefix + path.substr(0, 2)));
    EXPECT_TRUE(host.publish_file(prefix + path, "print('" + seed + "')"));
    EXPECT_TRUE(host.sync());
    return path;
  }
  static std::string read_as(Host& host, pid_t process, const std::string& path) {
    host.act_as(process);
    return host.read(path).value_or("absent");
  }
  static bool lists(Host& host, pid_t process, const std::string& directory, const std::string& name) {
    host.act_as(process);
    const auto names = host.list(directory);
    return names && std::count(names->begin(), names->end(), name) == 1;
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
};

TEST_F(BranchesTest, ArePathsThatNobodySees) {
  const std::string branch = vfs::branch_name("0123456789abcdef");
  EXPECT_TRUE(vfs::is_branch_name(branch));
  EXPECT_EQ(vfs::environment_in("alice/" + branch + "/fxgraph/ab"), "0123456789abcdef");
  EXPECT_EQ(vfs::environment_in("alice/fxgraph"), "");
  EXPECT_EQ(vfs::shown_path("alice/" + branch + "/fxgraph/ab"), "alice/fxgraph/ab");
  EXPECT_EQ(vfs::shown_path(branch + "/fxgraph"), "fxgraph");
  EXPECT_EQ(vfs::shown_path("alice/" + branch), "alice");
  EXPECT_EQ(vfs::shown_path(branch), "");
  EXPECT_EQ(vfs::shown_path("alice/fxgraph"), "alice/fxgraph");
  EXPECT_EQ(vfs::root_of_branch("alice/" + branch), "alice");
  EXPECT_EQ(vfs::root_of_branch(branch), "");
  EXPECT_EQ(vfs::root_of_branch("alice"), "alice");
}

TEST_F(BranchesTest, BeginAtTheNamesOfALayout) {
  EXPECT_TRUE(vfs::is_first_name("", "fxgraph"));
  EXPECT_TRUE(vfs::is_first_name("alice/job", "ab"));
  EXPECT_TRUE(vfs::is_first_name("alice", triton_key_of("kernel")));
  EXPECT_FALSE(vfs::is_first_name("alice", "notes.txt"));
  EXPECT_FALSE(vfs::is_first_name("alice/fxgraph", "ab"));
  EXPECT_FALSE(vfs::is_first_name(vfs::branch_name("0123456789abcdef"), "fxgraph")) << "there is no branch of a branch";
  EXPECT_FALSE(vfs::is_first_name("a/b/c/d/e/f/g/h/i/j/k/l", "fxgraph")) << "too deep for a root in a root";
}

TEST_F(BranchesTest, KeepTwoEnvironmentsApart) {
  Host host(cluster, learning());
  ASSERT_TRUE(host.make_directories("job"));
  const std::string path = publish(host, kOld, "job", "old");
  EXPECT_EQ(read_as(host, kOld, "job/" + path), "print('old')");
  EXPECT_EQ(read_as(host, kNew, "job/" + path), "absent");
  host.act_as(kNew);
  ASSERT_TRUE(host.make_directories("job/" + path.substr(0, 2)));
  ASSERT_TRUE(host.publish_file("job/" + path, "print('new')"));
  EXPECT_EQ(read_as(host, kNew, "job/" + path), "print('new')");
  EXPECT_EQ(read_as(host, kOld, "job/" + path), "print('old')");
  EXPECT_FALSE(host.look_up("job/" + path.substr(0, 2))->keep) << "the kernel asks for each program anew";
  EXPECT_TRUE(host.look_up("job/" + path.substr(0, 2))->keep_attributes) << "they are one directory's";
  EXPECT_TRUE(host.look_up("job/" + path)->keep) << "below, it keeps what it kept";
}

TEST_F(BranchesTest, ShareWithTheirEnvironmentOnOtherHosts) {
  Host a(cluster, learning());
  Host b(cluster, learning());
  ASSERT_TRUE(a.make_directories("job"));
  ASSERT_TRUE(b.make_directories("team"));
  const std::string path = publish(a, kNew, "job", "new");
  b.act_as(kNew);
  (void)b.exists("team/fxgraph");  // torch's first question; the mount follows the environment from now on
  EXPECT_TRUE(eventually([&] { return read_as(b, kNew, "team/" + path) == "print('new')"; }));
  EXPECT_EQ(read_as(b, kOld, "team/" + path), "absent");
  EXPECT_EQ(read_as(b, kHidden, "team/" + path), "absent") << "who cannot be looked at gets nothing";
}

TEST_F(BranchesTest, OfTheMountpointShowWhatTheMountpointShowsToTheFirstJob) {
  Host a(cluster, learning());
  Host b(cluster, learning());
  const std::string path = publish(a, kNew, "", "new");
  // Nobody has asked for `fxgraph` there.
  EXPECT_TRUE(eventually([&] { return read_as(b, kNew, path) == "print('new')"; }));
  EXPECT_TRUE(lists(b, kNew, "", path.substr(0, 2)));
  EXPECT_EQ(read_as(b, kOld, path), "absent");
}

TEST_F(BranchesTest, ShowWhatAnEarlierRunHasLearnedBeforeAnythingElseIsAskedFor) {
  const std::string state = "job/dynamo/code_state_train_None_.pkl";
  Host a(cluster, learning());
  Host b(cluster, learning());
  ASSERT_TRUE(a.make_directories("job"));
  ASSERT_TRUE(b.make_directories("job"));
  a.act_as(kNew);
  ASSERT_TRUE(a.make_directories("job/dynamo"));
  ASSERT_TRUE(a.publish_file(state, "sizes"));
  ASSERT_TRUE(a.sync());
  EXPECT_TRUE(eventually([&] { return read_as(b, kNew, state) == "sizes"; }));
  EXPECT_EQ(read_as(b, kOld, state), "absent");
  b.act_as(kShell);
  ASSERT_TRUE(b.make_directories("job/project"));
  EXPECT_FALSE(b.exists("job/project/dynamo")) << "a program that is no job has a directory of its own there";
}

TEST_F(BranchesTest, ShareNothingOfWhoCannotBeLookedAt) {
  Host a(cluster, learning());
  ASSERT_TRUE(a.make_directories("job"));
  const std::string path = publish(a, kHidden, "job", "hidden");
  EXPECT_EQ(read_as(a, kHidden, "job/" + path), "print('hidden')") << "a program meets what it wrote";
  EXPECT_EQ(a.count("publish.published"), 0U);
  EXPECT_EQ(a.inspection().explain("job/" + path).scope, "");
}

TEST_F(BranchesTest, ShowNothingToAProgramBeforeItIsKnown) {
  Host host(cluster, learning());
  ASSERT_TRUE(host.make_directories("job"));
  const std::string path = publish(host, kHidden, "job", "hidden");
  EXPECT_EQ(read_as(host, kLate, "job/" + path), "absent") << "it could go on writing there, and be known then";
  EXPECT_FALSE(lists(host, kLate, "job", path.substr(0, 2)));
  host.act_as(kLate);
  EXPECT_EQ(host.make_directory("job/" + path.substr(0, 2)).error().code(), ErrorCode::kExists)
      << "what makes something has to be known, or counts as not known from then on";
}

TEST_F(BranchesTest, AreOneDirectoryToAProgramWithoutAnEnvironment) {
  Host host(cluster, learning());
  ASSERT_TRUE(host.make_directories("job"));
  const std::string old_path = publish(host, kOld, "job", "old");
  const std::string new_path = publish(host, kNew, "job", "new");
  EXPECT_EQ(read_as(host, kShell, "job/" + old_path), "print('old')");
  EXPECT_EQ(read_as(host, kShell, "job/" + new_path), "print('new')");
  EXPECT_TRUE(lists(host, kShell, "job", old_path.substr(0, 2)));
  EXPECT_TRUE(lists(host, kShell, "job", new_path.substr(0, 2)));
  EXPECT_TRUE(lists(host, kNew, "job", new_path.substr(0, 2)));
  ASSERT_NE(old_path.substr(0, 2), new_path.substr(0, 2));
  EXPECT_FALSE(lists(host, kNew, "job", old_path.substr(0, 2)));
  host.act_as(kShell);
  const auto names = host.list("job");
  ASSERT_TRUE(names);
  EXPECT_TRUE(std::none_of(names->begin(), names->end(), [](const auto& name) { return vfs::is_branch_name(name); }));
  EXPECT_EQ(host.make_directory("job/" + vfs::branch_name("0123456789abcdef")).error().code(),
            ErrorCode::kNotPermitted);
  EXPECT_FALSE(host.exists("job/" + vfs::branch_name("unknown")));
  EXPECT_EQ(host.inspection().explain("job/" + new_path).path, "job/" + new_path);
  EXPECT_TRUE(host.inspection().explain("job/" + new_path).visible);
}

TEST_F(BranchesTest, GoWithTheirRoot) {
  Host host(cluster, learning());
  ASSERT_TRUE(host.make_directories("job"));
  const std::string path = publish(host, kOld, "job", "same");
  (void)publish(host, kNew, "job", "same");
  host.act_as(kShell);
  EXPECT_FALSE(host.remove_directory("job"));
  ASSERT_TRUE(host.unlink("job/" + path));
  ASSERT_TRUE(host.remove_directory("job/" + path.substr(0, 2))) << "as rm -rf does";
  ASSERT_TRUE(host.remove_directory("job")) << "what was one name to the shell went for everybody";
  EXPECT_FALSE(host.exists("job"));
  ASSERT_TRUE(host.make_directory("job"));
  host.act_as(kOld);
  EXPECT_FALSE(lists(host, kOld, "job", path.substr(0, 2)));
}

TEST_F(BranchesTest, GoWithTheirRootAlthoughTheClusterHasMoreInThem) {
  Host a(cluster, learning());
  ASSERT_TRUE(a.make_directories("job"));
  const std::string path = publish(a, kOld, "job", "same");
  (void)publish(a, kNew, "job", "same");
  Host b(cluster, learning());
  ASSERT_TRUE(b.make_directories("team"));
  for (const pid_t process : {kOld, kNew}) {
    b.act_as(process);
    (void)b.exists("team/fxgraph");
    ASSERT_TRUE(eventually([&] { return b.exists("team/" + path); })) << process;
  }
  b.act_as(kShell);
  ASSERT_TRUE(b.exists("team/" + path));
  ASSERT_TRUE(b.unlink("team/" + path));
  const std::string above = "team/" + path.substr(0, 2);
  ASSERT_TRUE(b.remove_directory(above)) << "the kernel looks the name up once more";
  ASSERT_TRUE(b.remove_directory("team"));
}

TEST_F(BranchesTest, LoseToAShellWhatTheClusterHasForEachOfThem) {
  Host a(cluster, learning());
  Host b(cluster, learning());
  const std::string key = triton_key_of("kernel");
  ASSERT_TRUE(a.make_directories("kernels") && b.make_directories("kernels"));
  const std::string path = publish(a, kOld, "", "same");
  ASSERT_EQ(publish(a, kNew, "", "same"), path);
  const auto both = [&](Host& host, pid_t process) {
    const bool has_code = read_as(host, process, path) != "absent";
    return has_code + host.look_up("kernels/" + key + "/__grp__k.json", process).has_value();
  };
  for (const pid_t process : {kOld, kNew}) {
    a.act_as(process);
    ASSERT_TRUE(a.triton_compile("kernels/" + key, std::to_string(process), process));
    ASSERT_TRUE(a.sync());
    ASSERT_TRUE(eventually([&] { return both(b, process) == 2; })) << process;
  }
  b.restart();  // nothing is known any more, as when a kernel needs memory
  for (const auto& [directory, name] : {std::pair(path.substr(0, 2), last_part(path)), {"kernels/" + key, "k.json"}}) {
    ASSERT_TRUE(lists(b, kShell, directory.starts_with("kernels") ? "kernels" : "", last_part(directory)));
    ASSERT_TRUE(eventually([&] { return lists(b, kShell, directory, name); }));
    const auto names = b.list(directory).value();
    for (const auto& each : names) ASSERT_TRUE(b.unlink(std::string(directory).append("/").append(each)));
    ASSERT_TRUE(b.remove_directory(directory));
  }
  EXPECT_EQ(both(b, kOld), 0);
  EXPECT_EQ(both(b, kNew), 0);
  EXPECT_EQ(both(a, kOld), 2);
  EXPECT_EQ(both(a, kNew), 2);
}

/// TRITON_CACHE_DIR below the mountpoint, as `inductorfs env` prints it: Triton's keys stand directly in a root, and
/// after each put Triton removes the key directory, and those above it, as far as they are empty (os.removedirs).
TEST_F(BranchesTest, HoldAKernelThatIsBeingPut) {
  Host host(cluster, learning());
  for (const std::string directory : {"triton_cache", "alice/triton_cache", "kernels", "x/y/z", ""}) {
    const std::string key = (directory.empty() ? "" : directory + "/") + triton_key_of("kernel");
    host.act_as(kOld);
    ASSERT_TRUE(host.triton_put(key, "k.ttir", "first wrote k.ttir", kOld)) << directory;
    EXPECT_FALSE(host.remove_directory(key)) << directory;
    host.act_as(kShell);
    EXPECT_FALSE(host.remove_directory(key)) << directory;
    if (!directory.empty()) {
      EXPECT_FALSE(host.remove_directory(directory)) << directory;
    }
    host.act_as(kOld);
    ASSERT_TRUE(host.triton_compile(key, "first", kOld)) << directory;
    EXPECT_EQ(host.read(key + "/k.ttir", kOld).value_or("absent"), "first wrote k.ttir") << directory;
    EXPECT_TRUE(host.look_up(key + "/__grp__k.json", kOld)) << directory;
  }
}

TEST_F(BranchesTest, KeepWhatBelongsToAnotherUser) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root, who alone gives files away");
  constexpr uid_t kAlice = 1001;
  constexpr uid_t kBob = 1002;
  HostOptions options = learning();
  options.chown_to_caller = true;
  Host host(cluster, options);
  host.act_as(kShell);
  ASSERT_TRUE(host.make_directory("job", 01777));
  host.user = kBob;
  const std::string path = publish(host, kOld, "job", "same");
  host.user = kAlice;
  ASSERT_EQ(publish(host, kNew, "job", "same"), path);
  host.act_as(kShell);
  const std::string above = "job/" + path.substr(0, 2);
  ASSERT_TRUE(host.unlink("job/" + path));
  ASSERT_TRUE(host.remove_directory(above));
  EXPECT_EQ(read_as(host, kOld, "job/" + path), "print('same')") << "bob's, whom alice cannot take it from";
}

TEST_F(BranchesTest, GoWhenAProgramRemovesARootThatItHasEmptied) {
  Host host(cluster, learning());
  ASSERT_TRUE(host.make_directories("job"));
  const std::string path = publish(host, kOld, "job", "old");
  host.act_as(kNew);
  EXPECT_FALSE(host.remove_directory("job")) << "it has removed nothing there";
  (void)host.exists("job/fxgraph");
  EXPECT_FALSE(host.remove_directory("job")) << "nor by a look";
  EXPECT_EQ(read_as(host, kOld, "job/" + path), "print('old')");
  host.act_as(kNew);
  ASSERT_TRUE(host.make_directory("job/fxgraph"));
  ASSERT_TRUE(host.remove_directory("job/fxgraph"));
  ASSERT_TRUE(host.remove_directory("job")) << "what it had there is gone";
  EXPECT_EQ(read_as(host, kOld, "job/" + path), "absent");
}

TEST_F(BranchesTest, LoseNothingByARemovalThatFails) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root, who alone gives files away");
  HostOptions options = learning();
  options.chown_to_caller = true;
  Host host(cluster, options);
  host.act_as(kShell);
  ASSERT_TRUE(host.make_directory("job", 01777));
  host.user = 1001;
  const std::string mine = publish(host, kOld, "job", "mine");
  host.user = 1002;
  (void)publish(host, kHidden, "job", "another's");
  host.user = 1001;
  host.act_as(kNew);
  ASSERT_TRUE(host.make_directory("job/fxgraph"));
  ASSERT_TRUE(host.remove_directory("job/fxgraph"));
  EXPECT_FALSE(host.remove_directory("job"));
  EXPECT_EQ(read_as(host, kOld, "job/" + mine), "print('mine')");
}

TEST_F(BranchesTest, AreNotFilledByLooks) {
  constexpr pid_t kFirst = 1000;
  HostOptions options = learning();
  for (pid_t process = kFirst; process < kFirst + 2 * static_cast<pid_t>(vfs::Branches::kMost); ++process) {
    options.jobs[process] = "torch " + std::to_string(process);
  }
  Host other(cluster, options);
  Host host(cluster, options);
  ASSERT_TRUE(host.make_directories("job"));
  const std::string shown = in_code_directory(code_name("same") + ".py");
  const auto has_some = [](pid_t process) { return process >= kFirst && process % 2 == 0; };
  for (const auto& [process, facts] : options.jobs) {
    if (!has_some(process)) continue;
    other.act_as(process);
    const std::string root = "job" + std::to_string(process % 4) + "/";
    ASSERT_TRUE(other.make_directories(root + shown.substr(0, 2)) && other.publish_file(root + shown, "same"));
  }
  ASSERT_TRUE(other.sync());
  for (const auto& [process, facts] : options.jobs) {
    host.act_as(process);
    EXPECT_FALSE(host.exists("job/fxgraph"));
    EXPECT_TRUE(!has_some(process) || eventually([&] { return host.exists("job/" + shown); })) << process;
  }
  const std::string path = publish(host, kNew, "job", "new");
  EXPECT_EQ(host.count("view.too_many_environments"), 0U);
  EXPECT_EQ(read_as(host, kNew, "job/" + path), "print('new')");
  EXPECT_GT(host.count("publish.published"), 0U);
}

TEST_F(BranchesTest, AreNotLeftBehindByARename) {
  Host host(cluster, learning());
  host.act_as(kShell);
  ASSERT_TRUE(host.make_directories("job/fxgraph"));
  ASSERT_TRUE(host.make_directories("other"));
  host.act_as(kNew);
  ASSERT_TRUE(host.make_directory("job/fxgraph/ab"));
  const std::string path = publish(host, kNew, "other", "new");
  host.act_as(kShell);
  EXPECT_EQ(host.rename("job/fxgraph", "job/fxgraph.old").error().code(), ErrorCode::kCrossDevice);
  EXPECT_EQ(host.rename("other", "job/fxgraph/root").error().code(), ErrorCode::kCrossDevice);
  ASSERT_TRUE(host.rename("other", "another")) << "a root takes them with it";
  EXPECT_EQ(read_as(host, kNew, "another/" + path), "print('new')");
}

TEST_F(BranchesTest, GoWithTheirRootUnderAnotherPolicyToo) {
  const TemporaryDirectory store;
  HostOptions options = learning();
  options.store = store.path() + "/store";
  {
    Host before(cluster, options);
    ASSERT_TRUE(before.make_directories("job"));
    (void)publish(before, kNew, "job", "new");
  }
  HostOptions declared;
  declared.store = options.store;
  Host after(cluster, declared);
  ASSERT_TRUE(after.exists("job"));
  EXPECT_TRUE(after.remove_directory("job")) << "it looks empty";
  EXPECT_FALSE(after.exists("job"));
}

TEST_F(BranchesTest, GoAlthoughTheyShowWhatNobodyHasFetched) {
  Host a(cluster, learning());
  ASSERT_TRUE(a.make_directories("job"));
  const std::string path = publish(a, kOld, "job", "far");
  Host b(cluster, learning());
  ASSERT_TRUE(b.make_directories("team"));
  b.act_as(kOld);
  (void)b.exists("team/fxgraph");
  const std::string above = "team/" + path.substr(0, 2);
  ASSERT_TRUE(eventually([&] { return b.exists(above); }));
  ASSERT_TRUE(b.create(above + "/own", "local"));
  b.act_as(kNew);
  ASSERT_TRUE(b.make_directory(above));
  b.act_as(kShell);
  ASSERT_TRUE(b.remove_directory(above)) << "the one that was used last";
  ASSERT_TRUE(b.remove_directory("team"));
}

TEST_F(BranchesTest, AreNotWhatAnotherProgramCallsSo) {
  HostOptions declared;
  Host host(cluster, declared);
  ASSERT_TRUE(host.make_directory("job"));
  const std::string branch = "job/" + vfs::branch_name(vfs::unknown_environment(::getuid()));
  EXPECT_EQ(host.make_directory(branch).error().code(), ErrorCode::kNotPermitted) << "the next mount may learn";
  EXPECT_EQ(host.create(branch, "file").error().code(), ErrorCode::kNotPermitted);
  ASSERT_TRUE(host.make_directory("job/mine"));
  EXPECT_EQ(host.rename("job/mine", branch).error().code(), ErrorCode::kNotPermitted);
  EXPECT_FALSE(host.exists(branch));
}

TEST_F(BranchesTest, AreLookedForInEachPath) {
  Host host(cluster, learning());
  for (const char* path : {"", "/", "//fxgraph", "/job/fxgraph/", "job//", "job/./ab"}) {
    EXPECT_EQ(host.inspection().explain(path).path, path);
  }
}

TEST_F(BranchesTest, LeaveWhatWasThereBeforeToEverybody) {
  Host host(cluster, learning());
  host.act_as(kShell);
  ASSERT_TRUE(host.make_directories("job/ml"));
  ASSERT_TRUE(host.create("job/ml/notes", "mine"));
  EXPECT_EQ(read_as(host, kNew, "job/ml/notes"), "mine");
  EXPECT_EQ(read_as(host, kOld, "job/ml/notes"), "mine");
}

TEST_F(BranchesTest, KeepEnvironmentsApartInADirectoryThatIsEverybodys) {
  Host host(cluster, learning());
  const std::string path = in_code_directory(code_name("same") + ".py");
  const std::string above = "job/" + path.substr(0, 2);
  host.act_as(kShell);
  ASSERT_TRUE(host.make_directories(above));
  ASSERT_TRUE(host.create(above + "/notes", "mine"));
  for (const auto& [process, text] : {std::pair{kOld, "old"}, {kNew, "new"}, {kHidden, "hidden"}}) {
    host.act_as(process);
    EXPECT_FALSE(host.exists("job/" + path)) << text;
    ASSERT_TRUE(host.publish_file("job/" + path, text)) << text;
    EXPECT_EQ(host.read("job/" + path).value_or("absent"), text);
    EXPECT_FALSE(host.look_up("job/" + path)->keep) << "the kernel asks for each program anew";
    EXPECT_EQ(read_as(host, process, above + "/notes"), "mine");
  }
  EXPECT_EQ(read_as(host, kOld, "job/" + path), "old");
  ASSERT_TRUE(host.sync());
  EXPECT_TRUE(lists(host, kNew, above, last_part(path)));
  EXPECT_TRUE(lists(host, kNew, above, "notes"));
  EXPECT_TRUE(lists(host, kShell, above, last_part(path)));
  Host other(cluster, learning());
  other.act_as(kShell);
  ASSERT_TRUE(other.make_directories(above));
  other.act_as(kNew);
  EXPECT_TRUE(eventually([&] { return read_as(other, kNew, "job/" + path) == "new"; })) << "it was published";
  EXPECT_EQ(read_as(other, kOld, "job/" + path), "old");
  EXPECT_EQ(read_as(other, kHidden, "job/" + path), "absent");
}

TEST_F(BranchesTest, KeepEnvironmentsApartInFurtherPlaces) {
  HostOptions options = learning();
  options.further_places = {"precompiled_headers", "cache/should_pad"};
  Host host(cluster, options);
  const std::string code = code_name("header") + ".h";
  host.act_as(kOld);
  (void)host.exists("fxgraph");  // there is a branch before the place is made
  host.act_as(kShell);
  ASSERT_TRUE(host.make_directory("precompiled_headers", 0700)) << "as the daemon makes it";
  ASSERT_TRUE(host.make_directories("cache/should_pad"));
  for (const auto& [process, text] : {std::pair{kOld, "old"}, {kNew, "new"}}) {
    host.act_as(process);
    ASSERT_TRUE(host.make_directory("precompiled_headers/ab")) << text;
    ASSERT_TRUE(host.create("precompiled_headers/ab/" + code, text));
    ASSERT_TRUE(host.create("cache/should_pad/one", text));
  }
  EXPECT_EQ(read_as(host, kOld, "precompiled_headers/ab/" + code), "old");
  EXPECT_EQ(read_as(host, kNew, "precompiled_headers/ab/" + code), "new");
  EXPECT_EQ(read_as(host, kOld, "cache/should_pad/one"), "old");
  EXPECT_EQ(host.look_up("precompiled_headers", kOld)->node, host.look_up("precompiled_headers", kNew)->node)
      << "the place shows one directory";
  host.act_as(kNew);
  EXPECT_EQ(host.look_up("precompiled_headers")->attributes.mode & 07777, 0700U);
}

TEST_F(BranchesTest, TakeNobodyElseForTheBuilderOfAHeader) {
  HostOptions options = learning();
  options.further_places = {"precompiled_headers"};
  Host host(cluster, options);
  host.act_as(kShell);
  ASSERT_TRUE(host.make_directory("precompiled_headers"));
  host.act_as(kOld);
  const std::string header = "precompiled_headers/" + code_name("header") + ".h";
  ASSERT_TRUE(host.make_directory(header + "_CxxBuild"));
  ASSERT_TRUE(host.create(header + ".gch", "compiled"));
  ASSERT_TRUE(host.remove_directory(header + "_CxxBuild"));
  EXPECT_EQ(host.count("writers.other_namespace"), 0U) << "the daemon takes its own directories away for the program";
  EXPECT_EQ(read_as(host, kOld, header + ".gch"), "compiled");
}

TEST_F(BranchesTest, ArePartedAfterAMountThatKnewOneEnvironment) {
  const TemporaryDirectory store;
  HostOptions declared;
  declared.store = store.path() + "/store";
  const std::string path = in_code_directory(code_name("before") + ".py");
  const std::string above = path.substr(0, 2);
  {
    Host before(cluster, declared);
    ASSERT_TRUE(before.make_directories(above));
    ASSERT_TRUE(before.publish_file(path, "of no environment that is known"));
    ASSERT_TRUE(before.make_directories("alice/fxgraph/ab"));
    ASSERT_TRUE(before.make_directories("alice/notes"));
    ASSERT_TRUE(before.sync());
  }
  HostOptions now = learning();
  now.store = declared.store;
  now.facts = "of no job";
  Host after(cluster, now);
  EXPECT_EQ(read_as(after, kOld, path), "absent") << "it was made for other facts";
  after.act_as(kShell);
  EXPECT_FALSE(after.exists(above)) << "nothing is in it";
  EXPECT_FALSE(after.exists("alice/fxgraph"));
  EXPECT_TRUE(after.exists("alice/notes")) << "a directory of the user's stays";
  after.act_as(kOld);
  ASSERT_TRUE(after.make_directory(above));
  ASSERT_TRUE(after.publish_file(path, "old"));
  EXPECT_EQ(read_as(after, kNew, path), "absent");
}

TEST_F(BranchesTest, AreNotWhereAProgramWithoutAnEnvironmentPutsThings) {
  Host host(cluster, learning());
  ASSERT_TRUE(host.make_directories("job"));
  const std::string path = publish(host, kOld, "job", "old");
  (void)publish(host, kNew, "job", "new");
  const std::string copied = in_code_directory(code_name("copied") + ".py");
  host.act_as(kShell);
  ASSERT_NE(copied.substr(0, 2), path.substr(0, 2));
  ASSERT_TRUE(host.make_directories("job/" + copied.substr(0, 2)));
  ASSERT_TRUE(host.create("job/" + copied, "copied"));
  EXPECT_EQ(read_as(host, kOld, "job/" + copied), "copied") << "everybody's";
  EXPECT_EQ(read_as(host, kNew, "job/" + copied), "copied");
  // What it moves keeps its environment.
  ASSERT_TRUE(host.make_directories("next"));
  host.act_as(kNew);
  (void)host.exists("next/fxgraph");
  host.act_as(kShell);
  ASSERT_TRUE(host.rename("job/" + path.substr(0, 2), "next/" + path.substr(0, 2)));
  EXPECT_EQ(read_as(host, kOld, "next/" + path), "print('old')");
  EXPECT_EQ(read_as(host, kNew, "next/" + path), "absent");
}

TEST_F(BranchesTest, AreOnesUsersOwnWhereNothingIsKnown) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root, who alone gives files away");
  constexpr uid_t kAlice = 1001;
  constexpr uid_t kBob = 1002;
  HostOptions options = learning();
  options.chown_to_caller = true;
  Host host(cluster, options);
  host.act_as(kShell);
  ASSERT_TRUE(host.make_directory("job", 01777));
  host.user = kAlice;
  const std::string path = publish(host, kHidden, "job", "hers");
  host.user = kBob;
  EXPECT_EQ(read_as(host, kHidden, "job/" + path), "absent");
  ASSERT_EQ(publish(host, kHidden, "job", "hers"), path) << "as if nobody had it";
}

TEST_F(BranchesTest, AreStillThereForTheNextWorkerAndTheNextMount) {
  Host host(cluster, learning());
  ASSERT_TRUE(host.make_directories("job"));
  const std::string path = publish(host, kOld, "job", "old");
  host.act_as(kOld);
  const auto before = host.look_up("job/" + path);
  ASSERT_TRUE(before);
  host.take_over();
  EXPECT_EQ(read_as(host, kOld, "job/" + path), "print('old')");
  EXPECT_EQ(host.look_up("job/" + path)->node, before->node);
  EXPECT_EQ(read_as(host, kNew, "job/" + path), "absent");
  host.restart();
  EXPECT_EQ(read_as(host, kOld, "job/" + path), "print('old')");
  EXPECT_EQ(read_as(host, kShell, "job/" + path), "print('old')");
}

TEST_F(BranchesTest, RenderTritonsGroupsForThePathThatProgramsSee) {
  Host a(cluster, learning());
  Host b(cluster, learning());
  const std::string key = triton_key_of("kernel");
  a.act_as(kNew);
  ASSERT_TRUE(a.make_directories("job/triton/0"));
  ASSERT_TRUE(a.triton_compile("job/triton/0/" + key, "first", kNew));
  ASSERT_TRUE(a.sync());
  b.act_as(kNew);
  ASSERT_TRUE(b.make_directories("team"));
  (void)b.exists("team/fxgraph");
  ASSERT_TRUE(eventually([&] { return b.exists("team/triton/0/" + key + "/__grp__k.json"); }));
  const auto group = b.read("team/triton/0/" + key + "/__grp__k.json", kNew);
  ASSERT_TRUE(group);
  EXPECT_NE(group->find("\"/mnt/cache/team/triton/0/" + key + "/k.ttir\""), std::string::npos) << *group;
}

TEST_F(BranchesTest, AreLimited) {
  constexpr pid_t kFirst = 1000;
  constexpr pid_t kOneTooMany = kFirst + static_cast<pid_t>(vfs::Branches::kMost);
  HostOptions options = learning();
  for (pid_t process = kFirst; process <= kOneTooMany; ++process) {
    options.jobs[process] = "torch " + std::to_string(process);
  }
  Host host(cluster, options);
  ASSERT_TRUE(host.make_directories("job"));
  for (pid_t process = kFirst; process <= kOneTooMany; ++process) {
    EXPECT_EQ(host.count("view.too_many_environments"), 0U) << process;
    host.act_as(process);
    ASSERT_TRUE(host.make_directory("job/fxgraph")) << process;
    ASSERT_TRUE(host.exists("job/fxgraph")) << process;
  }
  EXPECT_EQ(host.count("view.too_many_environments"), 1U) << "it is turned away once, and stays where it is";
  EXPECT_TRUE(lists(host, kOneTooMany, "job", "fxgraph")) << "what it made";
}

TEST_F(BranchesTest, StayWhenTheirRootGetsAnotherOwner) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root, who alone gives files away");
  Host host(cluster, learning());
  ASSERT_TRUE(host.make_directories("job"));
  const std::string path = publish(host, kOld, "job", "old");
  const auto root = host.look_up("job");
  ASSERT_TRUE(root);
  vfs::AttributeChange change;
  change.uid = 1001;
  ASSERT_TRUE(host.attributes().set_attributes(root->node, change, {0, 0, kShell}));
  EXPECT_EQ(read_as(host, kOld, "job/" + path), "print('old')");
}

TEST_F(BranchesTest, ShowNoDirectoryThatAnotherEnvironmentHasListed) {
  Host a(cluster, learning());
  ASSERT_TRUE(a.make_directories("alice"));
  for (const std::string root : {"", "alice"}) {
    const std::string directory = root.empty() ? "fxgraph" : root + "/fxgraph";
    a.act_as(kOld);
    ASSERT_TRUE(a.make_directories(directory));
    ASSERT_TRUE(lists(a, kOld, root, "fxgraph"));
    a.act_as(kNew);
    EXPECT_FALSE(a.exists(directory)) << "it would find a directory of the daemon's, and not make its own";
  }
}

}  // namespace
}  // namespace inductorfs::testing
