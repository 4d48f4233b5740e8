// SPDX-License-Identifier: Apache-2.0
#include "vfs/fake_environment.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "inductorfs/codec/digest.h"

namespace inductorfs::testing {
namespace {

using fingerprint::Judgement;
using fingerprint::Match;

constexpr std::chrono::seconds kPatience{20};

/// A writer is known by the address of its number alone: nobody else looks into it.
pid_t number_of(const fingerprint::Writer* writer) { return *reinterpret_cast<const pid_t*>(writer); }

/// The id of an environment that a test calls by a name.
std::string id_of(const std::string& facts) {
  return codec::digest_of(facts).to_hex().substr(0, vfs::kEnvironmentIdLength);
}

bool has_scope(const fingerprint::Fingerprint& facts, const remote::ScopeId& id, std::string_view path) {
  const auto scopes = layout::scopes_of(layout::classify(path).family, facts);
  return std::any_of(scopes.begin(), scopes.end(), [&](const auto& scope) { return scope.id == id; });
}

std::vector<remote::ScopeId> scopes_of(const fingerprint::Fingerprint& facts) {
  std::set<remote::ScopeId> ids;
  for (const auto& rule : layout::all_rules()) {
    for (auto& scope : layout::scopes_of(rule.family, facts)) {
      if (!scope.id.empty()) ids.insert(std::move(scope.id));
    }
  }
  return {ids.begin(), ids.end()};
}

}  // namespace

void FakeWriters::set(pid_t process, Match at_once, Match judged) {
  state_.with([&](State& state) { state.processes[process] = {at_once, judged}; });
}
void FakeWriters::set_others(Match at_once) {
  state_.with([&](State& state) { state.others = {at_once, at_once}; });
}
void FakeWriters::hold_judgements(bool held) {
  state_.with([&](State& state) {
    state.held = held;
    state.judging = 0;
  });
}
void FakeWriters::hold_judgements_of(pid_t process) {
  state_.with([&](State& state) { state.stuck.insert(process); });
}
size_t FakeWriters::identified() const {
  return state_.with([](const State& state) { return state.identified; });
}
size_t FakeWriters::judging() const {
  return state_.with([](const State& state) { return state.judging; });
}
std::vector<fingerprint::Facet> FakeWriters::asked() const {
  return state_.with([](const State& state) { return state.asked; });
}

std::shared_ptr<const fingerprint::Writer> FakeWriters::identify(pid_t tid) {
  state_.with([](State& state) { ++state.identified; });
  if (tid <= 0) return nullptr;
  auto number = std::make_shared<const pid_t>(tid);
  return {number, reinterpret_cast<const fingerprint::Writer*>(number.get())};
}

FakeWriters::Process FakeWriters::process_of(const State& state, const fingerprint::Writer* writer) {
  if (writer == nullptr) return {Match::kUnknown, Match::kUnknown};
  const auto known = state.processes.find(number_of(writer));
  return known == state.processes.end() ? state.others : known->second;
}

Judgement FakeWriters::glance(const fingerprint::Writer* writer, std::span<const fingerprint::Facet> facets,
                              const fingerprint::ExpectedFacts&) {
  return state_.with([&](State& state) -> Judgement {
    state.asked.assign(facets.begin(), facets.end());
    const Match match = process_of(state, writer).at_once;
    return {match, match == Match::kMatches ? "" : "facet torch: another package"};
  });
}

Judgement FakeWriters::judge(const fingerprint::Writer* writer, std::span<const fingerprint::Facet>,
                             const fingerprint::ExpectedFacts&) {
  return state_.with([&](State& state) -> Judgement {
    if (state.held || (writer != nullptr && state.stuck.contains(number_of(writer)))) {
      ++state.judging;
      return {Match::kLater, "its package is being read"};
    }
    const Match match = process_of(state, writer).judged;
    return {match, match == Match::kMatches ? "" : "facet torch: another package, read whole"};
  });
}

void FakeViews::set(pid_t process, const std::string& path, const std::string& root) {
  state_.with([&](State& state) { state.processes[process] = {root, path}; });
}

std::string FakeViews::path_for(pid_t process, std::string_view path) const {
  if (on_asked) on_asked();
  return state_.with([&](State& state) {
    ++state.asked;
    const auto found = state.processes.find(process);
    if (found == state.processes.end()) return mountpoint_ + "/" + std::string(path);
    const auto& [root, at] = found->second;
    if (!path.starts_with(root)) return mountpoint_ + "/" + std::string(path);
    return at + (root.empty() ? "/" : "") + std::string(path.substr(root.size()));
  });
}

size_t FakeViews::asked() const {
  return state_.with([](const State& state) { return state.asked; });
}

void FakeEnvironment::set_facts(const std::string& facts, const std::string& architectures) {
  facts_.with([&](Facts& all) {
    fingerprint::Fingerprint result;
    for (const auto facet : fingerprint::kAllFacets) {
      const bool other = facet == fingerprint::Facet::kGpuArch && !architectures.empty();
      fingerprint::Fact fact;
      fact.known = true;
      fact.value = other ? architectures : facts;
      fact.source = "test";
      result.set(facet, fact);
    }
    all.earlier.push_back(std::exchange(all.now, std::move(result)));
    all.parted.clear();
  });
}

std::vector<std::string> FakeEnvironment::scopes() const {
  return facts_.with([](const Facts& facts) { return scopes_of(facts.now); });
}

bool FakeEnvironment::follows(const remote::ScopeId& scope, std::string_view path) const {
  return facts_.with([&](const Facts& facts) { return has_scope(facts.now, scope, path); });
}

bool FakeEnvironment::accepts(const remote::ScopeId& scope, std::string_view path) const {
  return facts_.with([&](const Facts& facts) {
    return has_scope(facts.now, scope, path) ||
           std::any_of(facts.earlier.begin(), facts.earlier.end(),
                       [&](const auto& past) { return has_scope(past, scope, path); }) ||
           std::any_of(facts.parted.begin(), facts.parted.end(),
                       [&](const auto& one) { return one.second->follows(scope, path); });
  });
}

layout::Scope FakeEnvironment::scope_of(layout::Family family, std::string_view architecture) const {
  return facts_.with([&](const auto& facts) { return layout::scope_of(family, facts.now, architecture); });
}

namespace {

/// Of the roots of one user, or of the programs with one environment.
class PartedEnvironment final : public vfs::RootEnvironment {
 public:
  PartedEnvironment(fingerprint::Fingerprint facts, fingerprint::Fact trust)
      : facts_(std::move(facts)), trust_(std::move(trust)) {
    facts_.set(fingerprint::Facet::kTrust, trust_);
  }
  layout::Scope scope_of(layout::Family family, std::string_view architecture) const override {
    return layout::scope_of(family, facts_, architecture);
  }
  bool follows(const remote::ScopeId& scope, std::string_view path) const override {
    return has_scope(facts_, scope, path);
  }
  std::vector<remote::ScopeId> scope_ids() const override { return scopes_of(facts_); }
  fingerprint::Fact shared_with() const override { return trust_; }
  std::shared_ptr<const fingerprint::ExpectedFacts> expected() const override {
    return std::make_shared<const fingerprint::ExpectedFacts>(facts_);
  }

