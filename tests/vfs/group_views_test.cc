// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/group_views.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <map>
#include <utility>

#include "vfs/host.h"

/// Group files for processes that see the mount at different paths, with a kernel that keeps names.
namespace inductorfs::testing {
namespace {

constexpr pid_t kHere = 1'000'001;
constexpr pid_t kContainer = 1'000'002;
constexpr pid_t kOther = 1'000'003;

/// The names that a kernel keeps: it asks for those that it does not have or may not keep, and for each one that a
/// process makes (mkdir), and gives its references back when it drops a name. Safe for concurrent use.
class KernelNames {
 public:
  explicit KernelNames(Host& host) : host_(host) {
    host_.kernel.on_name = [this](vfs::NodeId parent, const std::string& name) { drop({parent, name}); };
  }
  ~KernelNames() { host_.kernel.on_name = nullptr; }

  /// Names that a process has open are not dropped.
  void hold(bool held) {
    state_.with([&](State& state) { state.held = held; });
  }
  [[nodiscard]] size_t asked() const {
    return state_.with([](const State& state) { return state.asked; });
  }
  Result<vfs::Found> look_up(const std::string& path, pid_t process, bool makes = false) {
    vfs::Found found;
    found.node = vfs::kRootNode;
    std::string_view rest = path;
    while (!rest.empty()) {
      const size_t slash = rest.find('/');
      const Name name{found.node, std::string(rest.substr(0, slash))};
      const bool is_last = slash == std::string_view::npos;
      auto next = step(name, process, makes && is_last);
      if (!next) return next;
      found = *next;
      rest = is_last ? std::string_view{} : rest.substr(slash + 1);
    }
    return found;
  }
  std::string read(vfs::NodeId node) {
    std::string bytes(4096, '\0');
    const auto got = host_.data().read(node, bytes.data(), bytes.size(), 0);
    bytes.resize(got.value_or(0));
    return got ? bytes : got.error().to_string();
  }
  /// Triton's FileCacheManager (os.makedirs) and its get_group: the text of the group file.
  std::string get_group(const std::string& directory, pid_t process) {
    const bool made = look_up(directory, process, true) || host_.make_directories(directory);
    EXPECT_TRUE(made);
    const auto found = look_up(directory + "/__grp__k.json", process);
    return found ? read(found->node) : "absent: " + found.error().to_string();
  }
  /// Says whether get_group() comes to ask for the key directory alone. The notice of a change that came before, or of
  /// a file that was sealed, may drop a name once more.
  bool keeps(const std::string& directory, pid_t process, const std::string& text) {
    return eventually([&] {
      const size_t before = asked();
      return get_group(directory, process) == text && asked() == before + 1;
    });
  }

 private:
  using Name = std::pair<vfs::NodeId, std::string>;
  struct Kept {
    vfs::Found found;
    uint64_t references = 0;
  };
  struct State {
    std::map<Name, Kept> names;
    size_t asked = 0;
    bool held = false;
  };

  Result<vfs::Found> ask(const Name& name, pid_t process) {
    state_.with([](State& state) { ++state.asked; });
    std::promise<vfs::LookupAnswer> promise;
    host_.names().lookup(name.first, name.second, {::getuid(), ::getgid(), process},
                         [&](vfs::LookupAnswer answer) { promise.set_value(std::move(answer)); });
    return promise.get_future().get().found;
  }
  Result<vfs::Found> step(const Name& name, pid_t process, bool makes) {
    auto kept = state_.with([&](const State& state) -> std::optional<Kept> {
      const auto known = state.names.find(name);
      return known == state.names.end() ? std::nullopt : std::optional(known->second);
    });
    if (kept && kept->found.keep && !makes) return kept->found;
    auto now = ask(name, process);
    if (kept && (!now || now->node != kept->found.node)) {
      drop(name);
      if (now) host_.names().forget(now->node, 1);  // the name is no longer valid: the kernel asks again
      now = ask(name, process);
    }
    if (!now) return now;
    state_.with([&](State& state) {
      Kept& entry = state.names[name];
      entry.found = *now;
      ++entry.references;
    });
    return now;
  }
  void drop(const Name& name) {
    const auto dropped = state_.with([&](State& state) -> std::optional<Kept> {
      const auto known = state.names.find(name);
      if (known == state.names.end() || state.held) return std::nullopt;
      const Kept kept = known->second;
      state.names.erase(known);
      return kept;
    });
    if (dropped) host_.names().forget(dropped->found.node, dropped->references);
  }

