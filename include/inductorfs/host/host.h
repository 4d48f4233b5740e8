// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/fingerprint/trust.h"
#include "inductorfs/fingerprint/writers.h"
#include "inductorfs/host/learned_environments.h"
#include "inductorfs/layout/scope.h"
#include "inductorfs/remote/index.h"
#include "inductorfs/vfs/file_system.h"
#include "place_reader.h"

/// What this host needs of artefacts, derived from its facts.
namespace inductorfs::host {

/// The scopes of every family for one set of facts. Immutable after construction.
class Scopes {
 public:
  explicit Scopes(const fingerprint::Fingerprint& facts);
  [[nodiscard]] const layout::Scope& of(layout::Family family) const;
  /// Returns all scopes of a family: one for each GPU architecture if the host has several; never empty.
  [[nodiscard]] const std::vector<layout::Scope>& all_of(layout::Family family) const;
  /// Returns the distinct ids of the families that are shared here.
  [[nodiscard]] std::vector<remote::ScopeId> ids() const;
  /// Returns the same ids with what they stand for.
  [[nodiscard]] std::vector<remote::ScopeInformation> information() const;
  /// Says whether an entry of this path may come in this scope: catalog::Catalog::ScopeAccepts.
  [[nodiscard]] bool accepts(const remote::ScopeId& scope, std::string_view path) const;

 private:
  struct FamilyScopes {
    layout::Scope scope;
    std::vector<layout::Scope> all;
  };
  [[nodiscard]] const FamilyScopes& scopes_of(layout::Family family) const;
  std::map<layout::Family, FamilyScopes> families_;
  std::set<remote::ScopeId> ids_;  ///< ids(), to be found
};

/// A family that could be shared but is not on this host, with the reason. Not one that nothing here uses
/// (layout::Scope::unused).
struct PrivateFamily {
  std::string family;
  std::string why;
};
[[nodiscard]] std::vector<PrivateFamily> private_families(const Scopes& scopes);

/// Returns what binaries may require of a host with these facts. What the facts do not say is taken from this host. If
/// torch is not installed at the place that the facts name (because they are another host's), sonames are not checked.
/// `reader` looks at the places of the facts, now and whenever a soname is looked for.
[[nodiscard]] layout::HostLimits limits_of(const fingerprint::Fingerprint& facts, const PlaceReader& reader = {});

/// Returns the x86-64 level (1 to 4) that these CPU flags reach, as the psABI defines it; 0 when they name no x86-64
/// CPU.
[[nodiscard]] unsigned x86_level(std::string_view flags);

/// A set of facts and what follows from them: the environment of the mountpoint, or of the cache roots that share with
/// the same users. Immutable after construction.
class HostState final : public vfs::RootEnvironment {
 public:
  /// `trust` is the trust facet (fingerprint::Trust) of these roots.
  HostState(fingerprint::Fingerprint learned, fingerprint::Fact trust, PlaceReader reader = {});
  const fingerprint::Fingerprint facts;  ///< of the host: without `trust`
  const fingerprint::Fact trust;

 private:
  const fingerprint::Fingerprint facts_and_trust_;
  const std::shared_ptr<const fingerprint::ExpectedFacts> expected_;

 public:
  const Scopes scopes;

  [[nodiscard]] layout::Scope scope_of(layout::Family family, std::string_view architecture) const override;
  [[nodiscard]] bool follows(const remote::ScopeId& scope, std::string_view path) const override {
    return scopes.accepts(scope, path);
  }
  [[nodiscard]] std::vector<remote::ScopeId> scope_ids() const override { return scopes.ids(); }
  [[nodiscard]] fingerprint::Fact shared_with() const override { return trust; }
  [[nodiscard]] std::shared_ptr<const fingerprint::ExpectedFacts> expected() const override { return expected_; }
  /// Returns the limits, which are found out at the first call: that reads libraries, for which a takeover does not
  /// wait.
  [[nodiscard]] const layout::HostLimits& limits() const;

 private:
  const PlaceReader reader_;
  mutable std::once_flag looked_;
  mutable layout::HostLimits limits_;
};

/// The host as the file system sees it. Its facts can be replaced at any time. It owns the writers.
/// Safe for concurrent use.
class ThisHost final : public vfs::Host {
 public:
  /// `writers` is nullptr when every writer is trusted to have this mount's environment. `mountpoint`: whose it is.
  /// `learned`: where environments are learned (Host::learns()), which takes writers; else nullptr.
  ThisHost(fingerprint::Fingerprint facts, std::unique_ptr<fingerprint::Writers> writers, PlaceReader reader = {},
           fingerprint::TrustPolicy trust = fingerprint::TrustPolicy::kAll, vfs::RootAccess mountpoint = {},
           fingerprint::AskName ask = fingerprint::ask_name_service,
           std::unique_ptr<LearnedEnvironments> learned = nullptr);
  /// The most groups of cache roots that share with different users; what comes then is shared with nobody.
  static constexpr size_t kMostEnvironments = 256;
  /// Of these, the most of one user, or of one group under --trust group.
  static constexpr size_t kMostOfOne = kMostEnvironments / 4;