 private:
  fingerprint::Fingerprint facts_;
  fingerprint::Fact trust_;
};

}  // namespace

fingerprint::Fact FakeEnvironment::shared_with() const {
  fingerprint::Fact everybody;
  everybody.known = true;
  everybody.value = fingerprint::kNone;
  return everybody;
}

std::shared_ptr<const vfs::RootEnvironment> FakeEnvironment::environment_of(const vfs::RootAccess& root,
                                                                            std::string_view job,
                                                                            Milliseconds /*patience*/) const {
  const bool is_users = parts_ && root.uid != 0 && root.uid != ::getuid();
  if (!is_users && job.empty()) return nullptr;
  return facts_.with([&](Facts& facts) {
    auto& environment = facts.parted[{is_users ? root.uid : 0, std::string(job)}];
    if (environment) return environment;
    fingerprint::Fact trust = shared_with();
    if (is_users) trust.value = "user=" + facts.prefix + std::to_string(root.uid);
    if (is_users && (asks_ || fails_)) trust = {};
    auto all = facts.now;
    if (!job.empty()) {
      const bool known = std::any_of(facts.jobs.begin(), facts.jobs.end(),
                                     [&](const auto& one) { return !one.second.empty() && id_of(one.second) == job; });
      if (!known) trust = {};
      fingerprint::Fact torch;
      torch.known = known;
      torch.value = std::string(job);
      all.set(fingerprint::Facet::kTorch, torch);
      torch.value = "all jobs have one, and the host has none";
      all.set(fingerprint::Facet::kTriton, torch);
    }
    environment = std::make_shared<const PartedEnvironment>(all, trust);
    return environment;
  });
}

void FakeEnvironment::learn(std::map<pid_t, std::string> jobs) {
  learns_ = true;
  facts_.with([&](Facts& facts) {
    facts.jobs = std::move(jobs);
    facts.parted.clear();
  });
}

vfs::Job FakeEnvironment::job_of(pid_t thread, bool makes) const {
  if (on_job_asked) on_job_asked();
  return facts_.with([&](const Facts& facts) -> vfs::Job {
    const auto found = facts.jobs.find(thread);
    if (found == facts.jobs.end()) return {};
    if (found->second == kNotYet && !makes) return {vfs::Job::Kind::kLater, {}};
    if (found->second.empty() || found->second == kNotYet) return {vfs::Job::Kind::kUnknown, {}};
    return {vfs::Job::Kind::kKnown, id_of(found->second)};
  });
}

std::shared_ptr<const fingerprint::ExpectedFacts> FakeEnvironment::expected() const {
  return facts_.with([](const Facts& facts) { return std::make_shared<const fingerprint::ExpectedFacts>(facts.now); });
}

Result<void> FakeEnvironment::check(const layout::Classification& classified, std::string_view bytes, uint64_t size,
                                    std::span<const remote::ScopeId>) const {
  if (check_) INDUCTORFS_TRY(check_(classified, bytes, size));
  if (classified.family != layout::Family::kFxGraph) return {};
  const std::string name = classified.canonical.substr(classified.canonical.rfind('/') + 1);
  if (bytes.size() != size || codec::torch_hash(bytes) != name) {
    return fail(ErrorCode::kCorrupt, name + ": its name is not the hash of its content");
  }
  return {};
}

}  // namespace inductorfs::testing
