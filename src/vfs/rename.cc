// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>

#include <algorithm>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/overlay.h"
#include "vfs/resume.h"

namespace inductorfs::vfs {
namespace {

std::string parent_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

/// The inode that moves is the witness: where it is tells whether it has moved.
Result<void> begin_rename(const LocalTree& tree, const Site& from) {
  const auto status = tree.stat(LocalTree::view(from.path));
  if (!status) return fail(status.error());
  if (*status) takeover::begin_effect((*status)->st_ino);
  return {};
}

/// Files are reached by their whole paths. A directory that was renamed by descriptor to a deeper place would make
/// paths that no system call takes: nothing there could be read or removed any more.
Result<void> check_paths_below(const LocalTree& tree, const std::string& path, size_t new_size) {
  const auto items = tree.list(LocalTree::view(path));
  if (!items) return fail(items.error());
  for (const auto& item : *items) {
    const size_t size = new_size + 1 + item.name.size();
    if (size > LocalTree::kPathLimit) {
      return fail(ErrorCode::kNameTooLong, "rename: a path below the directory would have more than " +
                                               std::to_string(LocalTree::kPathLimit) + " bytes");
    }
    if (item.type == S_IFDIR) INDUCTORFS_TRY(check_paths_below(tree, join(path, item.name), size));
  }
  return {};
}

/// A directory that goes from one path to another.
Result<void> check_new_path(const LocalTree& tree, const std::string& from, const std::string& to) {
  return to.size() > from.size() ? check_paths_below(tree, from, to.size()) : Result<void>{};
}

}  // namespace

Result<NodePtr> Overlay::existing(const Site& site) {
  if (NodePtr known = nodes_.child(site.parent, site.name)) return known;
  // The kernel has looked up both names of a rename, so this happens only when it forgot one in between.
  auto node = pin_path(site.path);
  if (!node) return node;
  unpin(*node);
  return nodes_.child(site.parent, site.name) ? node : Result<NodePtr>(fail(ErrorCode::kNotFound));
}

Result<void> Overlay::rename(NodeId parent, std::string_view name, NodeId new_parent, std::string_view new_name,
                             RenameMode mode, const Caller& caller) {
  auto from = site(parent, name);
  if (!from) return fail(std::move(from).error());
  auto to = site(new_parent, new_name);
  if (!to) return fail(std::move(to).error());
  if (auto finished = Resume(*this).finish_rename(*from, *to, mode); !finished) {
    INDUCTORFS_TRY(rename_checked(*from, *to, mode, caller));
  } else {
    INDUCTORFS_TRY(*finished);
    witness_renamed(*to, caller);
  }
  changed_names_in(from->parent);
  changed_names_in(to->parent);
  return {};
}

Result<void> Overlay::rename_checked(const Site& from, const Site& to, RenameMode mode, const Caller& caller) {
  if (takeover::begun_effect() && mode == RenameMode::kReplace) {
    // An earlier worker may have put the file into its set: it has no name any more.
    const auto set = moves_.read([&](const Moves&) { return put_into_set(from, to, caller); });
    if (!set) return fail(set.error());
    if (*set) {
      commit_if_complete(to, **set, caller.pid);
      return {};
    }
  }
  if (mode == RenameMode::kExchange) {
    INDUCTORFS_TRY(exchange(from, to));
    saw_writer_below(from.path, caller.pid);
    saw_writer_below(to.path, caller.pid);
    return {};
  }
  auto node = existing(from);
  if (!node) return fail(std::move(node).error());
  if ((*node)->is_directory()) {
    INDUCTORFS_TRY(moves_.write([&](Moves&) { return rename_directory(from, to, *node, mode); }));
    saw_writer_below(to.path, caller.pid);
    return {};
  }
  auto set = moves_.read([&](const Moves&) -> Result<std::optional<SetOwner>> {
    if (mode == RenameMode::kReplace) {
      auto put = put_into_set(from, to, caller);
      if (!put || *put) return put;
    }
    if (auto done = rename_file(from, to, *node, mode); !done) return fail(std::move(done).error());
    return std::nullopt;
  });
  if (!set) return fail(std::move(set).error());
  if (*set) {
    commit_if_complete(to, **set, caller.pid);
    return {};
  }
  saw_writer(*node, to.path, caller.pid);
  seal_if_final(*node, to.path);
  return {};
}

/// What follows a rename, of one that an earlier worker had done.
void Overlay::witness_renamed(const Site& to, const Caller& caller) {
  saw_writer_below(to.path, caller.pid);
  if (const NodePtr node = nodes_.child(to.parent, to.name)) seal_if_final(node, to.path);
}

Result<void> Overlay::rename_file(const Site& from, const Site& to, const NodePtr& node, RenameMode mode) {
  INDUCTORFS_TRY(make_local_directory(to.parent, parent_path(to.path)));
  const NodePtr target = nodes_.child(to.parent, to.name);
  if (target && target->is_directory()) return fail(ErrorCode::kIsDirectory);
  const auto there = tree_.stat(LocalTree::view(to.path));
  if (!there) return fail(there.error());
  if (mode == RenameMode::kNoReplace && (*there || catalog_.find(to.canonical))) return fail(ErrorCode::kExists);
  if (target == node) return {};  // two links of one file: rename(2) does nothing
  auto renamed = with_contents(node, target, [&](Content& content, Content* replaced) -> Result<void> {
    content.attributes_valid = false;
    // Bytes of the cluster get a file of their own before they can have another name.
    if (content.backing == Backing::kShared) INDUCTORFS_TRY(make_private(node, content, std::nullopt));
    if (*there && target) INDUCTORFS_TRY(keep_orphan(to, target));
    INDUCTORFS_TRY(begin_rename(tree_, from));
    INDUCTORFS_TRY(tree_.rename(LocalTree::view(from.path), LocalTree::view(to.path)));
    fail_point("rename.file");
    (void)nodes_.move(from.parent, from.name, to.parent, to.name);  // what it replaces is `target`
    if (replaced != nullptr) orphaned(*target, *replaced, there->has_value());
    return {};
  });
  if (!renamed) return renamed;
  hide_entry(from.canonical);
  if (target) let_go(nodes_.release(target));
  return {};
}

/// What was handed to the queue under a name that a directory took with it: `to` is where the directory is now.
void Overlay::hide_moved(const std::string& from, const std::string& to) {
  const std::string canonical = layout::canonical_path(from);
  if (canonical == layout::canonical_path(to)) return;
  const auto status = tree_.stat(LocalTree::view(to));
  if (!status || !*status) return;
  if (!S_ISDIR((*status)->st_mode)) return hide_entry(canonical);
  for (const auto& item : tree_.list(LocalTree::view(to)).value_or(std::vector<LocalTree::Item>{})) {
    hide_moved(join(from, item.name), join(to, item.name));
  }
}

Result<void> Overlay::rename_directory(const Site& from, const Site& to, const NodePtr& node, RenameMode mode) {
  // Entries of the cluster have their names for good: as on overlayfs, a directory that shows some cannot be moved.
  if (catalog_.has_directory(from.canonical) || shows_set(node, from.path)) {
    return fail(ErrorCode::kCrossDevice, "rename " + from.path + ": it shows entries of the cluster; copy it");
  }
  INDUCTORFS_TRY(make_local_directory(to.parent, parent_path(to.path)));
  const NodePtr target = nodes_.child(to.parent, to.name);
  const auto there = tree_.stat(LocalTree::view(to.path));
  if (!there) return fail(there.error());
  const bool visible = *there || catalog_.has_directory(to.canonical) || shows_set(target, to.path);
  if (mode == RenameMode::kNoReplace && visible) return fail(ErrorCode::kExists);
  if (target && !target->is_directory()) return fail(ErrorCode::kNotDirectory);
  // rename(2) replaces an empty directory only; the Triton bundler relies on both answers
  // (torch/_inductor/triton_bundler.py: read_and_emit).
  if (visible && !directory_is_empty(target, to.path)) return fail(ErrorCode::kNotEmpty);
  if (auto made_local = make_local_directory(node, from.path); !made_local) return made_local;
  INDUCTORFS_TRY(check_new_path(tree_, from.path, to.path));
  INDUCTORFS_TRY(begin_rename(tree_, from));
  INDUCTORFS_TRY(tree_.rename(LocalTree::view(from.path), LocalTree::view(to.path)));
  fail_point("rename.directory");
  const NodePtr replaced = nodes_.move(from.parent, from.name, to.parent, to.name);
  if (replaced) let_go(nodes_.release(replaced));
  if (node->key && !local_set(to.path).empty()) {
    node->key->state.with([](KeyState& state) { state.committed = KeyState::Committed::kLocal; });
  }
  hide_moved(from.path, to.path);
  return {};
}

Result<void> Overlay::exchange(const Site& from, const Site& to) {
  auto first = existing(from);
  if (!first) return fail(std::move(first).error());
  auto second = existing(to);
  if (!second) return fail(std::move(second).error());
  return moves_.write([&](Moves&) -> Result<void> {
    for (const auto& [site, node] : {std::make_pair(&from, *first), std::make_pair(&to, *second)}) {
      if (node->is_directory() && (catalog_.has_directory(site->canonical) || shows_set(node, site->path))) {
        return fail(ErrorCode::kCrossDevice, "rename " + site->path + ": it shows entries of the cluster; copy it");
      }
    }
    if ((*first)->is_directory()) INDUCTORFS_TRY(check_new_path(tree_, from.path, to.path));
    if ((*second)->is_directory()) INDUCTORFS_TRY(check_new_path(tree_, to.path, from.path));
    auto exchanged = with_contents(*first, *second, [&](Content& a, Content* b) -> Result<void> {
      a.attributes_valid = false;
      if (b != nullptr) b->attributes_valid = false;
      auto own = a.backing == Backing::kShared ? make_private(*first, a, std::nullopt) : Result<void>{};
      if (own && b != nullptr && b->backing == Backing::kShared) own = make_private(*second, *b, std::nullopt);
      if (!own) return own;
      own = begin_rename(tree_, from);
      if (own) own = tree_.rename(LocalTree::view(from.path), LocalTree::view(to.path), RENAME_EXCHANGE);
      if (!own) return own;
      fail_point("rename.exchanged");
      nodes_.exchange(from.parent, from.name, to.parent, to.name);
      return {};
    });
    if (!exchanged) return exchanged;
    hide_moved(from.path, to.path);
    hide_moved(to.path, from.path);
    return {};
  });
}

}  // namespace inductorfs::vfs
