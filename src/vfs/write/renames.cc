// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/renames.h"

#include <linux/fs.h>
#include <sys/stat.h>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/tree/view_files.h"

namespace inductorfs::vfs {
namespace {

/// The inode that moves is the witness: where it is tells whether it has moved.
Result<void> begin_rename(const LocalTree& tree, const Site& from) {
  INDUCTORFS_TRY_ASSIGN(const auto status, tree.stat(LocalTree::view(from.path)));
  if (status) takeover::begin_effect(status->st_ino);
  return {};
}

/// `new_size`: of the path that the directory at `below` is to have.
Result<void> check_paths_below(const Fd& directory, const std::string& below, size_t new_size) {
  INDUCTORFS_TRY_ASSIGN(const auto items, list_below(directory, below));
  for (const auto& item : items) {
    const size_t size = new_size + 1 + item.name.size();
    if (size > LocalTree::kPathLimit) {
      return fail(ErrorCode::kNameTooLong, "rename: a path below the directory would have more than " +
                                               std::to_string(LocalTree::kPathLimit) + " bytes");
    }
    if (item.type != S_IFDIR) continue;
    INDUCTORFS_TRY(check_paths_below(directory, below.empty() ? item.name : join(below, item.name), size));
  }
  return {};
}

}  // namespace

Result<bool> Renames::rename(const Site& from, const Site& to, RenameMode mode, const Caller& caller) {
  if (mode == RenameMode::kExchange) {
    INDUCTORFS_TRY_ASSIGN(const bool done, tree_.with_room([&] { return exchange(from, to, caller); }));
    if (!done) return false;
    scopes_.directory_changed(from.path);
    scopes_.directory_changed(to.path);
    sealing_.saw_writer_below(from.path, caller.pid);
    sealing_.saw_writer_below(to.path, caller.pid);
  } else {
    INDUCTORFS_TRY_ASSIGN(auto node, lookup_.existing(from));
    INDUCTORFS_TRY_ASSIGN(const bool done, rename_one(from, to, node, mode, caller));
    if (!done) return false;
    if (node->is_directory()) scopes_.directory_changed(to.path);
  }
  changed_names_in(from.parent);
  changed_names_in(to.parent);
  return true;
}

/// Files are reached by their whole paths. A directory that was renamed by descriptor to a deeper place would make
/// paths that no system call takes: nothing there could be read or removed any more. The walk may take long, so nobody
/// waits for it: a deeper path that is made meanwhile passes, and the next mount sets it aside.
Result<void> Renames::check_new_path(const NodePtr& node, const std::string& from, const std::string& to) {
  if (!node->is_directory() || to.size() <= from.size()) return {};
  const auto directory = moves_.read([&](const Moves&) { return disk_.open_directory(LocalTree::view(from)); });
  if (directory) return check_paths_below(*directory, "", to.size());
  return directory.error().code() == ErrorCode::kNotFound ? Result<void>{} : fail(directory.error());
}

Result<bool> Renames::rename_one(const Site& from, const Site& to, const NodePtr& node, RenameMode mode,
                                 const Caller& caller) {
  if (node->is_directory()) {
    INDUCTORFS_TRY(check_new_path(node, from.path, to.path));
    const auto rename_it = [&](Moves& moves) -> Result<std::optional<Fd>> {
      if (!are_there(moves, from, to)) return std::nullopt;
      return rename_directory({moves, from, to, mode, caller}, node);
    };
    INDUCTORFS_TRY_ASSIGN(const auto moved, tree_.with_room([&] { return moves_.write(rename_it); }));
    if (!moved) return false;
    removal_.forget_root(to.path);  // one that it may have replaced
    removal_.hide_moved(from.path, to.path, *moved);
    sealing_.saw_writer_below(to.path, caller.pid);
    return true;
  }
  if (mode == RenameMode::kReplace) {
    const auto put = [&](const Moves& moves) -> Result<std::optional<SetOwner>> {
      if (are_there(moves, from, to)) return key_sets_.put_into_set(from, to, caller);
      return std::nullopt;
    };
    INDUCTORFS_TRY_ASSIGN(const auto set, moves_.read(put));
    if (set) {
      key_sets_.commit_if_complete(to.parent, parent_path(to.path), *set, caller.pid);
      return true;
    }
  }
  INDUCTORFS_TRY_ASSIGN(const bool is_done, tree_.with_room([&]() -> Result<bool> {
    INDUCTORFS_TRY_ASSIGN(auto early, data_.copy_early(node, false));
    return moves_.read([&](const Moves& moves) -> Result<bool> {
      if (!are_there(moves, from, to)) return false;
      INDUCTORFS_TRY(rename_file({moves, from, to, mode, caller}, node, early));
      return true;
    });
  }));
  if (!is_done) return false;
  origin_.member_changed(from.path);
  origin_.saw_writer(node, to.path, caller.pid);
  sealing_.seal_if_final(node, to.path);
  return true;
}

void Renames::follow_up(const Site& from, const Site& to, const Caller& caller) {
  sealing_.saw_writer_below(to.path, caller.pid);
  if (const NodePtr node = nodes_.child(to.parent, to.name)) sealing_.seal_if_final(node, to.path);
  changed_names_in(from.parent);
  changed_names_in(to.parent);
}

/// Before it moves: it gets another name, perhaps where fewer reach it, and its directory loses one.
Result<void> Renames::note_namer(const Site& from, const Site& to, const Caller& caller) {
  if (from.entry.root != to.entry.root) INDUCTORFS_TRY(origin_.note_open(LocalTree::view(from.path), from.path));
  INDUCTORFS_TRY(origin_.note_namer(LocalTree::view(from.path), caller));
  return origin_.note_left(from.path, caller);
}

Result<void> Renames::rename_file(const Step& step, const NodePtr& node, EarlyCopy& early) {
  const Site& from = step.from;
  const Site& to = step.to;
  INDUCTORFS_TRY(tree_.make_local_directory(step.moves, to.parent));
  const NodePtr target = nodes_.child(to.parent, to.name);
  if (target && target->is_directory()) return fail(ErrorCode::kIsDirectory);
  INDUCTORFS_TRY_ASSIGN(const auto there, disk_.stat(LocalTree::view(to.path)));
  if (step.mode == RenameMode::kNoReplace && (there || catalog_.find(to.entry))) return fail(ErrorCode::kExists);
  if (target == node) return {};  // two links of one file: rename(2) does nothing
  auto renamed = with_contents(node, target, [&](Content& content, Content* replaced) -> Result<void> {
    INDUCTORFS_TRY(Data::may_name(content, from.path, step.caller));
    content.attributes_valid = false;
    // Bytes of the cluster get a file of their own before they can have another name.
    if (content.backing == Backing::kShared) INDUCTORFS_TRY(data_.make_private(node, content, early));
    INDUCTORFS_TRY(note_namer(from, to, step.caller));
    if (there && target) INDUCTORFS_TRY(removal_.keep_orphan(to, target));
    auto moved = begin_rename(disk_, from);
    if (moved) moved = disk_.rename(LocalTree::view(from.path), LocalTree::view(to.path));
    if (!moved) {
      removal_.keep_no_orphan(target);
      return moved;
    }
    fail_point("rename.file");
    (void)nodes_.move(from.parent, from.name, to.parent, to.name);  // what it replaces is `target`
    note_named(to);
    if (replaced != nullptr) removal_.orphaned(*target, *replaced, there.has_value());
    return {};
  });
  if (!renamed) return renamed;
  removal_.hide_entry(from.path);
  if (target) tree_.let_go(nodes_.release(target));
  return {};
}

/// Returns the directory, so that what follows can walk it while others change its path.
Result<Fd> Renames::rename_directory(const Step& step, const NodePtr& node) {
  const Site& from = step.from;
  const Site& to = step.to;
  // Entries of the cluster have their names for good: as on overlayfs, a directory that shows some cannot be moved.
  if (shown_.any_at_or_below(node, from.path)) {
    return fail(ErrorCode::kCrossDevice, "rename " + from.path + ": it shows entries of the cluster; copy it");
  }
  INDUCTORFS_TRY(tree_.make_local_directory(step.moves, to.parent));
  const NodePtr target = nodes_.child(to.parent, to.name);
  INDUCTORFS_TRY_ASSIGN(const auto there, disk_.stat(LocalTree::view(to.path)));
  const bool visible = there || shown_.any_at_or_below(target, to.path);
  if (step.mode == RenameMode::kNoReplace && visible) return fail(ErrorCode::kExists);
  if (target && !target->is_directory()) return fail(ErrorCode::kNotDirectory);
  // rename(2) replaces an empty directory only; the Triton bundler relies on both answers
  // (torch/_inductor/triton_bundler.py: read_and_emit).
  if (visible && !removal_.directory_is_empty(target, to.path)) return fail(ErrorCode::kNotEmpty);
  INDUCTORFS_TRY(tree_.make_local_directory(step.moves, node));
  INDUCTORFS_TRY(note_namer(from, to, step.caller));
  Fd moved = removal_.open_moving(from.path);
  INDUCTORFS_TRY(begin_rename(disk_, from));
  INDUCTORFS_TRY(disk_.rename(LocalTree::view(from.path), LocalTree::view(to.path)));
  fail_point("rename.directory");
  const NodePtr replaced = nodes_.move(from.parent, from.name, to.parent, to.name);
  known_roots_.move(from.path, to.path);
  if (replaced) tree_.let_go(nodes_.release(replaced));
  if (const auto set = read_set(disk_, to.path); node->key && (!set || !set->empty())) {
    node->key->state.with([](KeyState& state) { state.committed = KeyState::Committed::kLocal; });
  }
  note_groups_moved(node, to.path);
  return moved;
}

/// The group files in a directory that has moved, or below it, name the place before; the kernel keeps them.
void Renames::note_groups_moved(const NodePtr& directory, const std::string& path) {
  const auto note = [](const NodePtr& moved) {
    moved->key->groups.with([](GroupNames& names) {
      names = {};
      names.keep_unseen();
    });
  };
  if (directory->key) return note(directory);
  if (!known_roots_.has_any_at(path)) return;
  known_roots_.each_key_directory([&](const NodePtr& key_directory) {
    const auto now = nodes_.path_of(*key_directory);
    if (now && now->starts_with(path + "/")) note(key_directory);
  });
}

Result<bool> Renames::exchange(const Site& from, const Site& to, const Caller& caller) {
  INDUCTORFS_TRY_ASSIGN(auto first, lookup_.existing(from));
  INDUCTORFS_TRY_ASSIGN(auto second, lookup_.existing(to));
  // In the order of their locks: two exchanges of the same names must not wait for each other's copies.
  const bool in_order = first->id < second->id;
  INDUCTORFS_TRY_ASSIGN(auto lower, data_.copy_early(in_order ? first : second, false));
  INDUCTORFS_TRY_ASSIGN(auto upper, first == second ? Result<EarlyCopy>(EarlyCopy(std::nullopt))
                                                    : data_.copy_early(in_order ? second : first, false));
  INDUCTORFS_TRY(check_new_path(first, from.path, to.path));
  INDUCTORFS_TRY(check_new_path(second, to.path, from.path));
  Fd first_directory;
  Fd second_directory;
  bool is_done = false;
  Result<void> exchanged = moves_.write([&](Moves& moves) -> Result<void> {
    if (!are_there(moves, from, to)) return {};
    is_done = true;
    for (const auto& [site, node] : {std::make_pair(&from, first), std::make_pair(&to, second)}) {
      if (node->is_directory() && shown_.any_at_or_below(node, site->path)) {
        return fail(ErrorCode::kCrossDevice, "rename " + site->path + ": it shows entries of the cluster; copy it");
      }
    }
    if (first->is_directory()) first_directory = removal_.open_moving(from.path);
    if (second->is_directory()) second_directory = removal_.open_moving(to.path);
    return with_contents(first, second, [&](Content& a, Content* b) -> Result<void> {
      INDUCTORFS_TRY(Data::may_name(a, from.path, caller));
      if (b != nullptr) INDUCTORFS_TRY(Data::may_name(*b, to.path, caller));
      a.attributes_valid = false;
      if (b != nullptr) b->attributes_valid = false;
      auto own =
          a.backing == Backing::kShared ? data_.make_private(first, a, in_order ? lower : upper) : Result<void>{};
      if (own && b != nullptr && b->backing == Backing::kShared) {
        own = data_.make_private(second, *b, in_order ? upper : lower);
      }
      if (own) own = note_namer(from, to, caller);
      if (own) own = note_namer(to, from, caller);
      if (own) own = begin_rename(disk_, from);
      if (own) own = disk_.rename(LocalTree::view(from.path), LocalTree::view(to.path), RENAME_EXCHANGE);
      if (!own) return own;
      fail_point("rename.exchanged");
      nodes_.exchange(from.parent, from.name, to.parent, to.name);
      known_roots_.exchange(from.path, to.path);
      return {};
    });
  });
  INDUCTORFS_TRY(std::move(exchanged));
  if (!is_done) return false;
  const auto hide = [&](const NodePtr& node, const Site& was, const Site& is, const Fd& directory) {
    if (node->is_directory()) return removal_.hide_moved(was.path, is.path, directory);
    if (was.entry != is.entry) removal_.hide_entry(was.path);
  };
  hide(first, from, to, first_directory);
  hide(second, to, from, second_directory);
  return true;
}

}  // namespace inductorfs::vfs
