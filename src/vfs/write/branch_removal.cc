// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/branch_removal.h"

#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <set>

#include "inductorfs/takeover/request_slots.h"
#include "vfs/tree/paths.h"

namespace inductorfs::vfs {

bool BranchRemoval::is_free(const std::string& directory, bool branches_count) const {
  if (!tree_.has_something(directory)) return true;
  const auto items = disk_.list(LocalTree::view(directory));
  // One that has something and no names has a pending set.
  return !branches_count && items && !items->empty() &&
         std::ranges::all_of(*items, [&](const auto& item) { return is_branch_name(item.name); });
}

void BranchRemoval::prepare(const std::string& directory, bool is_for_all, const Caller& caller) {
  const auto all = branches_.are_on() ? branches_.directories_for(directory) : branches_.of(directory);
  if (all.empty() || !is_free(directory, false)) return;
  const Remover remover{caller.uid};
  if (!std::ranges::all_of(all, [&](const auto& one) { return may_remove(one, remover); })) return;
  // What an earlier mount has left, which learned environments: nobody sees it.
  if (!branches_.are_on()) {
    for (const auto& one : all) remove(one, remover);
    return;
  }
  // Who has nothing there has removed nothing, and is told that the directory is not empty.
  const auto seen = branches_.seen_by(directory, caller);
  const bool others_have = std::ranges::any_of(all, [&](const auto& one) { return !is_free(one, true); });
  const bool is_root = is_branch_name(last_component(all.front()));
  const bool has_worked =
      is_for_all || std::ranges::any_of(seen, [&](const auto& one) { return branches_.has_worked(one); });
  if (others_have && (seen.empty() || !has_worked || !(is_root || is_for_all))) return;
  if (!std::ranges::all_of(seen, [&](const auto& one) { return is_free(one, true); })) return;
  for (const auto& one : all) remove(one, remover);
}

/// Says whether all that is at this path may go.
bool BranchRemoval::may_remove(const std::string& path, const Remover& remover) const {
  takeover::note_progress();
  const auto status = disk_.stat(LocalTree::view(path));
  if (!status || !*status) return true;
  if (!remover.may_remove((*status)->st_uid) && !is_branch_name(last_component(path))) return false;
  if (!S_ISDIR((*status)->st_mode)) return true;
  const auto items = disk_.list(LocalTree::view(path));
  return items &&
         std::ranges::all_of(*items, [&](const auto& item) { return may_remove(join(path, item.name), remover); });
}

void BranchRemoval::remove_name(const std::string& directory, std::string_view name, const Caller& caller) {
  const auto common = common_directory(directory, name);
  if (!common) return;
  for (const auto& branch : branches_.of(common->root)) {
    const std::string path = join(common->in(branch), name);
    // It may be one that nobody has used since the mount began.
    (void)known_roots_.admit(layout::name_of(path));
    (void)scopes_.use(layout::name_of(path).root);
    hide(path);
    const auto status = disk_.stat(LocalTree::view(path));
    if (status && *status) remove(path, Remover{caller.uid});
  }
}

/// Hides what the cluster alone has there: what this host has is somebody's.
void BranchRemoval::hide(const std::string& path) {
  takeover::note_progress();
  for (const auto& item : shown_.in(nullptr, path)) hide(join(path, item.name));
  const auto status = disk_.stat(LocalTree::view(path));
  if (!status || *status) return;
  removal_.hide_entry(path);
  changes_.apply(path);
}

/// Returns whether the directory is gone.
bool BranchRemoval::remove_empty_common(const std::string& directory, int depth) {
  constexpr int kDepth = 24;  // below a root of any depth no layout is deeper
  if (!branches_.are_on() || depth > kDepth) return false;
  bool is_empty = true;
  for (const auto& item : disk_.list(LocalTree::view(directory)).value_or(std::vector<LocalTree::Item>{})) {
    const bool may_go = item.type == S_IFDIR && !is_branch_name(item.name);
    if (!may_go || !remove_empty_common(join(directory, item.name), depth + 1)) is_empty = false;
  }
  if (!is_empty || directory.empty()) return false;
  const size_t slash = directory.rfind('/');
  const std::string above = slash == std::string::npos ? std::string() : directory.substr(0, slash);
  if (!common_directory(above, last_component(directory))) return false;
  return moves_.read([&](const Moves&) { return tree_.remove_directory(directory).has_value(); });
}

void BranchRemoval::remove_unused() {
  if (!branches_.are_on()) return;
  std::set<std::string> roots{std::string()};
  for (const auto& root : known_roots_.paths()) roots.insert(root_of_branch(root));
  for (const auto& root : roots) {
    auto all = branches_.of(root);
    while (all.size() + 1 >= Branches::kMost) {
      const auto status = disk_.stat(LocalTree::view(all.back()));
      const auto unused =
          std::chrono::seconds(std::time(nullptr) - (status && *status ? (*status)->st_mtim.tv_sec : 0));
      if (unused < kUnused) break;
      remove(all.back(), Remover{});
      all.pop_back();
    }
  }
}

void BranchRemoval::remove(const std::string& path, const Remover& remover) {
  takeover::note_progress();
  const auto status = disk_.stat(LocalTree::view(path));
  if (!status || !*status) return;
  // The directory of a branch is the daemon's; it goes when it is empty.
  if (!remover.may_remove((*status)->st_uid) && !is_branch_name(last_component(path))) return;
  const bool is_directory = S_ISDIR((*status)->st_mode);
  if (is_directory) {
    for (const auto& item : disk_.list(LocalTree::view(path)).value_or(std::vector<LocalTree::Item>{})) {
      remove(join(path, item.name), remover);
    }
  }
  const auto parent = lookup_.pin_path(parent_path(path));
  if (!parent) return;
  const std::string name = last_component(path);
  const auto gone =
      is_directory ? names_.take_directory_away((*parent)->id, name) : names_.take_file_away((*parent)->id, name);
  if (gone) notifier_.forget_name((*parent)->id, name);
  tree_.unpin(*parent);
}

}  // namespace inductorfs::vfs
