// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/layout/scope.h"
#include "inductorfs/vfs/file_system.h"

namespace inductorfs::testing {

/// Writers as a test wants them: all match but those that it names, by process. Safe for concurrent use.
class FakeWriters final : public fingerprint::Writers {
 public:
  /// `at_once`: what a glance tells; kLater leaves it to `judged`.
  void set(pid_t process, fingerprint::Match at_once, fingerprint::Match judged = fingerprint::Match::kMatches);
  /// Of processes that the test does not name.
  void set_others(fingerprint::Match at_once);
  /// Judgements wait until they are let go.
  void hold_judgements(bool held);
  /// judge() has no answer for this process, ever.
  void hold_judgements_of(pid_t process);
  [[nodiscard]] size_t identified() const;
  [[nodiscard]] size_t judging() const;
  /// Facets of the last question.
  [[nodiscard]] std::vector<fingerprint::Facet> asked() const;

  std::shared_ptr<const fingerprint::Writer> identify(pid_t tid) override;
  fingerprint::Judgement glance(const fingerprint::Writer* writer, std::span<const fingerprint::Facet> facets,
                                const fingerprint::ExpectedFacts& expected) override;
  fingerprint::Judgement judge(const fingerprint::Writer* writer, std::span<const fingerprint::Facet> facets,
                               const fingerprint::ExpectedFacts& expected) override;
  fingerprint::JobFacts job_of(pid_t, const fingerprint::JobQuestion&) override { return {}; }  // FakeEnvironment tells
  void expect(pid_t) override {}
  std::vector<fingerprint::UnknownJobs> unknown_jobs() const override { return {}; }
  fingerprint::JobEnvironments::InUse environments_in_use() const override { return {}; }

 private:
  struct Process {
    fingerprint::Match at_once = fingerprint::Match::kMatches;
    fingerprint::Match judged = fingerprint::Match::kMatches;
  };
  struct State {
    std::map<pid_t, Process> processes;
    Process others;
    std::vector<fingerprint::Facet> asked;
    size_t identified = 0;
    size_t judging = 0;
    std::set<pid_t> stuck;
    bool held = false;
  };
  static Process process_of(const State& state, const fingerprint::Writer* writer);

  mutable Guarded<State> state_;
};

/// Where each process sees the mount: at the usual mountpoint, but for those that a test names. Safe for concurrent
/// use.
class FakeViews {
 public:
  explicit FakeViews(std::string mountpoint) : mountpoint_(std::move(mountpoint)) {}
  /// The process sees what lies below `root`, a directory of the mount ("" for all of it), at `path`, and nothing else.
  void set(pid_t process, const std::string& path, const std::string& root = {});
  /// FileSystemOptions::where_seen
  [[nodiscard]] std::string path_for(pid_t process, std::string_view path) const;
  [[nodiscard]] size_t asked() const;
  /// Is called at each question, in the middle of the request that asks. To be set before the first one.
  std::function<void()> on_asked;

 private:
  struct State {
    std::map<pid_t, std::pair<std::string, std::string>> processes;
    size_t asked = 0;
  };
  const std::string mountpoint_;
  mutable Guarded<State> state_;
};

/// Facts that a test changes under a mount. Safe for concurrent use.
class FakeEnvironment final : public vfs::Host {
 public:
  using Check = std::function<Result<void>(const layout::Classification&, std::string_view bytes, uint64_t size)>;

  /// Hosts with equal `facts` share all families. `architectures`: the gpu-arch facet, where it is another.
  void set_facts(const std::string& facts, const std::string& architectures = {});
  void set_writers(std::shared_ptr<FakeWriters> writers) { writers_ = std::move(writers); }
  /// Beside the one that the tests of every kind need: an fxgraph entry is named by its content.
  void set_check(Check check) { check_ = std::move(check); }
  /// Every scope of this host.
  [[nodiscard]] std::vector<std::string> scopes() const;
  /// Roots that belong to other users than root and this process's share with those of the same user.
  void part_users() { parts_ = true; }
  /// The accounts of this host change: each user's name begins so from now on.
  void rename_users(const std::string& prefix) {
    facts_.with([&](Facts& facts) {
      facts.prefix = prefix;
      facts.parted.clear();
    });
    ++accounts_;
  }
  /// Whether the name service takes its time: meanwhile nobody knows whose a user's root is.
  void ask(bool asks, bool fails = false) {
    asks_ = asks;
    fails_ = fails;
    facts_.with([](Facts& facts) { facts.parted.clear(); });
  }
  /// Environments are learned: these processes have environments of these facts; an empty one cannot be found out, and
  /// one that is kNotYet not before the process makes something. All others are neither torch nor Triton.
  static constexpr const char* kNotYet = "not yet";
  /// Is called when a request asks for the job of its process, in the middle of it. To be set before the first one.
  std::function<void()> on_job_asked;
  void learn(std::map<pid_t, std::string> jobs);
  /// Under the facts of now or any earlier ones: the catalog still finishes with the old scopes when the facts are new.
  [[nodiscard]] bool accepts(const remote::ScopeId& scope, std::string_view path) const;

  layout::Scope scope_of(layout::Family family, std::string_view architecture) const override;
  bool follows(const remote::ScopeId& scope, std::string_view path) const override;
  std::vector<remote::ScopeId> scope_ids() const override { return scopes(); }
  fingerprint::Fact shared_with() const override;
  std::shared_ptr<const vfs::RootEnvironment> environment_of(const vfs::RootAccess& root, std::string_view job,
                                                             Milliseconds patience) const override;
  bool learns() const override { return learns_; }
  vfs::Job job_of(pid_t thread, bool makes) const override;
  void expect_job(pid_t) const override {}
  std::string environment_text(std::string_view job) const override { return "facts " + std::string(job); }
  std::shared_ptr<const fingerprint::ExpectedFacts> expected() const override;
  bool is_asking(const vfs::RootAccess& root) const override { return asks_ && root.uid != 0; }
  bool may_share(const vfs::RootAccess& root, uid_t user) const override {
    return !parts_ || user == root.uid || (root.uid == 0 && (root.mode & 022) != 0);
  }
  bool may_group_share(const vfs::RootAccess& root, gid_t) const override { return may_share(root, vfs::kAnyUser); }
  uint64_t accounts() const override { return accounts_; }
  bool parts_roots() const override { return parts_ || learns_; }
  Result<void> check(const layout::Classification& classified, std::string_view bytes, uint64_t size,
                     std::span<const remote::ScopeId> scopes) const override;
  uint64_t environments_made() const override { return 0; }
  fingerprint::Writers* writers() const override { return writers_.get(); }

 private:
  struct Facts {
    fingerprint::Fingerprint now;
    std::vector<fingerprint::Fingerprint> earlier;
    std::map<std::pair<uid_t, std::string>, std::shared_ptr<const vfs::RootEnvironment>> parted{};
    std::map<pid_t, std::string> jobs{};
    std::string prefix{};  ///< of the users' names
  };

  mutable Guarded<Facts> facts_;
  bool parts_ = false;
  std::atomic<bool> asks_ = false;
  std::atomic<uint64_t> accounts_ = 0;
  std::atomic<bool> fails_ = false;  ///< it has not found out
  bool learns_ = false;
  std::shared_ptr<FakeWriters> writers_;
  Check check_;
};

}  // namespace inductorfs::testing
