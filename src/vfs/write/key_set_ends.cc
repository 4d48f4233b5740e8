// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "inductorfs/base/fail_point.h"
#include "vfs/tree/view_files.h"
#include "vfs/write/key_sets.h"

/// How pending sets of Triton key directories end: kept, dropped, or gone with the set that they stood behind.
namespace inductorfs::vfs {
namespace {

/// A set whose writer cannot be watched (another pid namespace) ends when nothing came for so long.
constexpr std::chrono::minutes kUnwatchedSetLife{10};

/// What a set that nobody will complete must not show: that its files belong together, where they do not.
bool may_show_group(const KeyState::WriterSet& set, std::set<std::string> beside, const LocalTree& tree,
                    const std::string& key) {
  beside.merge(set.names());
  return set.is_of_one_thread() && state_of_set(beside, tree, set.place, key) != SetState::kLacksChildren;
}

bool is_later(const struct stat& one, const struct stat& other) {
  return std::tie(one.st_mtim.tv_sec, one.st_mtim.tv_nsec) > std::tie(other.st_mtim.tv_sec, other.st_mtim.tv_nsec);
}

}  // namespace

/// Gives the files of a set that nobody will complete their names, and returns how many; the rest are not wanted: a
/// committed set has their names, or the view has what was written later. On an error what is left stays in the set.
Result<size_t> KeySets::keep(const NodePtr& directory, const std::string& path, KeyState& state,
                             const KeyState::WriterSet& set, std::vector<NodePtr>& gone) {
  const bool has_set = state.committed != KeyState::Committed::kNone;
  if (has_set && set.complete) return 0;  // of a process that came second
  const auto cut = has_set ? std::vector<std::string>{} : cut_set(disk_, path);
  const bool with_group = !has_set && may_show_group(set, {cut.begin(), cut.end()}, disk_, last_component(path));
  const auto all = set.names();
  std::vector<std::string> names(all.begin(), all.end());
  std::stable_partition(names.begin(), names.end(), [](const auto& name) { return !layout::is_group_file(name); });
  const bool is_set = with_group && !names.empty() && layout::is_group_file(names.back());
  size_t kept = 0;
  for (const auto& name : names) {
    if ((layout::is_group_file(name) && !with_group) || state.cluster.contains(name)) continue;
    const std::string place = join(set.place, name);
    INDUCTORFS_TRY_ASSIGN(const auto file, disk_.stat(place));
    INDUCTORFS_TRY_ASSIGN(const auto there, disk_.stat(LocalTree::view(join(path, name))));
    if (!file || (there && (has_set || !S_ISREG(there->st_mode)))) continue;
    if (there && !is_set && is_later(*there, *file)) continue;
    if (!is_set) {
      Provenance now = marks_.read(place);
      const Provenance before = now;
      now.make_private(Marks::kNoGroup);
      marks_.write(place, before, now);
      set_mark(disk_, place, kLeftMark, kUnseenLeft);
    }
    INDUCTORFS_TRY(tree_.make_view_directories(path));
    INDUCTORFS_TRY(give_name(directory, site_of(directory, path, name), place, gone));
    fail_point("set.kept");
    ++kept;
  }
  if (is_set) state.committed = KeyState::Committed::kLocal;
  return kept;
}

void KeySets::end_set(const NodePtr& directory, const SetOwner& owner) {
  std::string path;
  std::vector<NodePtr> gone;
  size_t kept = 0;
  const bool ended = moves_.read([&](const Moves&) {
    const auto now = nodes_.path_of(*directory);
    return directory->key->state.with([&](KeyState& state) {
      const auto set = state.writers.find(owner);
      if (set == state.writers.end()) return false;  // another thread was faster
      if (now) {
        path = *now;
        const auto done = keep(directory, path, state, set->second, gone);
        if (!done) return false;  // the disk is full, or out of order: the janitor tries again
        kept = *done;
      }
      remove_place(set->second.place);
      state.writers.erase(set);
      return true;
    });
  });
  let_go(directory, gone);
  if (!ended) return;
  if (kept > 0) {
    marks_.stays_here(path, std::string(Marks::kNoGroup), kept);
    changed_names_in(directory);
    notifier_.wish_content_forgotten(directory->id);
  }
  counters_.get(kept > 0 ? "triton.sets_kept" : "triton.sets_dropped").add();
  tree_.unpin(directory);
}

void KeySets::remove_place(const std::string& place) {
  for (const auto& item : disk_.list(place).value_or(std::vector<LocalTree::Item>{})) {
    (void)disk_.unlink(join(place, item.name));  // what stays is removed at the next start
    fail_point("set.dropped");
  }
  (void)disk_.remove_directory(place);
}

void KeySets::recover(const std::string& place, bool torn) {
  if (torn) return remove_place(place);
  const auto path = disk_.read_link(join(place, LocalTree::kWhereLink));
  KeyState::WriterSet set = set_at(place);
  std::vector<NodePtr> gone;
  if (path && !set.files.empty()) {
    const NodePtr directory = nodes_.find(*path);
    const auto use = [&](KeyState& state) { return keep(directory, *path, state, set, gone); };
    const auto kept = moves_.read([&](const Moves&) -> Result<size_t> {
      if (directory && directory->key) return directory->key->state.with(use);
      KeyState state;
      if (local_set_is_whole(disk_, *path).value_or(true)) state.committed = KeyState::Committed::kLocal;
      return use(state);
    });
    if (!kept) return;  // what stays is met again at the next start
    if (*kept > 0) marks_.stays_here(*path, std::string(Marks::kNoGroup), *kept);
    if (directory) let_go(directory, gone);
  }
  remove_place(place);
}

void KeySets::settle(NodeId directory) {
  const NodePtr node = nodes_.find(directory);
  if (!node || !node->key) return;
  end_dead_sets(node);
  // The first complete set may have gone since another one was complete. That is no reason to lift the marks of what
  // was deleted, perhaps the first set in another root.
  const auto next = node->key->state.with([](const KeyState& state) -> std::optional<SetOwner> {
    if (state.committed != KeyState::Committed::kNone) return std::nullopt;
    const auto set = std::ranges::find_if(state.writers, [](const auto& item) { return item.second.complete; });
    return set == state.writers.end() ? std::nullopt : std::optional(set->first);
  });
  const auto path = next ? nodes_.path_of(*node) : std::nullopt;
  if (path) commit_if_complete(node, *path, *next, next->process, true);
}

bool KeySets::remove_second(NodeId directory, std::string_view name) {
  const NodePtr node = nodes_.find(directory);
  const auto path = node && node->key ? nodes_.path_of(*node) : std::nullopt;
  if (!path) return false;
  const auto entry = layout::name_of(join(*path, name));
  for (const auto& other : known_roots_.local_paths_of(entry)) {
    const auto walked = nodes_.walk(parent_path(other));
    if (!walked.missing.empty() || walked.node == node || !walked.node->key) continue;
    (void)remove_second(walked.node, name, true);
    remove_unlisted(walked.parent, walked.name, parent_path(other));
  }
  return remove_second(node, name, false);
}

/// An empty directory that was made for such a set, where the listing that the kernel keeps does not have it.
void KeySets::remove_unlisted(const NodePtr& parent, const std::string& name, const std::string& path) {
  const bool is_listed =
      parent->listing.with([&](const Listing& listing) { return listing.find(name) != listing.by_cookie.end(); });
  const auto remove = [&](const Moves&) {
    const auto status = disk_.stat(LocalTree::view(path));
    return status && *status && tree_.remove_directory(path);
  };
  if (!is_listed && moves_.read(remove)) notifier_.wish_forgotten(parent->id, name);
}

bool KeySets::remove_second(const NodePtr& node, std::string_view name, bool elsewhere) {
  const size_t removed = moves_.read([&](const Moves&) {
    return node->key->state.with([&](KeyState& state) {
      const bool goes =
          elsewhere ? state.committed == KeyState::Committed::kCluster : state.committed != KeyState::Committed::kNone;
      if (!goes) return size_t{0};
      return std::erase_if(state.writers, [&](const auto& item) {
        const auto& [owner, set] = item;
        if (!set.complete || !set.files.contains(std::string(name))) return false;
        if (elsewhere && !(owner.is_known() && is_gone(owner))) return false;
        for (const auto& [file, put] : set.files) (void)keep_pending_orphan(join(set.place, file));
        remove_place(set.place);
        return true;
      });
    });
  });
  for (size_t i = 0; i < removed; ++i) tree_.unpin(node);
  return removed > 0;
}

void KeySets::give_up(NodeId directory, std::string_view name) {
  const NodePtr node = nodes_.find(directory);
  if (!node || !node->key) return;
  std::multimap<SteadyTime, SetOwner> owners;  // the last one's files stay
  node->key->state.with([&](const KeyState& state) {
    const auto* shown = state.shown_to_all();
    if (shown == nullptr || !shown->files.contains(std::string(name))) return;
    for (const auto& [owner, set] : state.writers) owners.emplace(set.last_change, owner);
  });
  for (const auto& [time, owner] : owners) end_set(node, owner);
}

void KeySets::end_dead_sets(const NodePtr& directory) {
  const SteadyTime now = std::chrono::steady_clock::now();
  std::vector<SetOwner> dead;
  const auto path = nodes_.path_of(*directory);
  directory->key->state.with([&](KeyState& state) {
    for (auto& [owner, set] : state.writers) {
      const bool is_dead = owner.is_known() ? is_gone(owner) : now - set.last_change > kUnwatchedSetLife;
      if (is_dead) dead.push_back(owner);
      if (!is_dead && path) note_where(set, *path);
    }
  });
  for (const SetOwner& owner : dead) end_set(directory, owner);
}

void KeySets::end_dead_sets() {
  std::vector<NodePtr> directories = pending_.with([](auto& pending) {
    std::vector<NodePtr> live;
    std::erase_if(pending, [&](const auto& item) {
      NodePtr node = item.second.lock();
      if (node) live.push_back(std::move(node));
      return !item.second.lock();
    });
    return live;
  });
  for (const NodePtr& directory : directories) {
    end_dead_sets(directory);
    const auto has_set = [](const KeyState& state) { return !state.writers.empty(); };
    if (directory->key->state.with(has_set)) continue;
    pending_.with([&](auto& pending) { pending.erase(static_cast<uint64_t>(directory->id)); });
    // A set may have begun since. Who begins one enters it here after it is in the state.
    if (directory->key->state.with(has_set)) note_pending(directory);
  }
}

}  // namespace inductorfs::vfs
