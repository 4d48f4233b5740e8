// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/key_sets.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/log.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/paths.h"

/// Triton key directories: whose files one shows (see KeyState).
namespace inductorfs::vfs {
namespace {

/// A set whose writer cannot be watched (another pid namespace) is dropped when nothing came for so long.
constexpr std::chrono::minutes kUnwatchedSetLife{10};
/// Larger files of a set count as different without a look. They are compared under the lock of directory moves:
/// whoever renames a directory waits for it, and then everybody. A sparse file of a terabyte costs its writer nothing.
constexpr uint64_t kMostCompared = uint64_t{16} << 20;

/// Whether another thread has put other bytes under this name of a set: now, `source` over `place`, or earlier.
bool is_disputed(KeyDirectory& key, const SetOwner& set_writer, const std::string& name, pid_t thread,
                 const LocalTree& tree, const std::string& source, const std::string& place) {
  const auto earlier = key.state.with([&](const KeyState& state) -> std::optional<KeyState::Put> {
    const auto set = state.writers.find(set_writer);
    if (set == state.writers.end() || !set->second.files.contains(name)) return std::nullopt;
    return set->second.files.at(name);
  });
  if (!earlier || earlier->disputed) return earlier.has_value();
  const bool same_thread = thread != 0 && earlier->thread == thread;
  return !same_thread && !tree.same_bytes(source, place, kMostCompared);
}

Result<void> move_into_set(const LocalTree& tree, const Site& from, const std::string& place) {
  INDUCTORFS_TRY_ASSIGN(const auto status, tree.stat(LocalTree::view(from.path)));
  takeover::begin_effect(status ? status->st_ino : 0);
  return tree.rename(LocalTree::view(from.path), place);
}

}  // namespace

/// A process put a name twice: who reads the first file goes on reading it.
Result<void> KeySets::keep_pending_orphan(const std::string& place) {
  INDUCTORFS_TRY_ASSIGN(const auto status, disk_.stat(place));
  const NodePtr node = status ? nodes_.find_local(status->st_ino) : nullptr;
  if (!node) return {};
  const std::string orphan = LocalTree::orphan(node->id);
  INDUCTORFS_TRY(disk_.unlink(orphan));  // of a node with this number in an earlier life
  return node->content.with([&](Content& content) -> Result<void> {
    if (content.elsewhere != place) return {};
    INDUCTORFS_TRY(disk_.link(place, orphan));
    tree_.become_orphan(*node, content, orphan);
    content.attributes_valid = false;
    return {};
  });
}

bool KeySets::has_room(const Node& directory, const SetOwner& writer, const std::string& name) {
  return directory.key->state.with([&](const KeyState& state) {
    const auto set = state.writers.find(writer);
    return set == state.writers.end() || set->second.files.size() < kMostInSet || set->second.files.contains(name);
  });
}

Result<std::optional<SetOwner>> KeySets::put_into_set(const Site& from, const Site& to, const Caller& caller) {
  if (!to.parent->key || !is_kernel_file(to.path)) return std::nullopt;
  if (layout::classify(from.path).family != layout::Family::kTemporary) return std::nullopt;
  const SetOwner seen = set_owner_of(caller.pid);
  const SetOwner writer =
      to.parent->key->state.with([&](const KeyState& state) { return state.owner_of_put(seen, from.path); });
  // Numbers are given again: that of a thread tells only as long as its process is known.
  const pid_t thread = writer.is_known() ? caller.pid : 0;
  const std::string directory = pending_path(*to.parent, writer);
  const std::string place = directory + "/" + to.name;
  // An earlier worker was killed in the middle of this: the file may be in the set already, or in the view with it.
  const auto witness = takeover::begun_effect();
  const auto has_moved = [&](const std::string& where) {
    const auto status = disk_.stat(where);
    return witness && status && *status && (*status)->st_ino == *witness;
  };
  if (has_moved(LocalTree::view(to.path))) return std::optional(writer);
  const bool moved = has_moved(place);
  const NodePtr node = moved ? nodes_.find_local(*witness) : nodes_.child(from.parent, from.name);
  if (!node || !node->is_regular()) return std::nullopt;
  if (!has_room(*to.parent, writer, to.name)) {
    return fail(ErrorCode::kNoSpace, "a Triton key has " + std::to_string(kMostInSet) + " files at most");
  }
  if (::mkdirat(disk_.fd(), directory.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno("mkdir", directory);
  const std::string source = LocalTree::view(from.path);
  const bool disputed = moved ? disk_.mark_of(place, LocalTree::kDisputedName).has_value()
                              : is_disputed(*to.parent->key, writer, to.name, thread, disk_, source, place);
  if (disputed) disk_.set_mark(moved ? place : source, LocalTree::kDisputedName, "1");  // another worker must know
  if (!moved) INDUCTORFS_TRY(keep_pending_orphan(place));
  INDUCTORFS_TRY(node->content.with([&](Content& content) -> Result<void> {
    if (auto done = moved ? Result<void>{} : move_into_set(disk_, from, place); !done) return done;
    fail_point("set.put");
    (void)nodes_.detach(from.parent, from.name);
    tree_.become(node, content, Backing::kLocal, place);
    content.provenance.reset();  // the set is looked at as a whole
    return {};
  }));
  changed_names_in(from.parent);
  to.parent->key->state.with([&](KeyState& state) {
    const auto [set, first] = state.writers.try_emplace(writer);
    if (first) to.parent->pins.fetch_add(1);  // the set lives in the node
    set->second.place = directory;
    set->second.files[to.name] = {thread, disputed};
    set->second.last_change = std::chrono::steady_clock::now();
  });
  note_pending(to.parent);
  return std::optional(writer);
}

void KeySets::commit_if_complete(const Site& site, const SetOwner& set_writer, pid_t caller) {
  const NodePtr& directory = site.parent;
  const std::string pending = pending_path(*directory, set_writer);
  const bool ready = directory->key->state.with([&](KeyState& state) {
    const auto set = state.writers.find(set_writer);
    if (set == state.writers.end()) return false;
    set->second.complete = set->second.is_of_one_thread() &&
                           set_is_whole(set->second.names(), disk_, pending, last_component(parent_path(site.path)));
    return set->second.complete && state.committed == KeyState::Committed::kNone;
  });
  if (!ready) return;
  const auto files = directory->key->state.with([&](const KeyState& state) {
    const auto set = state.writers.find(set_writer);
    return set == state.writers.end() ? std::set<std::string>() : set->second.names();
  });
  tree_.mark_view(pending, {files.begin(), files.end()}, parent_path(site.path), caller);
  const auto architecture = marks_.architecture_of_set(pending);
  const WriterVerdict verdict = marks_.glance(site.path, layout::Family::kTritonKernel, architecture, caller);
  std::string path;
  std::vector<std::string> names;
  std::string why_private;
  const bool committed = moves_.read([&](const Moves&) {
    const auto now = nodes_.path_of(*directory);
    if (!now) return false;
    path = *now;
    return directory->key->state.with([&](KeyState& state) {
      const auto set = state.writers.find(set_writer);
      if (set == state.writers.end() || !set->second.complete) return false;
      if (state.committed != KeyState::Committed::kNone) return false;
      const auto own = set->second.names();
      names.assign(own.begin(), own.end());
      origin_.mark_set(pending, names, state.provenance, verdict);
      why_private = state.provenance.why_private;
      if (auto done = commit(directory, path, state, set_writer); !done) {
        log::write_limited(log::Level::kWarning, "triton.commit_failed",
                           {{"path", shown_path(path)}, {"error", done.error().to_string()}});
        return false;
      }
      return true;
    });
  });
  if (!committed) return;
  origin_.made_set(path, names, caller);
  if (!why_private.empty()) marks_.stays_here(path, why_private, names.size());
  changed_names_in(directory);
  sealer_.add({directory, path, true});
  tree_.unpin(directory);
}

Result<void> KeySets::commit(const NodePtr& directory, const std::string& path, KeyState& state,
                             const SetOwner& writer) {
  // Under the key directory's lock, although it renames on the local disk: a reader must not see half a set.
  INDUCTORFS_TRY(tree_.make_view_directories(path));
  const std::string pending = state.writers.at(writer).place;
  const auto files = state.writers.at(writer).names();
  std::vector<std::string> names(files.begin(), files.end());
  // Group files last: what a crash leaves is then no set at all.
  std::stable_partition(names.begin(), names.end(), [](const auto& name) { return !layout::is_group_file(name); });
  for (const auto& name : names) {
    const auto status = disk_.stat(join(pending, name));
    if (status && !*status) continue;  // moved by an attempt that failed later
    const auto move = [&] { return disk_.rename(join(pending, name), LocalTree::view(join(path, name))); };
    const NodePtr node = status ? nodes_.find_local((*status)->st_ino) : nullptr;
    const bool known = node && nodes_.find(node->id);
    INDUCTORFS_TRY(known ? node->content.with([&](Content& content) -> Result<void> {
      if (auto moved = move(); !moved) return moved;
      (void)nodes_.detach(directory, name);  // a stray file of that name
      tree_.become(node, content, Backing::kLocal, {});
      (void)nodes_.add(directory, name, node, 0);
      return {};
    })
                         : move());
    fail_point("set.moved");
    if (!known) (void)nodes_.detach(directory, name);  // as above
  }
  fail_point("set.committed");
  (void)::unlinkat(disk_.fd(), pending.c_str(), AT_REMOVEDIR);  // an empty directory; the next start removes it too
  state.writers.erase(writer);  // not before: while its files move, their writer is shown them
  state.committed = KeyState::Committed::kLocal;
  counters_.get("triton.sets_committed").add();
  return {};
}

bool KeySets::restore(const NodePtr& directory, const SetOwner& owner, KeyState::WriterSet set) {
  const bool first = directory->key->state.with(
      [&](KeyState& state) { return state.writers.try_emplace(owner, std::move(set)).second; });
  if (!first) return false;
  directory->pins.fetch_add(1);  // the set lives in the node
  note_pending(directory);
  return true;
}

void KeySets::note_pending(const NodePtr& directory) {
  pending_.with([&](auto& pending) { pending[static_cast<uint64_t>(directory->id)] = directory; });
}

size_t KeySets::pending() const {
  return pending_.with([](const auto& pending) { return pending.size(); });
}

void KeySets::drop_dead_sets() {
  std::vector<NodePtr> directories = pending_.with([](auto& pending) {
    std::vector<NodePtr> live;
    std::erase_if(pending, [&](const auto& item) {
      NodePtr node = item.second.lock();
      if (node) live.push_back(std::move(node));
      return !item.second.lock();
    });
    return live;
  });
  const SteadyTime now = std::chrono::steady_clock::now();
  for (const NodePtr& directory : directories) {
    std::vector<std::string> dropped;
    const bool quiet = directory->key->state.with([&](KeyState& state) {
      std::erase_if(state.writers, [&](const auto& item) {
        const bool dead =
            item.first.is_known() ? is_gone(item.first) : now - item.second.last_change > kUnwatchedSetLife;
        if (dead) dropped.push_back(item.second.place);
        return dead;
      });
      return state.writers.empty();
    });
    for (const auto& path : dropped) {
      for (const auto& item : disk_.list(path).value_or(std::vector<LocalTree::Item>{})) {
        (void)disk_.unlink(join(path, item.name));  // what stays is removed at the next start
        fail_point("set.dropped");
      }
      (void)::unlinkat(disk_.fd(), path.c_str(), AT_REMOVEDIR);
      counters_.get("triton.sets_dropped").add();
    }
    for (size_t i = 0; i < dropped.size(); ++i) tree_.unpin(directory);
    if (!quiet) continue;
    pending_.with([&](auto& pending) { pending.erase(static_cast<uint64_t>(directory->id)); });
    // A set may have begun since. Who begins one enters it here after it is in the state.
    const bool begun = directory->key->state.with([](const KeyState& state) { return !state.writers.empty(); });
    if (begun) note_pending(directory);
  }
}

}  // namespace inductorfs::vfs
