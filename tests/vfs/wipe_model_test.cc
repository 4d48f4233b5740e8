// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "vfs/host.h"
#include "vfs/seeds.h"
#include "vfs/wipe.h"

/// Random steps in roots that share keys, the mountpoint and one below it: sets that are pending, committed, the
/// cluster's, hidden, or complete where another one was already, with lists, lookups, removals, restarts and takeovers.
namespace inductorfs::testing {
namespace {

constexpr int kSteps = 80;
constexpr uint32_t kRunsOfASeed = 4;
constexpr pid_t kOther = 1;    ///< another process that lives as long as the test
constexpr pid_t kShell = 104;  ///< no process, and no job

/// Where keys stand: TRITON_CACHE_DIR as torch, its fresh_cache and users set it.
struct Place {
  std::string directory;
  std::string root;
};
const std::vector<Place> kPlaces{{"triton/0", ""},         {"triton/1", ""},
                                 {"triton", ""},           {"", ""},
                                 {"alice", "alice"},       {"alice/triton/0", "alice"},
                                 {"alice/triton", "alice"}};
const std::vector<std::string> kVersions{"one", "two"};

std::string below(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

/// One of two nodes, and what it may show. Needs external synchronisation.
class WipeRun {
 public:
  WipeRun(uint32_t seed, bool learns) : learns_(learns), random_(seed) {
    HostOptions options;
    if (learns) options.jobs = {{own_pid(), "torch"}, {kOther, "torch"}};
    elsewhere_ = std::make_unique<Host>(cluster_, options);
    host_ = std::make_unique<Host>(cluster_, options);
    for (const char* name : {"first", "second"}) keys_.push_back(triton_key_of(name));
  }

  void run() {
    for (int step = 0; step < kSteps && !::testing::Test::HasFailure(); ++step) {
      const size_t kind = choose(8);
      if (kind < 2) compile();
      if (kind == 2) compile_elsewhere();
      if (kind == 3) put();
      if (kind == 4 || kind == 5) wipe();
      if (kind == 6) begin_again();
      if (kind == 7 || choose(3) == 0) verify();
    }
    verify();
    if (::testing::Test::HasFailure()) ADD_FAILURE() << log_;
  }

 private:
  using Versions = std::set<std::string>;
  size_t choose(size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random_); }
  template <typename T>
  const T& one_of(const std::vector<T>& all) {
    return all[choose(all.size())];
  }
  pid_t a_job() { return choose(2) == 0 ? own_pid() : kOther; }
  void say(const std::string& what) {
    log_ += what + "\n";
    for (const auto& key : keys_) {
      for (size_t at = 0; (at = log_.find(key, at)) != std::string::npos;)
        log_.replace(at, key.size(), "KEY-" + key.substr(0, 2));
    }
  }

  void compile() {
    const Place& place = one_of(kPlaces);
    const std::string key = one_of(keys_);
    const std::string path = below(place.directory, key);
    const std::string version = one_of(kVersions);
    const pid_t process = a_job();
    say(std::to_string(process) + " compiles " + version + " in " + path);
    const auto made = make_set(*host_, path, version, process);
    ASSERT_TRUE(made) << made.error().to_string();
    made_[path].insert(version);
    publish(place.root, key, version);
    unfinished_.erase({path, process});
    complete_.insert({path, process});
    EXPECT_EQ(shown(path, process), version) << path << ": what a process has compiled";
  }

  void compile_elsewhere() {
    const std::string key = one_of(keys_);
    const std::string path = "triton/0/" + key;
    settle();
    if (elsewhere_->exists(path + "/__grp__k.json")) return;
    const std::string version = one_of(kVersions);
    say("another node compiles " + version + " in " + path);
    ASSERT_TRUE(make_set(*elsewhere_, path, version, own_pid()));
    ASSERT_TRUE(elsewhere_->sync());
    for (const char* root : {"", "alice"}) publish(root, key, version);
    settle();
  }

  /// Bytes that come again are shown again.
  void publish(const std::string& root, const std::string& key, const std::string& version) {
    published_[key].insert(version);
    for (const auto& each : {root, std::string()}) dead_[{each, key}].erase(version);
  }

  void put() {
    const std::string path = below(one_of(kPlaces).directory, one_of(keys_));
    const pid_t process = a_job();
    if (complete_.contains({path, process})) return;  // its own set would have other bytes
    say(std::to_string(process) + " puts a part in " + path);
    host_->act_as(process);
    ASSERT_TRUE(host_->triton_put(path, "k.source", "a part", process));
    unfinished_.insert({path, process});
  }

  void wipe() {
    std::vector<std::string> tops{"triton", "triton/0", "alice", "alice/triton"};
    const std::string key_directory = below(one_of(kPlaces).directory, one_of(keys_));
    const std::string top = choose(2) == 0 ? key_directory : one_of(tops);
    const std::vector<pid_t> processes{own_pid(), kOther, kShell};
    const pid_t process = one_of(processes);
    // What is on its way from one directory to another may come while that is removed, as from another process.
    const bool is_settled = top != key_directory || choose(2) == 0;
    if (is_settled) settle();
    host_->act_as(process);
    if (!host_->exists(top)) return;
    say(std::to_string(process) + " removes " + top);
    std::vector<std::pair<std::string, std::string>> died;  // root and key
    std::vector<std::string> gone;
    each_directory([&](const Place& place, const std::string& key, const std::string& path) {
      if (path != top && !path.starts_with(top + "/")) return;
      if (!host_->list(path).value_or(std::vector<std::string>{}).empty()) died.emplace_back(place.root, key);
      gone.push_back(path);
    });
    const auto shuffled = [this](auto& names) { std::shuffle(names.begin(), names.end(), random_); };
    auto removed = remove_tree(*host_, top, shuffled);
    // What a process has begun beside a set that was there is not shown, and holds its directory until it is.
    const auto holds = [&](const auto& one) { return one.first == top || one.first.starts_with(top + "/"); };
    for (auto left = std::ranges::count_if(unfinished_, holds) + (is_settled ? 0 : 1); !removed && left > 0; --left) {
      if (!is_settled) settle();
      EXPECT_EQ(removed.error().code(), ErrorCode::kNotEmpty) << removed.error().to_string();
      removed = remove_tree(*host_, top, shuffled);
    }
    ASSERT_TRUE(removed) << removed.error().to_string();
    EXPECT_FALSE(host_->exists(top));
    for (const auto& path : gone) {
      made_.erase(path);
      for (auto* all : {&unfinished_, &complete_}) {
        std::erase_if(*all, [&](const auto& one) { return one.first == path; });
      }
    }
    for (const auto& [root, key] : died) bury(root, key);
    // A root that is made again shows all of the cluster.
    if (top == "alice") std::erase_if(dead_, [](const auto& one) { return one.first.first == "alice"; });
    for (const auto& path : top == "alice" ? std::vector<std::string>{} : gone) {
      for (const pid_t each : processes) EXPECT_EQ(shown(path, each), std::nullopt) << path << " after " << top;
    }
  }

  /// What a process has under another name is published, or becomes everybody's there and is published then: it is
  /// shown again.
  void bury(const std::string& root, const std::string& key) {
    wiped_.insert(key);
    Versions dead = published_[key];
    for (const Place& place : kPlaces) {
      if (place.root != root && !root.empty()) continue;
      for (const auto& version : made_[below(place.directory, key)]) dead.erase(version);
    }
    dead_[{root, key}].merge(dead);
  }

  void begin_again() {
    const bool is_restart = choose(2) == 0;
    say(is_restart ? "restart" : "takeover");
    if (is_restart) {
      host_->restart();
      unfinished_.clear();
      complete_.clear();
    } else {
      host_->take_over();
    }
  }

  /// Only one of the nodes has published since the last time.
  void settle() {
    ASSERT_TRUE(host_->sync());
    const auto count = [&](Host& host) {
      host.act_as(own_pid());
      (void)host.exists("triton/0/" + keys_.front());
      const auto status = host.catalog->status();
      return status.entries + status.hidden;
    };
    ASSERT_TRUE(eventually([&] { return count(*host_) == count(*elsewhere_); }));
  }

  /// The version of the set that a process finds there; nothing for a miss. A set is whole, and of one writer.
  std::optional<std::string> shown(const std::string& path, pid_t process) {
    host_->act_as(process);
    if (!host_->exists(path + "/__grp__k.json")) return std::nullopt;
    const auto version = host_->read(path + "/k.source");
    if (unfinished_.contains({path, process})) return std::nullopt;
    const auto metadata = host_->read(path + "/k.json");
    EXPECT_TRUE(version && metadata && host_->read(path + "/k.ttir")) << "half a set in " << path;
    if (!version || !metadata) return std::nullopt;
    EXPECT_EQ(*metadata, "{\"writer\": \"" + *version + "\"}") << "a mixture in " << path;
    return *version;
  }

  void verify() {
    settle();
    for (const pid_t process : {own_pid(), kOther, kShell}) {
      each_directory([&](const Place& place, const std::string& key, const std::string& path) {
        const auto version = shown(path, process);
        if (version) {
          EXPECT_TRUE(may_show(place, key, *version)) << path << " shows " << *version << " to " << process;
        } else if (!unfinished_.contains({path, process})) {
          EXPECT_FALSE(must_show(place, key, path)) << path << " shows nothing to " << process;
        }
      });
      verify_lists("", process);
    }
  }

  bool may_show(const Place& place, const std::string& key, const std::string& version) {
    if (made_[below(place.directory, key)].contains(version)) return true;
    // Of the mountpoint's branch no other root knows.
    const bool is_dead = dead_[{place.root, key}].contains(version) || (!learns_ && dead_[{"", key}].contains(version));
    return published_[key].contains(version) && !is_dead;
  }

  /// The cluster has it, nobody has removed it, and nobody is at work there.
  bool must_show(const Place& place, const std::string& key, const std::string& path) {
    const bool is_clear = place.root.empty() || (place.directory == "alice" && host_->exists("alice"));
    const bool is_used = std::ranges::any_of(unfinished_, [&](const auto& one) { return one.first == path; });
    return is_clear && !is_used && !published_[key].empty() && !wiped_.contains(key);
  }

  /// What is listed is there.
  void verify_lists(const std::string& directory, pid_t process) {
    host_->act_as(process);
    const auto names = host_->list(directory);
    ASSERT_TRUE(names) << directory << ": " << names.error().to_string();
    for (const auto& name : *names) {
      const std::string path = below(directory, name);
      host_->act_as(process);
      const auto found = host_->look_up(path);
      EXPECT_TRUE(found) << process << " is listed " << path << ", and does not find it";
      if (found && S_ISDIR(found->attributes.mode)) verify_lists(path, process);
    }
  }

  template <typename Use>
  void each_directory(const Use& use) {
    for (const Place& place : kPlaces) {
      for (const auto& key : keys_) use(place, key, below(place.directory, key));
    }
  }

  const bool learns_;
  std::mt19937 random_;
  std::shared_ptr<remote::MemoryCluster> cluster_ = remote::make_memory_cluster();
  std::unique_ptr<Host> elsewhere_;
  std::unique_ptr<Host> host_;
  std::vector<std::string> keys_;
  std::map<std::string, Versions> published_;                     ///< by key
  std::map<std::string, Versions> made_;                          ///< by directory, since it was removed
  std::map<std::pair<std::string, std::string>, Versions> dead_;  ///< by root and key
  std::set<std::string> wiped_;                                   ///< keys of which something was removed ever
  using Begun = std::set<std::pair<std::string, pid_t>>;          ///< directories and processes
  Begun unfinished_;
  Begun complete_;  ///< of this mount
  std::string log_;
};

class WipeModel : public ::testing::TestWithParam<uint32_t> {};

TEST_P(WipeModel, OfOneEnvironment) { WipeRun(GetParam(), false).run(); }

TEST_P(WipeModel, OfLearnedEnvironments) { WipeRun(GetParam() + 1000, true).run(); }

INSTANTIATE_TEST_SUITE_P(Seeds, WipeModel, ::testing::Range(1U, 1U + kRunsOfASeed * seeds()));

}  // namespace
}  // namespace inductorfs::testing