  [[nodiscard]] std::shared_ptr<const HostState> state() const;
  /// Replaces the facts for all later questions.
  void replace(fingerprint::Fingerprint facts);
  /// Accepts as Scopes::accepts() does, under the current facts or any that this object has had: the catalog still
  /// finishes its work on the old scopes when the facts are new.
  [[nodiscard]] bool accepts(const remote::ScopeId& scope, std::string_view path) const;

  /// Sets what is called several times a second while a request waits in job_of(). Must be called before the first
  /// such request.
  void while_waiting(std::function<void()> goes_on) { goes_on_ = std::move(goes_on); }
  /// Sets what is called when a cache root or a process brings scopes that were not in use (information()). Must be
  /// called before the first request; what is called must not block.
  void on_new_scopes(std::function<void()> tell) { new_scopes_ = std::move(tell); }
  /// Returns why the environments of processes are not known (fingerprint::Writers::unknown_jobs); only of those that
  /// asked for it.
  [[nodiscard]] std::vector<fingerprint::UnknownJobs> unknown_jobs() const;

  /// Returns what the gpu and environment facets of this host and of the environments in use lack, ten lines at most;
  /// only where environments are learned.
  [[nodiscard]] std::vector<std::string> lacking() const;

  /// Returns what the scopes of all environments stand for that are in use.
  [[nodiscard]] std::vector<remote::ScopeInformation> information() const;

  [[nodiscard]] layout::Scope scope_of(layout::Family family, std::string_view architecture) const override;
  [[nodiscard]] bool follows(const remote::ScopeId& scope, std::string_view path) const override;
  [[nodiscard]] std::vector<remote::ScopeId> scope_ids() const override;
  [[nodiscard]] fingerprint::Fact shared_with() const override;
  [[nodiscard]] std::shared_ptr<const fingerprint::ExpectedFacts> expected() const override;
  [[nodiscard]] std::shared_ptr<const vfs::RootEnvironment> environment_of(const vfs::RootAccess& root,
                                                                           std::string_view job,
                                                                           Milliseconds patience) const override;
  [[nodiscard]] bool learns() const override { return learned_ != nullptr; }
  [[nodiscard]] vfs::Job job_of(pid_t thread, bool makes) const override;
  void expect_job(pid_t thread) const override;
  [[nodiscard]] std::string environment_text(std::string_view job) const override;
  [[nodiscard]] bool is_asking(const vfs::RootAccess& root) const override;
  [[nodiscard]] bool may_share(const vfs::RootAccess& root, uid_t user) const override;
  [[nodiscard]] bool may_group_share(const vfs::RootAccess& root, gid_t group) const override;
  [[nodiscard]] uint64_t accounts() const override { return parts_users() ? trust_.accounts() : 0; }
  [[nodiscard]] bool parts_roots() const override { return learns() || parts_users(); }
  /// Checks under the mount's own facts or, where environments are learned, under those of the environments that use
  /// one of the scopes.
  [[nodiscard]] Result<void> check(const layout::Classification& classified, std::string_view bytes, uint64_t size,
                                   std::span<const remote::ScopeId> scopes) const override;
  [[nodiscard]] uint64_t environments_made() const override;
  [[nodiscard]] fingerprint::Writers* writers() const override { return writers_.get(); }

 private:
  struct States {
    std::shared_ptr<const HostState> now;
    /// By job and trust facet: those that are not `now`. One that nobody else holds goes when there are too many.
    std::map<std::string, std::shared_ptr<const HostState>> parted;
    std::vector<std::shared_ptr<const HostState>> earlier;  ///< newest last
    uint64_t made = 0;                                      ///< of those in `parted`, how many there ever were
    void retire(std::shared_ptr<const HostState> state);
  };
  [[nodiscard]] bool parts_users() const { return trust_.policy() != fingerprint::TrustPolicy::kAll; }
  [[nodiscard]] static bool is_too_many(const States& states, const fingerprint::Fact& trust);
  [[nodiscard]] std::shared_ptr<const HostState> parted_state(States& states, std::string_view job,
                                                              fingerprint::Fact trust) const;
  [[nodiscard]] fingerprint::Fact trust_of(const vfs::RootAccess& root, Milliseconds patience) const {
    return trust_.of(root.uid, root.gid, root.mode, patience);
  }
  const PlaceReader reader_;
  mutable fingerprint::Trust trust_;
  const vfs::RootAccess mountpoint_;
  mutable SharedGuarded<States> states_;
  std::unique_ptr<LearnedEnvironments> learned_;
  std::unique_ptr<fingerprint::Writers> writers_;
  std::function<void()> goes_on_ = [] {};
  /// Answers of job_of(), by thread. A start of a job asks for hundreds of names one after another, and each question
  /// reads much of /proc and compares facts. An answer counts for kAnswerLasts, while the thread runs the same program.
  struct RecentJob {
    pid_t thread = 0;
    uint64_t program = 0;  ///< fingerprint::Writers::program_of()
    SteadyTime until{};
    std::string environment;
  };
  static constexpr size_t kRecentJobs = 64;
  static constexpr Milliseconds kAnswerLasts{20};
  mutable Guarded<std::array<RecentJob, kRecentJobs>> recent_jobs_;
  /// Threads that expect_job() was told of, as far as they were not seen for kExpectAgain.
  static constexpr Milliseconds kExpectAgain{1000};
  mutable Guarded<std::array<RecentJob, kRecentJobs>> expected_;
  std::function<void()> new_scopes_ = [] {};
};

}  // namespace inductorfs::host
