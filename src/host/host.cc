// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/host/host.h"

#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/log.h"
#include "inductorfs/config/paths.h"

namespace inductorfs::host {
namespace {

using fingerprint::Facet;
using fingerprint::Fact;
using fingerprint::Fingerprint;

/// Sets of facts that are remembered for what the catalog still has in hand.
constexpr size_t kEarlierLimit = 2 * ThisHost::kMostEnvironments;

/// How long a program waits at its first lookup, and once more before it makes something, while its packages are read
/// that this host has never seen: 0.4 s for torch 2.15 with Triton (tests/bench/fingerprint_costs learn).
constexpr Milliseconds kJobPatience{5'000};

/// The first of the variables that count, by which people tell one environment from another. A job chose the values.
std::string variables_text(std::string_view value) {
  constexpr size_t kShown = 4;
  constexpr size_t kMostBytes = 64;
  std::string text;
  size_t count = 0;
  for (const std::string_view line : fingerprint::lines_of(value)) {
    if (line.find('=') == std::string_view::npos || ++count > kShown) continue;
    text += (text.empty() ? "with " : " ") + config::printable(line.substr(0, kMostBytes));
  }
  return count > kShown ? text + " and " + std::to_string(count - kShown) + " more variables" : text;
}

bool have_same_values(const Fingerprint& one, const Fingerprint& other) {
  return std::all_of(std::begin(fingerprint::kAllFacets), std::end(fingerprint::kAllFacets), [&](Facet facet) {
    return one.get(facet).known == other.get(facet).known && one.get(facet).value == other.get(facet).value;
  });
}

}  // namespace

Scopes::Scopes(const Fingerprint& facts) {
  for (const layout::Rule& rule : layout::all_rules()) {
    FamilyScopes family{layout::scope_of(rule.family, facts), layout::scopes_of(rule.family, facts)};
    const auto same = [&family](const layout::Scope& scope) { return scope.id == family.scope.id; };
    if (std::none_of(family.all.begin(), family.all.end(), same)) family.all.push_back(family.scope);
    families_.emplace(rule.family, std::move(family));
  }
  const auto all = ids();
  ids_.insert(all.begin(), all.end());
}

const Scopes::FamilyScopes& Scopes::scopes_of(layout::Family family) const {
  const auto at = families_.find(family);
  INDUCTORFS_CHECK(at != families_.end());  // all_rules() has every family
  return at->second;
}

const layout::Scope& Scopes::of(layout::Family family) const { return scopes_of(family).scope; }

const std::vector<layout::Scope>& Scopes::all_of(layout::Family family) const { return scopes_of(family).all; }

std::vector<remote::ScopeInformation> Scopes::information() const {
  std::map<remote::ScopeId, remote::ScopeInformation> found;
  for (const auto& [family, scopes] : families_) {
    const layout::Rule& rule = layout::rule_of(family);
    if (!rule.shared) continue;
    for (const layout::Scope& scope : scopes.all) {
      if (!scope.id.empty())
        found.emplace(scope.id, remote::ScopeInformation{scope.id, std::string(rule.name), scope.text});
    }
  }
  std::vector<remote::ScopeInformation> list;
  list.reserve(found.size());
  for (auto& [id, information] : found) list.push_back(std::move(information));
  return list;
}

std::vector<remote::ScopeId> Scopes::ids() const {
  std::vector<remote::ScopeId> ids;
  for (const remote::ScopeInformation& scope : information()) ids.push_back(scope.id);
  return ids;
}

bool Scopes::accepts(const remote::ScopeId& scope, std::string_view path) const {
  if (!ids_.contains(scope)) return false;
  const layout::Classification classified = layout::classify(path);
  // A path that some root shows under another name is none of the cluster's.
  if (scope.empty() || classified.canonical != path || !layout::rule_of(classified.family).shared) return false;
  const std::vector<layout::Scope>& all = all_of(classified.family);
  return std::any_of(all.begin(), all.end(), [&scope](const layout::Scope& one) { return one.id == scope; });
}

std::vector<PrivateFamily> private_families(const Scopes& scopes) {
  std::vector<PrivateFamily> found;
  for (const layout::Rule& rule : layout::all_rules()) {
    const std::vector<layout::Scope>& all = scopes.all_of(rule.family);
    const bool none = std::all_of(all.begin(), all.end(), [](const layout::Scope& scope) { return scope.id.empty(); });
    if (rule.shared && none && !scopes.of(rule.family).unused)
      found.push_back({std::string(rule.name), scopes.of(rule.family).why_private});
  }
  return found;
}

HostState::HostState(Fingerprint learned, fingerprint::Fact with, PlaceReader reader)
    : facts(std::move(learned)),
      trust(std::move(with)),
      facts_and_trust_([this] {
        Fingerprint both = facts;
        both.set(Facet::kTrust, trust);
        return both;
      }()),
      expected_(std::make_shared<const fingerprint::ExpectedFacts>(facts)),
      scopes(facts_and_trust_),
      reader_(std::move(reader)) {}

layout::Scope HostState::scope_of(layout::Family family, std::string_view architecture) const {
  return architecture.empty() ? scopes.of(family) : layout::scope_of(family, facts_and_trust_, architecture);
}

const layout::HostLimits& HostState::limits() const {
  std::call_once(looked_, [this] { limits_ = limits_of(facts, reader_); });
  return limits_;
}

ThisHost::ThisHost(Fingerprint facts, std::unique_ptr<fingerprint::Writers> writers, PlaceReader reader,
                   fingerprint::TrustPolicy trust, vfs::RootAccess mountpoint, fingerprint::AskName ask,
                   std::unique_ptr<LearnedEnvironments> learned)
    : reader_(std::move(reader)),
      trust_(trust, std::move(ask)),
      mountpoint_(mountpoint),
      learned_(std::move(learned)),
      writers_(std::move(writers)) {
  auto state = std::make_shared<const HostState>(std::move(facts),
                                                 trust_of(mountpoint_, fingerprint::Trust::kFirstWait), reader_);
  states_.write([&](States& states) { states.now = std::move(state); });
}

std::shared_ptr<const HostState> ThisHost::state() const {
  return states_.read([](const States& states) { return states.now; });
}

void ThisHost::States::retire(std::shared_ptr<const HostState> state) {
  earlier.push_back(std::move(state));
  if (earlier.size() > kEarlierLimit) earlier.erase(earlier.begin());
}

void ThisHost::replace(Fingerprint facts) {
  const auto fresh = std::make_shared<const HostState>(std::move(facts),
                                                       trust_of(mountpoint_, fingerprint::Trust::kFirstWait), reader_);
  const bool same = have_same_values(state()->facts, fresh->facts);
  states_.write([&](States& states) {
    if (!same) {
      states.retire(std::move(states.now));
      for (auto& [trust, state] : std::exchange(states.parted, {})) states.retire(std::move(state));
    }
    states.now = fresh;
  });
}

/// What shares with nobody costs the cluster nothing, and takes no place of one that does.
bool ThisHost::is_too_many(const States& states, const fingerprint::Fact& trust) {
  if (!trust.known) return states.parted.size() >= 2 * kMostEnvironments;
  size_t all = 0;
  size_t own = 0;
  for (const auto& [key, state] : states.parted) {
    const fingerprint::Fact with = state->shared_with();
    if (!with.known) continue;
    ++all;
    if (with.value == trust.value) ++own;
  }
  return all >= kMostEnvironments || (own >= kMostOfOne && !trust.is_none());
}

std::shared_ptr<const HostState> ThisHost::parted_state(States& states, std::string_view job,
                                                        fingerprint::Fact trust) const {
  const auto key_of = [job](const fingerprint::Fact& with) {
    return std::string(job) + "\n" + (with.known ? with.value : "?" + with.problem);
  };
  std::string key = key_of(trust);
  if (const auto found = states.parted.find(key); found != states.parted.end()) return found->second;
  if (states.parted.size() >= kMostEnvironments) {
    std::erase_if(states.parted, [](const auto& one) { return one.second.use_count() == 1; });
  }
  if (is_too_many(states, trust)) {
    trust = {};
    trust.problem = "more users and environments have cache roots here than are kept apart (" +
                    std::to_string(kMostEnvironments) + ", " + std::to_string(kMostOfOne) +
                    " of one user): remove roots that nobody uses, or mount another directory for some of them";
    key = key_of(trust);
    if (const auto found = states.parted.find(key); found != states.parted.end()) return found->second;
  }
  ++states.made;
  const auto facts = job.empty() || !learned_ ? std::nullopt : learned_->find(job);
  auto state = std::make_shared<const HostState>(
      facts ? fingerprint::with_job(states.now->facts, *facts) : states.now->facts, std::move(trust), reader_);
  return states.parted.try_emplace(key, std::move(state)).first->second;
}

std::shared_ptr<const vfs::RootEnvironment> ThisHost::environment_of(const vfs::RootAccess& root, std::string_view job,
                                                                     Milliseconds patience) const {
  if (!parts_roots()) return nullptr;
  fingerprint::Fact trust = trust_of(root, patience);
  if (!job.empty() && (!learns() || !learned_->find(job))) {
    trust = {};
    trust.problem =
        "in which environment this was made is not known: its programs could not be looked at in time, or more "
        "environments are in use here than are kept apart; see \"not known\" in inductorfs status";
  }
  bool has_new_scopes = false;
  auto environment = states_.write([&](States& states) -> std::shared_ptr<const vfs::RootEnvironment> {
    const fingerprint::Fact& mine = states.now->trust;
    if (job.empty() && trust.known == mine.known && trust.value == mine.value) return nullptr;
    const uint64_t before = states.made;
    auto state = parted_state(states, job, std::move(trust));
    has_new_scopes = states.made != before;
    return state;
  });
  if (has_new_scopes) new_scopes_();
  return environment;
}

vfs::Job ThisHost::job_of(pid_t thread, bool makes) const {
  using Kind = fingerprint::JobFacts::Kind;
  const SteadyTime now = system_clock().now();
  const size_t place = static_cast<size_t>(std::max(thread, 0)) % kRecentJobs;
  const uint64_t program = writers_->program_of(thread);
  std::string known = recent_jobs_.with([&](const auto& recent) {
    const bool is_same = recent[place].thread == thread && recent[place].program == program;
    return program != 0 && is_same && now < recent[place].until ? recent[place].environment : std::string();
  });
  if (!known.empty()) return {vfs::Job::Kind::kKnown, std::move(known)};
  const fingerprint::JobFacts job = writers_->job_of(thread, {makes, kJobPatience, goes_on_});
  if (job.kind == Kind::kNeither) return {};
  if (job.kind == Kind::kKnown) {
    std::string id = learned_->take(job.facts, job.user, [this] { return writers_->environments_in_use(); });
    if (!id.empty()) {
      recent_jobs_.with([&](auto& recent) { recent[place] = {thread, program, now + kAnswerLasts, id}; });
      return {vfs::Job::Kind::kKnown, std::move(id)};
    }
  }
  log::write_limited(log::Level::kWarning, "host.job_unknown", {{"thread", thread}, {"why", job.why}});
  return {job.kind == Kind::kLater ? vfs::Job::Kind::kLater : vfs::Job::Kind::kUnknown, {}};
}

std::vector<fingerprint::UnknownJobs> ThisHost::unknown_jobs() const {
  return learns() ? writers_->unknown_jobs() : std::vector<fingerprint::UnknownJobs>();
}

std::vector<std::string> ThisHost::lacking() const {
  constexpr size_t kMost = 10;
  std::set<std::string> lines;
  const auto add = [&lines](const HostState& state) {
    for (const Facet facet : {Facet::kGpu, Facet::kEnvironment}) {
      const Fact& fact = state.facts.get(facet);
      if (!fact.known && lines.size() < kMost) lines.insert(std::string(to_string(facet)) + ": " + fact.problem);
    }
  };
  if (!learns()) return {};
  states_.read([&](const States& states) {
    add(*states.now);
    for (const auto& [key, state] : states.parted) {
      if (state.use_count() > 1) add(*state);
    }
  });
  return {lines.begin(), lines.end()};
}

void ThisHost::expect_job(pid_t thread) const {
  const SteadyTime now = system_clock().now();
  const bool is_due = expected_.with([&](auto& expected) {
    RecentJob& place = expected[static_cast<size_t>(std::max(thread, 0)) % kRecentJobs];
    if (place.thread == thread && now < place.until) return false;
    place = {thread, 0, now + kExpectAgain, {}};
    return true;
  });
  if (is_due) writers_->expect(thread);
}

std::string ThisHost::environment_text(std::string_view job) const {
  const auto facts = learns() ? learned_->find(job) : std::nullopt;
  if (!facts) return "programs whose environment is not known (host.job_unknown in the log says why)";
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
  for (const Facet facet : {Facet::kTorch, Facet::kTriton, Facet::kPython}) {
    const Fact& fact = facts->get(facet);
    const auto version = fingerprint::values_of(fact.value, facet == Facet::kPython ? "soabi" : "version");
    const std::string name(to_string(facet));
    if (!fact.known) {
      add(name + " not known");
    } else if (!version.empty()) {
      add(facet == Facet::kPython ? version.front() : name + " " + version.front());
    }
  }
  const Fact& engine = facts->get(Facet::kEngine);
  for (const std::string_view line : fingerprint::lines_of(engine.value)) {
    const auto parts = fingerprint::split_line(line);
    if (parts) add(std::string(parts->first) + " " + std::string(parts->second.substr(0, parts->second.find(' '))));
  }
  const Fact& variables = facts->get(Facet::kEnvironment);
  if (variables.known && !variables.value.empty() && !variables.is_none()) {
    add(variables_text(variables.value));
  }
  return text;
}

bool ThisHost::is_asking(const vfs::RootAccess& root) const {
  return parts_users() && trust_.is_asking(root.uid, root.gid);
}

bool ThisHost::may_share(const vfs::RootAccess& root, uid_t user) const {
  if (!parts_users() || user == root.uid) return true;
  // Who may write to a directory of root's is for root to say; below one that is root's alone, others have no say.
  if (root.uid == 0) return (root.mode & (S_IWGRP | S_IWOTH)) != 0;
  if (user == vfs::kAnyUser) return false;
  return trust_.policy() == fingerprint::TrustPolicy::kGroup && trust_.is_member(user, root.gid);
}

bool ThisHost::may_group_share(const vfs::RootAccess& root, gid_t group) const {
  if (!parts_users()) return true;
  if (root.uid == 0) return (root.mode & (S_IWGRP | S_IWOTH)) != 0;
  if (trust_.policy() == fingerprint::TrustPolicy::kGroup) return group == root.gid;
  return trust_.is_own_group(root.uid, group);
}

std::vector<remote::ScopeInformation> ThisHost::information() const {
  auto all = state()->scopes.information();
  const auto parted = states_.read([](const States& states) { return states.parted; });
  for (const auto& [trust, state] : parted) std::ranges::move(state->scopes.information(), std::back_inserter(all));
  return all;
}

bool ThisHost::follows(const remote::ScopeId& scope, std::string_view path) const {
  return state()->follows(scope, path);
}

std::vector<remote::ScopeId> ThisHost::scope_ids() const { return state()->scope_ids(); }

fingerprint::Fact ThisHost::shared_with() const { return state()->shared_with(); }

std::shared_ptr<const fingerprint::ExpectedFacts> ThisHost::expected() const { return state()->expected(); }

bool ThisHost::accepts(const remote::ScopeId& scope, std::string_view path) const {
  if (state()->scopes.accepts(scope, path)) return true;
  return states_.read([&](const States& states) {
    return std::any_of(states.parted.begin(), states.parted.end(),
                       [&](const auto& one) { return one.second->scopes.accepts(scope, path); }) ||
           std::any_of(states.earlier.begin(), states.earlier.end(),
                       [&](const auto& past) { return past->scopes.accepts(scope, path); });
  });
}

layout::Scope ThisHost::scope_of(layout::Family family, std::string_view architecture) const {
  return state()->scope_of(family, architecture);
}

Result<void> ThisHost::check(const layout::Classification& classified, std::string_view bytes, uint64_t size,
                             std::span<const remote::ScopeId> scopes) const {
  const auto now = state();
  if (!learns()) return layout::check_content(classified, bytes, size, now->limits());
  std::vector<std::shared_ptr<const HostState>> all{now};
  states_.read([&](const States& states) {
    for (const auto& [key, environment] : states.parted) all.push_back(environment);
  });
  std::vector<std::shared_ptr<const HostState>> users;
  std::ranges::copy_if(all, std::back_inserter(users), [&](const auto& environment) {
    return std::ranges::any_of(
        scopes, [&](const auto& scope) { return environment->scopes.accepts(scope, classified.canonical); });
  });
  // Environments of one scope may differ in what their libraries offer, and none is to load what it cannot.
  Result<void> result;
  for (const auto& environment : users.empty() ? all : users) {
    auto fits = layout::check_content(classified, bytes, size, environment->limits());
    if (fits && users.empty()) return fits;
    if (!fits && result) result = std::move(fits);
  }
  return result;
}

uint64_t ThisHost::environments_made() const {
  return states_.read([](const States& states) { return states.made; });
}

}  // namespace inductorfs::host
