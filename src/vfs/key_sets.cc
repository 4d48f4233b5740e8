// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/log.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/overlay.h"

/// Triton key directories: whose files one shows (see KeyState).
namespace inductorfs::vfs {
namespace {

constexpr uint64_t kGroupFileLimit = 1 << 20;
/// A set whose writer cannot be watched (another pid namespace) is dropped when nothing came for so long.
constexpr std::chrono::minutes kUnwatchedSetLife{10};

bool is_kernel_file(const std::string& path) { return layout::classify(path).family == layout::Family::kTritonKernel; }

std::string parent_path(const std::string& path) { return path.substr(0, path.rfind('/')); }

std::string last_component(const std::string& path) { return path.substr(path.rfind('/') + 1); }

void absent(const LookupDone& done, bool keep) { done({fail(ErrorCode::kNotFound), keep}); }

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
  return !same_thread && !tree.same_bytes(source, place);
}

/// Where the files of a writer's unfinished set are.
std::string pending_path(const Node& directory, const SetOwner& writer) {
  auto known = directory.key->state.with([&](const KeyState& state) {
    const auto set = state.writers.find(writer);
    return set == state.writers.end() ? std::string() : set->second.place;
  });
  if (!known.empty()) return known;
  return "pending/" + std::to_string(static_cast<uint64_t>(directory.id)) + "-" + std::to_string(writer.process) + "-" +
         std::to_string(writer.start);
}

Result<void> move_into_set(const LocalTree& tree, const Site& from, const std::string& place) {
  const auto status = tree.stat(LocalTree::view(from.path));
  if (!status) return fail(status.error());
  takeover::begin_effect(*status ? (*status)->st_ino : 0);
  return tree.rename(LocalTree::view(from.path), place);
}

}  // namespace

bool set_is_whole(const std::set<std::string>& files, const LocalTree& tree, const std::string& directory,
                  const std::string& key) {
  bool has_group = false;
  for (const auto& name : files) {
    if (!layout::is_group_file(name)) continue;
    const auto text = read_file(tree.fd(), join(directory, name), kGroupFileLimit);
    if (!text) return false;
    const auto children = layout::group_children(*text, key);
    if (!children) return false;
    has_group = true;
    if (!std::all_of(children->begin(), children->end(), [&](const auto& c) { return files.contains(c); }))
      return false;
  }
  return has_group;
}

std::vector<std::string> Overlay::local_set(const std::string& path) const {
  std::vector<std::string> names;
  if (auto items = tree_.list(LocalTree::view(path))) {
    for (auto& item : *items) {
      if (item.type == S_IFREG && is_kernel_file(join(path, item.name))) names.push_back(std::move(item.name));
    }
  }
  return names;
}

bool Overlay::local_set_is_whole(const std::string& path) const {
  const auto names = local_set(path);
  return set_is_whole({names.begin(), names.end()}, tree_, LocalTree::view(path), last_component(path));
}

void Overlay::lookup_in_key_directory(const Site& site, const Caller& caller, LookupDone done) {
  if (!is_kernel_file(site.path)) {
    if (const NodePtr known = nodes_.look_up_child(site.parent, site.name)) {
      return done({found(known, kernel_may_keep(site.path)), false});
    }
    return resolve(site, std::move(done));
  }
  if (auto own = own_pending_file(site, caller)) return done({*own, false});
  const auto [committed, contested] = site.parent->key->state.with(
      [](const KeyState& state) { return std::make_pair(state.committed, !state.writers.empty()); });
  const bool keep = !contested;
  if (const NodePtr known = nodes_.look_up_child(site.parent, site.name)) return done({found(known, keep), false});
  if (auto local = resolve_locally(site, keep)) return done({std::move(*local), false});
  if (committed == KeyState::Committed::kLocal) {
    // A set that leaves the view in this moment leaves no absence behind.
    const bool still = site.parent->key->state.with(
        [](const KeyState& state) { return state.committed == KeyState::Committed::kLocal; });
    return absent(done, keep && still);
  }

  if (committed == KeyState::Committed::kCluster) {
    const auto shown = sets_.entry_of(*site.parent, site.path);
    return shown ? resolve_entry(site, *shown, keep, std::move(done)) : absent(done, keep);
  }
  std::vector<catalog::Known> set;
  for (auto& known : catalog_.entries_in(parent_path(site.canonical))) {
    if (is_kernel_file(known.entry.path)) set.push_back(std::move(known));
  }
  // A set may be committed at any moment, without the kernel being told of each name.
  if (set.empty()) return absent(done, false);
  show_cluster_set(site, set, std::move(done));
}

