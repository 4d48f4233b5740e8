// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/root_scopes.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "vfs/read/cluster_changes.h"
#include "vfs/read/compile_leases.h"
#include "vfs/tree/branch_paths.h"

namespace inductorfs::vfs {
namespace {

/// Whose a root is, is looked at for each request; what that user is called, this often.
constexpr Milliseconds kLookAgain{60'000};
constexpr Milliseconds kTryAgain{1'000};
/// One of the roots that have gone may stand in the way of a new one (Host::environment_of).
constexpr Milliseconds kPruneAgain{5'000};

bool is_same(const RootAccess& one, const RootAccess& other) {
  return one.uid == other.uid && one.gid == other.gid && one.mode == other.mode;
}

}  // namespace

RootScopes::RootScopes(const Context& context) : Context(context) {
  if (host_.parts_roots()) (void)catalog_.show({}, host_.scope_ids());  // nobody knows a name yet
}

const RootEnvironment& RootScopes::environment_in_root(const Root& root) const {
  return root.environment ? *root.environment : host_;
}

RootScopes::Root RootScopes::root_with(std::string_view path, const RootAccess& access, Milliseconds patience) const {
  const uint64_t accounts = host_.accounts();
  Root root{access, host_.environment_of(access, environment_in(path), patience)};
  root.accounts = accounts;
  root.is_settled = environment_in_root(root).shared_with().known;
  root.looked = std::chrono::steady_clock::now();
  return root;
}

/// As the root is now. One that nobody has used yet, whose directory has another owner than when it was used last, or
/// whose owner had no name then, is found out about each time, without a wait.
RootScopes::Root RootScopes::find(std::string_view root) const {
  if (!host_.parts_roots()) return {};
  const auto access = known_roots_.access_of({std::string(), std::string(root)});
  if (!access) return {};
  const auto known = roots_.read([&](const Roots& roots) -> std::optional<Root> {
    const auto found = roots.find(root);
    return found == roots.end() ? std::nullopt : std::optional(found->second);
  });
  const bool is_same_user = known && is_same(known->access, *access) && known->accounts == host_.accounts();
  if (is_same_user && known->is_settled) return *known;
  if (root.empty() && !known) return {*access, nullptr, host_.shared_with().known};
  return root_with(root, *access, early_patience());
}

bool RootScopes::is_current(const std::string& root, const RootAccess& access) const {
  const auto now = std::chrono::steady_clock::now();
  const uint64_t accounts = host_.accounts();
  return roots_.read([&](const Roots& roots) {
    const auto known = roots.find(root);
    if (known == roots.end() || !is_same(known->second.access, access)) return false;
    if (known->second.accounts != accounts) return false;
    return now - known->second.looked < (known->second.is_settled ? kLookAgain : kTryAgain);
  });
}

bool RootScopes::use(const std::string& root, Milliseconds patience) {
  if (root.empty() || !host_.parts_roots()) return false;
  const auto access = known_roots_.access_of({std::string(), root});
  if (!access || is_current(root, *access)) return false;
  // Before the question: one that has gone may stand in the way of this one.
  changing_.with([&](SteadyTime& next) {
    if (std::chrono::steady_clock::now() < next) return;
    next = std::chrono::steady_clock::now() + kPruneAgain;
    drop_gone_roots();
  });
  const Root now = root_with(root, *access, std::max(patience, early_patience()));
  Changes changes;
  const bool is_new = changing_.with([&](SteadyTime&) { return take_up(root, now, changes); });
  tell(changes);
  // The first job of a user finds what the cluster has, as that of the mountpoint does.
  if (is_new && patience.count() > 0) (void)catalog_.wait_synced(Deadline::after(patience));
  return is_new;
}

/// Returns whether the root has an environment of its own that it had not before.
bool RootScopes::take_up(const std::string& root, const Root& now, Changes& changes) {
  const auto before = roots_.write([&](Roots& roots) -> std::optional<Root> {
    const auto [known, first] = roots.try_emplace(root, now);
    if (first) return std::nullopt;
    return std::exchange(known->second, now);
  });
  if (before && before->environment == now.environment) return false;
  if (before || now.environment) follow_all();
  show(root, environment_in_root(now).scope_ids(), changes);
  return now.environment != nullptr;
}

void RootScopes::show(const std::string& root, const std::vector<remote::ScopeId>& scopes, Changes& changes) {
  auto paths = catalog_.show(root, scopes);
  if (!paths.empty()) changes.emplace_back(root, std::move(paths));
}

void RootScopes::tell(const Changes& changes) const {
  for (const auto& [root, paths] : changes) {
    changes_.on_shown(root, paths);
    leases_.changed(paths);
  }
}

void RootScopes::follow_all() {
  auto ids = host_.scope_ids();
  std::set<const RootEnvironment*> used;
  roots_.read([&](const Roots& roots) {
    for (const auto& [path, root] : roots) {
      if (root.environment == nullptr || !used.insert(root.environment.get()).second) continue;
      std::ranges::move(root.environment->scope_ids(), std::back_inserter(ids));
    }
  });
  catalog_.follow(ids);
}

/// A name that is used again is taken up again.
void RootScopes::drop_gone_roots() {
  const auto known = roots_.read([](const Roots& roots) {
    std::vector<std::string> paths;
    for (const auto& [path, root] : roots) paths.push_back(path);
    return paths;
  });
  const bool are_many = known.size() > 2 * KnownRoots::kMost;
  const auto used = are_many ? known_roots_.paths() : std::vector<std::string>();  // in order
  for (const auto& root : known) {
    const bool stays = !are_many || std::ranges::binary_search(used, root);
    if (root.empty() || (stays && known_roots_.access_of({std::string(), root}))) continue;
    roots_.write([&](Roots& roots) { roots.erase(root); });
    catalog_.forget_shown(root);
  }
}

void RootScopes::directory_changed(const std::string& path) {
  if (!host_.parts_roots()) return;
  if (path.empty()) {
    const auto access = known_roots_.access_of({});
    if (!access) return;
    Changes changes;
    changing_.with([&](SteadyTime&) { (void)take_up(path, root_with(path, *access, Milliseconds(0)), changes); });
    return tell(changes);
  }
  const auto below = roots_.read([&](const Roots& roots) {
    std::vector<std::string> paths;
    if (roots.contains(path)) paths.push_back(path);
    for (auto at = roots.lower_bound(path + "/"); at != roots.end() && at->first.starts_with(path + "/"); ++at) {
      paths.push_back(at->first);
    }
    return paths;
  });
  for (const auto& root : below) (void)use(root, Milliseconds(0));
}

void RootScopes::host_changed() {
  Changes changes;
  changing_.with([&](SteadyTime&) {
    auto roots = roots_.read([](const Roots& known) { return known; });
    for (auto& [path, root] : roots) root = root_with(path, root.access, Milliseconds(0));
    roots_.write([&](Roots& known) {
      for (const auto& [path, root] : roots) known.insert_or_assign(path, root);
    });
    follow_all();
    if (!host_.parts_roots()) return;
    show({}, host_.scope_ids(), changes);
    for (const auto& [path, root] : roots) show(path, environment_in_root(root).scope_ids(), changes);
  });
  tell(changes);
}

layout::Scope RootScopes::scope_of(std::string_view path, layout::Family family, std::string_view architecture) const {
  return environment_in_root(find(layout::name_of(path).root)).scope_of(family, architecture);
}

bool RootScopes::follows(std::string_view path, const catalog::KnownEntry& known) const {
  return environment_in_root(find(layout::name_of(path).root)).follows(known.scope, known.entry.path);
}

std::shared_ptr<const fingerprint::ExpectedFacts> RootScopes::expected(std::string_view path) const {
  return environment_in_root(find(layout::name_of(path).root)).expected();
}

bool RootScopes::is_settled(std::string_view path) const { return find(layout::name_of(path).root).is_settled; }

bool RootScopes::is_settling(std::string_view path) const {
  if (!host_.parts_roots()) return false;
  const auto access = known_roots_.access_of(layout::name_of(path));
  return access && host_.is_asking(*access);
}

std::string RootScopes::why_not_shared(std::string_view path, const Makers& makers) const {
  if (!host_.parts_roots()) return {};
  const auto access = known_roots_.access_of(layout::name_of(path));
  // Without its root the path is no file's any more: whoever asked finds that out.
  if (!access) return {};
  const auto told = [&](const std::string& who, const char* what) {
    return who + what + " in a cache root of user " + std::to_string(access->uid) +
           ", and what others put there is not shared (--trust); give each user a directory of his own";
  };
  for (const uid_t user : makers.users) {
    if (host_.may_share(*access, user)) continue;
    const bool owns = user == makers.users.front();
    return told("user " + std::to_string(user), owns ? " made it" : " has written to it, or has given it its name,");
  }
  constexpr const char* kMapped = " may have written to it through a shared mapping,";
  for (const gid_t group : makers.groups) {
    if (!host_.may_group_share(*access, group)) return told("a member of the group " + std::to_string(group), kMapped);
  }
  const bool all = !makers.anybody || host_.may_share(*access, kAnyUser);
  return all ? std::string() : told("any user", kMapped);
}

std::string RootScopes::shared_with(const std::string& root) const {
  const auto with = environment_in_root(find(root)).shared_with();
  if (!with.known) return "nobody: " + with.problem;
  return with.is_none() ? "everybody" : with.value;
}

}  // namespace inductorfs::vfs