  Host& host_;
  mutable Guarded<State> state_;
};

class GroupViewsTest : public ::testing::Test {
 protected:
  GroupViewsTest() {
    views->set(kContainer, "/cache");
    options.views = views;
    options.forget_wait = Milliseconds(1500);  // a busy host is late with what the kernel does at once
  }
  void publish(const std::string& where) {
    Host writer(cluster);
    ASSERT_TRUE(writer.make_directories(where));
    ASSERT_TRUE(writer.triton_compile(where, "first", own_pid()));
    ASSERT_TRUE(writer.sync());
  }
  /// What put_group writes for a process that sees the key directory there.
  static std::string group_at(const std::string& directory) {
    std::string text;
    for (const char* name : {"k.json", "k.ttir", "k.source"}) {
      text += (text.empty() ? "" : ", ") + ("\"" + std::string(name)) + "\": \"" + directory + "/" + name + "\"";
    }
    return "{\"child_paths\": {" + text + "}}";
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  std::shared_ptr<FakeViews> views = std::make_shared<FakeViews>("/mnt/cache");
  HostOptions options;
  const std::string key = triton_key_of("kernel");
  const std::string directory = "triton/0/" + key;
  const std::string entry = "triton/@/" + key + "/__grp__k.json";
  const std::string here = group_at("/mnt/cache/" + directory);
  const std::string there = group_at("/cache/" + directory);
};

TEST_F(GroupViewsTest, NameThePathsThatTheProcessSees) {
  publish(directory);
  Host host(cluster, options);
  ASSERT_TRUE(host.wait_for_entry(entry));
  KernelNames kernel(host);
  EXPECT_EQ(kernel.get_group(directory, kContainer), there);
  EXPECT_EQ(kernel.get_group(directory, kHere), here);
  EXPECT_EQ(kernel.get_group("triton/3/" + key, kContainer), group_at("/cache/triton/3/" + key));
}

TEST_F(GroupViewsTest, KnowAProcessThatSeesADirectoryAlone) {
  publish(directory);
  views->set(kOther, "/scratch", "alice/triton");
  views->set(kContainer, "/cache", "alice");
  Host host(cluster, options);
  ASSERT_TRUE(host.wait_for_entry(entry));
  ASSERT_TRUE(host.make_directory("alice"));
  KernelNames kernel(host);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(kernel.get_group("alice/" + directory, kContainer), there);
    EXPECT_EQ(kernel.get_group("alice/" + directory, kOther), group_at("/scratch/0/" + key));
    EXPECT_EQ(kernel.get_group("alice/" + directory, 0), group_at("/mnt/cache/alice/" + directory));
  }
}

TEST_F(GroupViewsTest, AreKeptByTheKernelForTheFirstView) {
  publish(directory);
  Host host(cluster, options);
  ASSERT_TRUE(host.wait_for_entry(entry));
  KernelNames kernel(host);
  ASSERT_EQ(kernel.get_group(directory, kContainer), there);
  EXPECT_TRUE(kernel.keeps(directory, kContainer, there)) << "the key directory that Triton makes, and nothing else";
  EXPECT_EQ(host.count("triton.views_met"), 0U);
}

TEST_F(GroupViewsTest, AreForgottenWhenAnotherViewComes) {
  publish(directory);
  Host host(cluster, options);
  ASSERT_TRUE(host.wait_for_entry(entry));
  KernelNames kernel(host);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(kernel.get_group(directory, kHere), here);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(kernel.get_group(directory, kContainer), there);
    EXPECT_EQ(kernel.get_group(directory, kHere), here);
  }
  EXPECT_EQ(host.count("triton.views_met"), 1U) << "the kernel keeps none from then on";
  EXPECT_FALSE(kernel.look_up(directory + "/__grp__k.json", kHere)->keep);
  EXPECT_TRUE(kernel.look_up(directory + "/k.ttir", kHere)->keep) << "other files are the same for everybody";
}

TEST_F(GroupViewsTest, WaitForTheKernelOnlySoLong) {
  publish(directory);
  options.forget_wait = vfs::kForgetWait;
  Host host(cluster, options);
  ASSERT_TRUE(host.wait_for_entry(entry));
  KernelNames kernel(host);
  ASSERT_EQ(kernel.get_group(directory, kHere), here);
  kernel.hold(true);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(kernel.look_up(directory, kContainer, true));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, vfs::kForgetWait);
  EXPECT_TRUE(kernel.look_up(directory, kContainer, true));
  EXPECT_EQ(host.count("triton.views_met"), 1U) << "it waits once";
}

TEST_F(GroupViewsTest, NameThePathsOfAProcessInASetOfThisHost) {
  Host host(cluster, options);
  ASSERT_TRUE(host.triton_compile(directory, "first", kContainer));
  KernelNames kernel(host);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(kernel.get_group(directory, kContainer), there);
    EXPECT_EQ(kernel.get_group(directory, kHere), here);
  }
  const auto local = kernel.look_up(directory + "/__grp__k.json", kContainer);
  const auto other = kernel.look_up(directory + "/__grp__k.json", kHere);
  ASSERT_TRUE(local);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->attributes.mode, local->attributes.mode);
  EXPECT_EQ(other->attributes.size, here.size());
}