std::optional<Found> Overlay::own_pending_file(const Site& site, const Caller& caller) {
  const bool contested = site.parent->key->state.with([](const KeyState& state) { return !state.writers.empty(); });
  if (!contested) return std::nullopt;
  const SetOwner writer = set_owner_of(caller.pid);
  const bool mine = site.parent->key->state.with([&](const KeyState& state) {
    const auto set = state.writers.find(writer);
    if (set == state.writers.end() || !set->second.files.contains(site.name)) return false;
    // Half a set beside the committed one would be a mixture, to another thread of the writer.
    return set->second.complete || state.committed == KeyState::Committed::kNone;
  });
  if (!mine) return std::nullopt;
  const std::string place = pending_path(*site.parent, writer) + "/" + site.name;
  const auto status = tree_.stat(place);
  if (!status || !*status) return std::nullopt;
  NodePtr node = nodes_.find_local((*status)->st_ino);
  if (!node) {
    node = new_node(S_IFREG, (*status)->st_ino, site);
    node->content.with([&](Content& content) {
      content.elsewhere = place;
      nodes_.note_content(*node, NodeJournal::local(node->id, place));
      content.attributes = attributes_of(**status);
      content.attributes_valid = true;
    });
    nodes_.remember_local((*status)->st_ino, node);
  }
  nodes_.add_unnamed(node, 1);
  auto result = found(node, false);
  if (!result) return std::nullopt;
  return *result;
}

void Overlay::show_cluster_set(const Site& site, const std::vector<catalog::Known>& set, LookupDone done) {
  std::vector<codec::Entry> entries;
  entries.reserve(set.size());
  for (const auto& known : set) entries.push_back(known.entry);
  // The whole set or nothing: a reader that has seen the group file takes a missing child for an error
  // (triton/compiler/compiler.py: CompiledKernel.__init__).
  fetcher_.fetch(entries, [this, site, set, done = std::move(done)](const std::vector<FetchOutcome>& got) {
    const bool lost = std::find(got.begin(), got.end(), FetchOutcome::kLost) != got.end();
    const bool here = std::all_of(got.begin(), got.end(), [](auto outcome) { return outcome == FetchOutcome::kHere; });
    if (lost) {
      // One lost child makes the set useless: all of it goes, so that the cluster takes the next writer's.
      for (const auto& known : set) catalog_.report_lost(known);
    }
    if (!here || !sets_.take(site.parent, set)) {
      counters_.get(lost ? "lookup.lost" : "lookup.not_now").add();
      return absent(done, false);
    }
    counters_.get("lookup.first_touch").add();
    const bool keep = site.parent->key->state.with([](const KeyState& state) { return state.writers.empty(); });
    if (auto local = resolve_locally(site, keep)) return done({std::move(*local), false});
    const auto shown = sets_.entry_of(*site.parent, site.path);
    if (!shown) return absent(done, false);
    auto result = add_shared(site, shown->entry, 1);
    if (result) result->keep = keep;
    done({std::move(result), false});
  });
}

/// A process put a name twice: who reads the first file goes on reading it.
Result<void> Overlay::keep_pending_orphan(const std::string& place) {
  const auto status = tree_.stat(place);
  if (!status) return fail(status.error());
  const NodePtr node = *status ? nodes_.find_local((*status)->st_ino) : nullptr;
  if (!node) return {};
  const std::string orphan = LocalTree::orphan(node->id);
  INDUCTORFS_TRY(tree_.unlink(orphan));  // of a node with this number in an earlier life
  return node->content.with([&](Content& content) -> Result<void> {
    if (content.elsewhere != place) return {};
    INDUCTORFS_TRY(tree_.link(place, orphan));
    become_orphan(*node, content, orphan);
    content.attributes_valid = false;
    return {};
  });
}

