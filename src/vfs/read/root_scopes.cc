// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/root_scopes.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

namespace inductorfs::vfs {
namespace {

bool is_same(const RootAccess& one, const RootAccess& other) {
  return one.uid == other.uid && one.gid == other.gid && one.mode == other.mode;
}

}  // namespace

RootScopes::RootScopes(const Services& services, RootTree& tree)
    : host_(services.host), catalog_(services.catalog), tree_(tree) {
  if (host_.parts_roots()) catalog_.show({}, host_.scope_ids());
}

const RootEnvironment& RootScopes::environment_in(const Root& root) const {
  return root.environment ? *root.environment : host_;
}

RootScopes::Root RootScopes::root_with(const RootAccess& access) const {
  Root root{access, host_.environment_of(access)};
  root.is_settled = environment_in(root).shared_with().known;
  return root;
}

/// A root that nobody has asked for yet is found out about each time.
RootScopes::Root RootScopes::find(std::string_view root) const {
  if (root.empty() || !host_.parts_roots()) return {};
  const auto known = roots_.read([&](const Roots& roots) -> std::optional<Root> {
    const auto found = roots.find(root);
    return found == roots.end() ? std::nullopt : std::optional(found->second);
  });
  if (known) return *known;
  const auto access = tree_.access_of_root({std::string(), std::string(root)});
  return access ? root_with(*access) : Root{};
}

bool RootScopes::is_current(const std::string& root, const RootAccess& access) const {
  return roots_.read([&](const Roots& roots) {
    const auto known = roots.find(root);
    return known != roots.end() && is_same(known->second.access, access) && known->second.is_settled;
  });
}

void RootScopes::use(const std::string& root, Milliseconds patience) {
  if (root.empty() || !host_.parts_roots()) return;
  const auto access = tree_.access_of_root({std::string(), root});
  if (!access || is_current(root, *access)) return;
  const Root now = root_with(*access);
  const bool is_new = changing_.with([&](bool&) { return take_up(root, now); });
  // The first job of a user finds what the cluster has, as that of the mountpoint does.
  if (is_new && patience.count() > 0) (void)catalog_.wait_synced(Deadline::after(patience));
}

/// Returns whether the root has an environment of its own that it had not before.
bool RootScopes::take_up(const std::string& root, const Root& now) {
  prune();
  const auto before = roots_.write([&](Roots& roots) -> std::optional<Root> {
    const auto [known, first] = roots.try_emplace(root, now);
    if (first) return std::nullopt;
    return std::exchange(known->second, now);
  });
  if (before ? before->environment == now.environment : now.environment == nullptr) return false;
  follow_all();
  catalog_.show(root, environment_in(now).scope_ids());
  return now.environment != nullptr;
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

/// A root that is asked for again is taken up again.
void RootScopes::prune() {
  const bool full = roots_.read([](const Roots& roots) { return roots.size() > 2 * RootTree::kMostRoots; });
  if (!full) return;
  const auto used = tree_.roots();  // in order
  const auto gone = roots_.write([&](Roots& roots) {
    std::vector<std::string> paths;
    for (auto at = roots.begin(); at != roots.end();) {
      const bool stays = std::ranges::binary_search(used, at->first);
      if (!stays) paths.push_back(at->first);
      at = stays ? std::next(at) : roots.erase(at);
    }
    return paths;
  });
  for (const auto& root : gone) catalog_.forget_shown(root);
}

void RootScopes::directory_changed(const std::string& path) {
  if (roots_.read([&](const Roots& roots) { return roots.contains(path); })) use(path);
}

void RootScopes::host_changed() {
  changing_.with([&](bool&) {
    auto roots = roots_.read([](const Roots& known) { return known; });
    for (auto& [path, root] : roots) root = root_with(root.access);
    roots_.write([&](Roots& known) {
      for (const auto& [path, root] : roots) known.insert_or_assign(path, root);
    });
    follow_all();
    if (!host_.parts_roots()) return;
    catalog_.show({}, host_.scope_ids());
    for (const auto& [path, root] : roots) catalog_.show(path, environment_in(root).scope_ids());
  });
}

layout::Scope RootScopes::scope_of(std::string_view path, layout::Family family, std::string_view architecture) const {
  return environment_in(find(layout::name_of(path).root)).scope_of(family, architecture);
}

bool RootScopes::follows(std::string_view path, const catalog::KnownEntry& known) const {
  return environment_in(find(layout::name_of(path).root)).follows(known.scope, known.entry.path);
}

bool RootScopes::is_settled(std::string_view path) const { return find(layout::name_of(path).root).is_settled; }

std::string RootScopes::why_not_shared(std::string_view path, uid_t owner) const {
  const std::string root = layout::name_of(path).root;
  const Root known = find(root);
  const auto with = environment_in(known).shared_with();
  if (!with.value.starts_with("user=")) return {};
  const uid_t user = root.empty() ? tree_.options().owner_uid : known.access.uid;
  if (owner == user) return {};
  return "user " + std::to_string(owner) + " made it in a cache root of " + with.value.substr(5) +
         ", and only what that user makes is shared from there (--trust user); give each user a directory of his own";
}

std::string RootScopes::shared_with(const std::string& root) const {
  const auto with = environment_in(find(root)).shared_with();
  if (!with.known) return "nobody: " + with.problem;
  return with.is_none() ? "everybody" : with.value;
}

}  // namespace inductorfs::vfs