/// The kernel keeps a name that a request made, without a lookup that would tell the daemon.
TEST_F(GroupViewsTest, AreForgottenAlsoWhenARequestNamedThem) {
  const auto in_place = [&](Host& host) { return host.create(directory + "/__grp__k.json", there); };
  const auto by_rename = [&](Host& host) {
    EXPECT_TRUE(host.create(directory + "/.__grp__k.json.x", there));
    return host.rename(directory + "/.__grp__k.json.x", directory + "/__grp__k.json", kContainer);
  };
  const auto with_the_directory = [&](Host& host) {
    EXPECT_TRUE(host.make_directory("triton/0/copy"));
    EXPECT_TRUE(host.create("triton/0/copy/__grp__k.json", there));
    EXPECT_TRUE(host.remove_directory(directory));
    return host.rename("triton/0/copy", directory, kContainer);
  };
  using Make = std::function<Result<void>(Host&)>;
  for (const Make& make : {Make(in_place), Make(by_rename), Make(with_the_directory)}) {
    Host host(cluster, options);
    host.act_as(kContainer);
    ASSERT_TRUE(host.make_directories(directory));
    ASSERT_TRUE(make(host));
    KernelNames kernel(host);
    (void)kernel.look_up(directory, kHere, true);
    EXPECT_EQ(host.count("triton.views_met"), 1U);
    EXPECT_TRUE(eventually([&] { return host.kernel.told_name("__grp__k.json"); }));
    EXPECT_EQ(kernel.get_group(directory, kHere), here);
    EXPECT_EQ(kernel.get_group(directory, kContainer), there);
  }
}

TEST_F(GroupViewsTest, LeaveAWriterWhatItWroteThroughASymbolicLink) {
  views->set(kHere, "/home/me/link");
  Host host(cluster, options);
  for (const char* name : {"k.json", "k.ttir", "k.source"}) {
    ASSERT_TRUE(host.triton_put(directory, name, "first", kContainer));
  }
  const std::string linked = group_at("/home/me/link/" + directory);
  ASSERT_TRUE(host.triton_put(directory, "__grp__k.json", linked, kContainer));
  KernelNames kernel(host);
  EXPECT_EQ(kernel.get_group(directory, kContainer), linked);
  EXPECT_TRUE(kernel.keeps(directory, kContainer, linked)) << "the kernel keeps it";
  EXPECT_EQ(kernel.get_group(directory, kOther), here) << "who sees the mount elsewhere may not see the link";
  host.restart();
  KernelNames fresh(host);
  EXPECT_EQ(fresh.get_group(directory, kContainer), linked) << "the next mount knows it too";
}

TEST_F(GroupViewsTest, StayAsTheyWereForAnotherWorker) {
  publish(directory);
  for (const bool is_local : {false, true}) {
    HostOptions own = options;
    own.facts = is_local ? "two" : "one";
    Host host(cluster, own);
    ASSERT_TRUE(is_local ? host.triton_compile(directory, "first", kHere).has_value() : host.wait_for_entry(entry));
    KernelNames kernel(host);
    ASSERT_EQ(kernel.get_group(directory, kHere), here);
    const auto first = kernel.look_up(directory + "/__grp__k.json", kHere);
    ASSERT_EQ(kernel.get_group(directory, kContainer), there);
    const auto second = kernel.look_up(directory + "/__grp__k.json", kContainer);
    ASSERT_TRUE(first && second);
    host.take_over();
    EXPECT_EQ(kernel.read(second->node), there) << "a process has it open";
    EXPECT_EQ(kernel.get_group(directory, kHere), here);
    EXPECT_EQ(kernel.get_group(directory, kContainer), there);
  }
}

TEST_F(GroupViewsTest, AreForgottenByAnotherWorkerToo) {
  publish(directory);
  for (const bool is_local : {false, true}) {
    HostOptions own = options;
    own.facts = is_local ? "two" : "one";
    Host host(cluster, own);
    ASSERT_TRUE(is_local ? host.triton_compile(directory, "first", kContainer).has_value()
                         : host.wait_for_entry(entry));
    KernelNames kernel(host);
    ASSERT_EQ(kernel.get_group(directory, kContainer), there);
    host.take_over();
    const auto kept = kernel.look_up(directory + "/__grp__k.json", kContainer);
    ASSERT_TRUE(kept);
    EXPECT_EQ(kernel.read(kept->node), there) << "the first view is not the mountpoint's";
    EXPECT_EQ(kernel.get_group(directory, kContainer), there);
    EXPECT_EQ(host.count("triton.views_met"), 0U);
    EXPECT_EQ(kernel.get_group(directory, kHere), here);
  }
}

}  // namespace
}  // namespace inductorfs::testing