/// The writer of the set that took the file; nothing when it is a file like others.
Result<std::optional<SetOwner>> Overlay::put_into_set(const Site& from, const Site& to, const Caller& caller) {
  if (!to.parent->key || !is_kernel_file(to.path)) return std::nullopt;
  if (layout::classify(from.path).family != layout::Family::kTemporary) return std::nullopt;
  const SetOwner writer = set_owner_of(caller.pid);
  // Numbers are given again: that of a thread tells only as long as its process is known.
  const pid_t thread = writer.is_known() ? caller.pid : 0;
  const std::string directory = pending_path(*to.parent, writer);
  const std::string place = directory + "/" + to.name;
  // An earlier worker was killed in the middle of this: the file may be in the set already, or in the view with it.
  const auto witness = takeover::begun_effect();
  const auto has_moved = [&](const std::string& where) {
    const auto status = tree_.stat(where);
    return witness && status && *status && (*status)->st_ino == *witness;
  };
  if (has_moved(LocalTree::view(to.path))) return std::optional(writer);
  const bool moved = has_moved(place);
  const NodePtr node = moved ? nodes_.find_local(*witness) : nodes_.child(from.parent, from.name);
  if (!node || !node->is_regular()) return std::nullopt;
  if (::mkdirat(tree_.fd(), directory.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno("mkdir", directory);
  const std::string source = LocalTree::view(from.path);
  const bool disputed = moved ? tree_.mark_of(place, LocalTree::kDisputedName).has_value()
                              : is_disputed(*to.parent->key, writer, to.name, thread, tree_, source, place);
  if (disputed) tree_.set_mark(moved ? place : source, LocalTree::kDisputedName, "1");  // another worker must know
  if (!moved) INDUCTORFS_TRY(keep_pending_orphan(place));
  INDUCTORFS_TRY(node->content.with([&](Content& content) -> Result<void> {
    if (auto done = moved ? Result<void>{} : move_into_set(tree_, from, place); !done) return done;
    fail_point("set.put");
    (void)nodes_.detach(from.parent, from.name);
    become(node, content, Backing::kLocal, place);
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
  contested_.with([&](auto& contested) { contested[static_cast<uint64_t>(to.parent->id)] = to.parent; });
  return std::optional(writer);
}

void Overlay::commit_if_complete(const Site& site, const SetOwner& set_writer, pid_t caller) {
  const NodePtr& directory = site.parent;
  const std::string pending = pending_path(*directory, set_writer);
  const bool ready = directory->key->state.with([&](KeyState& state) {
    const auto set = state.writers.find(set_writer);
    if (set == state.writers.end()) return false;
    set->second.complete = set->second.is_of_one_thread() &&
                           set_is_whole(set->second.names(), tree_, pending, last_component(parent_path(site.path)));
    return set->second.complete && state.committed == KeyState::Committed::kNone;
  });
  if (!ready) return;
  const auto architecture = marks_.architecture_of_set(pending);
  const Verdict verdict = marks_.glance(layout::Family::kTritonKernel, architecture, caller);
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
      mark_set(pending, names, state.provenance, verdict);
      why_private = state.provenance.why_private;
      if (auto done = commit(directory, path, state, set_writer); !done) {
        log::write_limited(log::Level::kWarning, "triton.commit_failed",
                           {{"path", path}, {"error", done.error().to_string()}});
        return false;
      }
      return true;
    });
  });
  if (!committed) return;
  if (!why_private.empty()) marks_.stays_here(path, why_private, names.size());
  changed_names_in(directory);
  sealer_.add({directory, path, true});
  unpin(directory);
}

Result<void> Overlay::commit(const NodePtr& directory, const std::string& path, KeyState& state,
                             const SetOwner& writer) {
  // Under the key directory's lock, although it renames on the local disk: a reader must not see half a set.
  INDUCTORFS_TRY(tree_.make_view_directories(path));
  const std::string pending = state.writers.at(writer).place;
  const auto files = state.writers.at(writer).names();
  std::vector<std::string> names(files.begin(), files.end());
  // Group files last: what a crash leaves is then no set at all.
  std::stable_partition(names.begin(), names.end(), [](const auto& name) { return !layout::is_group_file(name); });
  for (const auto& name : names) {
    const auto status = tree_.stat(join(pending, name));
    if (status && !*status) continue;  // moved by an attempt that failed later
    const auto move = [&] { return tree_.rename(join(pending, name), LocalTree::view(join(path, name))); };
    const NodePtr node = status ? nodes_.find_local((*status)->st_ino) : nullptr;
    const bool known = node && nodes_.find(node->id);
    INDUCTORFS_TRY(known ? node->content.with([&](Content& content) -> Result<void> {
      if (auto moved = move(); !moved) return moved;
      (void)nodes_.detach(directory, name);  // a stray file of that name
      become(node, content, Backing::kLocal, {});
      (void)nodes_.add(directory, name, node, 0);
      return {};
    })
                         : move());
    fail_point("set.moved");
    if (!known) (void)nodes_.detach(directory, name);  // as above
  }
  fail_point("set.committed");
  (void)::unlinkat(tree_.fd(), pending.c_str(), AT_REMOVEDIR);  // an empty directory; the next start removes it too
  state.writers.erase(writer);  // not before: while its files move, their writer is shown them
  state.committed = KeyState::Committed::kLocal;
  counters_.get("triton.sets_committed").add();
  return {};
}

void Overlay::drop_dead_sets() {
  std::vector<NodePtr> directories = contested_.with([](auto& contested) {
    std::vector<NodePtr> live;
    std::erase_if(contested, [&](const auto& item) {
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
      for (const auto& item : tree_.list(path).value_or(std::vector<LocalTree::Item>{})) {
        (void)tree_.unlink(join(path, item.name));  // what stays is removed at the next start
        fail_point("set.dropped");
      }
      (void)::unlinkat(tree_.fd(), path.c_str(), AT_REMOVEDIR);
      counters_.get("triton.sets_dropped").add();
    }
    for (size_t i = 0; i < dropped.size(); ++i) unpin(directory);
    if (!quiet) continue;
    contested_.with([&](auto& contested) {
      // A set may have begun since; who begins one enters it here after it is in the state.
      const bool still = directory->key->state.with([](const KeyState& state) { return state.writers.empty(); });
      if (still) contested.erase(static_cast<uint64_t>(directory->id));
    });
  }
}

}  // namespace inductorfs::vfs
