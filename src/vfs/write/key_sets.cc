// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/key_sets.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/log.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/read/group_views.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/view_files.h"

/// Triton key directories: whose files one shows (see KeyState).
namespace inductorfs::vfs {
namespace {

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
  return !same_thread && !same_bytes(tree, source, place, kMostCompared);
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
  INDUCTORFS_TRY(begin_set(to.parent, writer, directory));
  const std::string source = LocalTree::view(from.path);
  const bool disputed = moved ? mark_of(disk_, place, kDisputedMark).has_value()
                              : is_disputed(*to.parent->key, writer, to.name, thread, disk_, source, place);
  if (disputed) set_mark(disk_, moved ? place : source, kDisputedMark, "1");  // another worker must know
  if (!moved) INDUCTORFS_TRY(origin_.note_namer(source, caller));
  if (!moved && from.entry.root != to.entry.root) INDUCTORFS_TRY(origin_.note_open(source, from.path));
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
    KeyState::WriterSet& set = state.writers[writer];
    set.files[to.name] = {thread, disputed};
    set.last_change = std::chrono::steady_clock::now();
  });
  return std::optional(writer);
}

/// From here on the set holds its directory (RootTree::remove_directory).
Result<void> KeySets::begin_set(const NodePtr& directory, const SetOwner& writer, const std::string& place) {
  const auto made = disk_.make_directory(place);
  if (!made && made.error().code() != ErrorCode::kExists) return made;
  const bool is_there = directory->key->state.with([&](KeyState& state) {
    const auto path = nodes_.path_of(*directory);
    if (!path) return false;
    const auto [set, first] = state.writers.try_emplace(writer);
    if (first) directory->pins.fetch_add(1);  // the set lives in the node
    set->second.place = place;
    set->second.last_change = std::chrono::steady_clock::now();
    note_where(set->second, *path);
    return true;
  });
  if (!is_there) return fail(ErrorCode::kNotFound);
  note_pending(directory);
  return {};
}

/// For a start that finds the set and no worker's memory of it.
void KeySets::note_where(KeyState::WriterSet& set, const std::string& path) {
  if (set.where == path) return;
  const std::string link = join(set.place, LocalTree::kWhereLink);
  (void)disk_.unlink(link);  // of another path; where it cannot be made anew, what is left then goes with the mount
  if (disk_.make_symlink(path, link)) set.where = path;
}

void KeySets::commit_if_complete(const NodePtr& directory, std::string path, const SetOwner& set_writer, pid_t caller,
                                 bool is_again) {
  const std::string pending = pending_path(*directory, set_writer);
  const auto is_ready = [&](KeyState& state) {
    const auto set = state.writers.find(set_writer);
    if (set == state.writers.end()) return false;
    set->second.complete = set->second.is_of_one_thread() &&
                           state_of_set(set->second.names(), disk_, pending, last_component(path)) == SetState::kWhole;
    if (set->second.complete) settle_disputes(set->second);
    return set->second.complete && is_free(state, path);
  };
  if (!moves_.read([&](const Moves&) { return directory->key->state.with(is_ready); })) return;
  const auto files = directory->key->state.with([&](const KeyState& state) {
    const auto set = state.writers.find(set_writer);
    return set == state.writers.end() ? std::set<std::string>() : set->second.names();
  });
  views_.mark_view(pending, {files.begin(), files.end()}, path, caller);
  const auto architecture = marks_.architecture_of_set(pending);
  const WriterVerdict verdict = marks_.glance(path, layout::Family::kTritonKernel, architecture, caller);
  std::vector<std::string> names;
  std::string why_private;
  std::vector<NodePtr> gone;
  const bool committed = moves_.read([&](const Moves&) {
    const auto now = nodes_.path_of(*directory);
    if (!now) return false;
    path = *now;
    return directory->key->state.with([&](KeyState& state) {
      const auto set = state.writers.find(set_writer);
      if (set == state.writers.end() || !set->second.complete) return false;
      if (!is_free(state, path)) return false;
      const auto own = set->second.names();
      names.assign(own.begin(), own.end());
      origin_.mark_set(pending, names, state.provenance, verdict);
      why_private = state.provenance.why_private;
      if (auto done = commit(directory, path, state, set_writer, gone); !done) {
        log::write_limited(log::Level::kWarning, "triton.commit_failed",
                           {{"path", shown_path(path)}, {"error", done.error().to_string()}});
        return false;
      }
      return true;
    });
  });
  let_go(directory, gone);
  if (!committed) return;
  origin_.made_set(path, names, caller);
  if (!why_private.empty()) marks_.stays_here(path, why_private, names.size());
  changed_names_in(directory);
  seal_queue_.add({.node = directory, .path = path, .group = true, .is_again = is_again});
  tree_.unpin(directory);
}

/// Another worker does not know whose the files are, and would take a set for unfinished in which there was a dispute.
void KeySets::settle_disputes(KeyState::WriterSet& set) const {
  for (auto& [name, put] : set.files) {
    if (std::exchange(put.disputed, false)) remove_mark(disk_, join(set.place, name), kDisputedMark);
  }
}

/// Whether a set may be committed: a set that is not whole, as far as this release can tell, stands in nobody's way;
/// one that the disk does not give may be whole.
bool KeySets::is_free(const KeyState& state, const std::string& path) const {
  return state.committed == KeyState::Committed::kNone ||
         (state.committed == KeyState::Committed::kLocal && !local_set_is_whole(disk_, path).value_or(true));
}

void KeySets::let_go(const NodePtr& directory, const std::vector<NodePtr>& gone) {
  for (const NodePtr& node : gone) tree_.let_go(nodes_.release(node));
  if (!gone.empty()) notifier_.wish_content_forgotten(directory->id);
}

/// Gives a file that lies at `place` its name. Who has open what had the name before reads on. A directory that is not
/// known is nullptr.
Result<void> KeySets::give_name(const NodePtr& directory, const Site& site, const std::string& place,
                                std::vector<NodePtr>& gone) {
  const auto status = disk_.stat(place);
  if (status && !*status) return {};  // moved by an attempt that failed later
  NodePtr node = status ? nodes_.find_local((*status)->st_ino) : nullptr;
  if (node && !nodes_.find(node->id)) node = nullptr;
  const NodePtr before = directory ? nodes_.child(directory, site.name) : nullptr;
  const auto move = [&](Content* content, Content* replaced) -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(const auto there, disk_.stat(LocalTree::view(site.path)));
    const bool has_file = replaced != nullptr && there;
    if (has_file) INDUCTORFS_TRY(removal_.keep_orphan(site, before));
    INDUCTORFS_TRY(disk_.rename(place, LocalTree::view(site.path)));
    if (before) (void)nodes_.detach(directory, site.name);
    if (content != nullptr) tree_.become(node, *content, Backing::kLocal, {});
    if (content != nullptr && directory) (void)nodes_.add(directory, site.name, node, 0);
    if (replaced != nullptr) removal_.orphaned(*before, *replaced, has_file);
    return {};
  };
  if (node) {
    INDUCTORFS_TRY(with_contents(node, before, [&](Content& own, Content* replaced) { return move(&own, replaced); }));
  } else if (before) {
    INDUCTORFS_TRY(before->content.with([&](Content& replaced) { return move(nullptr, &replaced); }));
  } else {
    INDUCTORFS_TRY(move(nullptr, nullptr));
  }
  if (before && before != node) {
    gone.push_back(before);
    notifier_.wish_forgotten(directory->id, site.name);
  }
  return {};
}

Result<void> KeySets::commit(const NodePtr& directory, const std::string& path, KeyState& state, const SetOwner& writer,
                             std::vector<NodePtr>& gone) {
  // Under the key directory's lock, although it renames on the local disk: a reader must not see half a set.
  INDUCTORFS_TRY(tree_.make_view_directories(path));
  const std::string pending = state.writers.at(writer).place;
  const auto files = state.writers.at(writer).names();
  std::vector<std::string> names(files.begin(), files.end());
  // Group files last: what a crash leaves is then no set at all.
  std::stable_partition(names.begin(), names.end(), [](const auto& name) { return !layout::is_group_file(name); });
  for (const auto& name : names) {
    INDUCTORFS_TRY(give_name(directory, site_of(directory, path, name), join(pending, name), gone));
    fail_point("set.moved");
  }
  fail_point("set.committed");
  (void)disk_.unlink(join(pending, LocalTree::kWhereLink));  // what stays is removed at the next start
  (void)disk_.remove_directory(pending);
  state.writers.erase(writer);  // not before: while its files move, their writer is shown them
  state.committed = KeyState::Committed::kLocal;
  counters_.get("triton.sets_committed").add();
  return {};
}

KeyState::WriterSet KeySets::set_at(const std::string& place) const {
  KeyState::WriterSet set;
  set.place = place;
  set.where = disk_.read_link(join(place, LocalTree::kWhereLink)).value_or("");
  set.last_change = std::chrono::steady_clock::now();
  for (const auto& file : disk_.list(place).value_or(std::vector<LocalTree::Item>{})) {
    if (file.name == LocalTree::kWhereLink) continue;
    const bool disputed = mark_of(disk_, join(place, file.name), kDisputedMark).has_value();
    set.files[file.name] = {0, disputed};
  }
  return set;
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

}  // namespace inductorfs::vfs
