// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/names.h"

#include <sys/stat.h>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/tree/paths.h"

namespace inductorfs::vfs {
namespace {

/// After a name was made on the disk: who it belongs to.
Result<void> give_to(const LocalTree& tree, const std::string& view_path, const Caller& caller,
                     const std::optional<struct stat>& parent) {
  // A set-group-id directory hands its group on (mkdir(2), open(2)).
  const bool inherits = parent && (parent->st_mode & S_ISGID) != 0;
  const gid_t group = inherits ? parent->st_gid : caller.gid;
  return tree.set_owner(view_path, caller.uid, group);
}

/// Before a name is made on the disk. True: an earlier worker made it, for this very request.
Result<bool> begin_name(const LocalTree& tree, const Site& site, uint64_t witness = 1) {
  INDUCTORFS_TRY_ASSIGN(const auto status, tree.stat(LocalTree::view(site.path)));
  const auto begun = takeover::begun_effect();
  if (status && begun && (*begun == 1 || status->st_ino == *begun)) return true;
  if (status) return fail(ErrorCode::kExists);
  takeover::begin_effect(witness);
  return false;
}

}  // namespace

Names::Names(const Parts& parts)
    : tree_(parts.tree),
      lookup_(parts.lookup),
      origin_(parts.origin),
      in_place_(parts.in_place),
      sealer_(parts.sealer),
      data_(parts.data),
      sealing_(parts.sealing),
      removal_(parts.removal),
      refusals_(parts.refusals) {}

Result<Found> Names::made(const Site& site, const Caller& caller, std::optional<Fd> file) {
  auto result = show_made(site, caller, std::move(file));
  if (result) return result;
  // Who is told of an error makes it again, and the kernel does not know that it is there.
  const std::string view_path = LocalTree::view(site.path);
  if (!disk_.unlink(view_path)) (void)disk_.remove_directory(view_path);
  return result;
}

Result<Found> Names::show_made(const Site& site, const Caller& caller, std::optional<Fd> file) {
  const std::string view_path = LocalTree::view(site.path);
  if (options_.chown_to_caller) {
    INDUCTORFS_TRY_ASSIGN(const auto parent, disk_.stat(LocalTree::view(parent_path(site.path))));
    INDUCTORFS_TRY(give_to(disk_, view_path, caller, parent));
  }
  INDUCTORFS_TRY_ASSIGN(const auto status, disk_.stat(view_path));
  if (!status) return fail(ErrorCode::kNotFound);
  (void)nodes_.detach(site.parent, site.name);  // an entry of the cluster that the new name covers
  auto result = lookup_.add_local(site, *status, 1);
  if (!result) return result;
  if (file) (void)descriptors_.put(result->node, std::move(*file), true);
  changed_names_in(site.parent);
  result->keep = kernel_may_keep(site.path);
  note_named(site);
  return result;
}

/// Calls `make` under the lock under which `where` is resolved. Once more when the disk was full and is not any more.
Result<Found> Names::make_name(NodeId parent, std::string_view name, Site& where,
                               const std::function<Result<Found>()>& make) {
  const auto once = [&](const Moves& moves) -> Result<Found> {
    INDUCTORFS_TRY_ASSIGN(where, tree_.site(moves, parent, name));
    INDUCTORFS_TRY(tree_.make_local_directory(moves, where.parent));
    return make();
  };
  return tree_.with_room([&] { return moves_.read(once); });
}

Result<Found> Names::create(NodeId parent, std::string_view name, mode_t mode, const Caller& caller) {
  Site where;
  auto result = make_name(parent, name, where, [&]() -> Result<Found> {
    const std::string view_path = LocalTree::view(where.path);
    INDUCTORFS_TRY_ASSIGN(const auto done, begin_name(disk_, where));
    INDUCTORFS_TRY_ASSIGN(auto file,
                          done ? disk_.open_file(view_path, true) : disk_.create_file(view_path, mode & 07777));
    fail_point("name.created");
    return made(where, caller, std::move(file));
  });
  const NodePtr node = result ? nodes_.find(result->node) : nullptr;
  if (!node) return result;
  node->content.with([&](Content& content) {
    content.last_writer = caller.pid;
    content.provenance = std::make_shared<const Provenance>();
  });
  if (!layout::rule_of(layout::classify(where.path).family).shared) return result;
  // What a compiler makes in place is witnessed when its build directory goes.
  if (!seals_after_build(where.path)) origin_.saw_writer(node, where.path, caller.pid);
  if (!in_place_.add(node, where.path)) {
    sealer_.add_quiet({.node = node, .path = where.path, .has_no_sign = !seals_when_quiet(where.path)});
  }
  return result;
}

Result<Found> Names::make_node(NodeId parent, std::string_view name, mode_t mode, dev_t device, const Caller& caller) {
  if (S_ISREG(mode)) return create(parent, name, mode, caller);
  Site where;
  return make_name(parent, name, where, [&]() -> Result<Found> {
    INDUCTORFS_TRY_ASSIGN(const auto done, begin_name(disk_, where));
    if (!done) INDUCTORFS_TRY(disk_.make_node(LocalTree::view(where.path), mode, device));
    return made(where, caller, std::nullopt);
  });
}

Result<Found> Names::make_directory(NodeId parent, std::string_view name, mode_t mode, const Caller& caller) {
  Site where;
  auto result = make_name(parent, name, where, [&]() -> Result<Found> {
    const std::string view_path = LocalTree::view(where.path);
    INDUCTORFS_TRY_ASSIGN(const auto done, begin_name(disk_, where));
    if (!done) INDUCTORFS_TRY(disk_.make_directory(view_path, mode & 07777));
    fail_point("name.directory_made");
    const auto above = disk_.stat(LocalTree::view(parent_path(where.path)));
    if (above && *above && ((*above)->st_mode & S_ISGID) != 0) {
      (void)disk_.set_mode(view_path, (mode & 07777) | S_ISGID);  // as mkdir(2) says; best effort
    }
    return made(where, caller, std::nullopt);
  });
  if (result) refusals_.note_if_hidden(where.path, disk_);
  const NodePtr node = result && form_of(where.path) == layout::Form::kDirectory ? nodes_.find(result->node) : nullptr;
  if (node) sealer_.add_quiet({.node = node, .path = where.path, .has_no_sign = true});
  return result;
}

Result<Found> Names::make_symlink(NodeId parent, std::string_view name, const std::string& target,
                                  const Caller& caller) {
  Site where;
  return make_name(parent, name, where, [&]() -> Result<Found> {
    INDUCTORFS_TRY_ASSIGN(const auto done, begin_name(disk_, where));
    if (!done) INDUCTORFS_TRY(disk_.make_symlink(target, LocalTree::view(where.path)));
    fail_point("name.symlink_made");
    return made(where, caller, std::nullopt);
  });
}

Result<NodePtr> Names::link_file(const NodePtr& node, Content& content, const Site& to, EarlyCopy& early,
                                 const Caller& caller) {
  // The blob's inode belongs to the store; a second name of the file needs an inode that may be written to.
  if (node->is_regular()) INDUCTORFS_TRY(data_.make_private(node, content, early));
  content.attributes_valid = false;
  INDUCTORFS_TRY_ASSIGN(const auto from, tree_.location(*node, content));
  INDUCTORFS_TRY(origin_.note_namer(from, caller));
  const auto path = nodes_.path_of(*node);
  if (path && layout::name_of(*path).root != to.entry.root) INDUCTORFS_TRY(origin_.note_open(from, *path));
  INDUCTORFS_TRY_ASSIGN(const auto status, disk_.stat(from));
  INDUCTORFS_TRY_ASSIGN(const auto done, begin_name(disk_, to, status ? status->st_ino : 0));
  if (!done) INDUCTORFS_TRY(disk_.link(from, LocalTree::view(to.path)));
  fail_point("name.linked");
  (void)nodes_.detach(to.parent, to.name);
  return nodes_.add(to.parent, to.name, node, 1);
}

Result<Found> Names::link(NodeId id, NodeId new_parent, std::string_view new_name, const Caller& caller) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  if (node->is_directory()) return fail(ErrorCode::kNotPermitted, "link: directories have one name");
  INDUCTORFS_TRY_ASSIGN(auto early, data_.copy_early(node, true));
  Site where;
  auto result = make_name(new_parent, new_name, where, [&]() -> Result<Found> {
    // One step with the look at whether the store shares the file's inode: a seal in between would count one name and
    // give the store the inode of both, and the next write would take only one of them to an inode of its own.
    auto linked = node->content.with([&](Content& content) { return link_file(node, content, where, early, caller); });
    if (!linked) return fail(std::move(linked).error());
    tree_.named_again(*linked);
    changed_names_in(where.parent);
    note_named(where);
    return lookup_.found(*linked, true);
  });
  if (!result) return result;
  origin_.saw_writer(node, where.path, caller.pid);
  in_place_.add(node, where.path);
  return result;
}

/// Everybody who may write to the root may make a link in a common directory, and torch follows what has the name of a
/// lock or of its temporary file there, and writes to it. Under a sticky bit the kernel would refuse to
/// (fs.protected_symlinks), and common directories have none.
bool Names::may_follow(const NodePtr& node, uid_t owner, const Caller& caller) const {
  if (owner == caller.uid) return true;
  for (const auto& [parent, name] : nodes_.names_of(node)) {
    const NodePtr directory = nodes_.find(parent);
    const auto path = directory ? nodes_.path_of(*directory) : std::nullopt;
    if (!path || !layout::is_common_directory(*path)) continue;
    constexpr mode_t kOthersWrite = 0022;
    const auto root = tree_.access_of_root(layout::name_of(*path));
    if (!root || (root->mode & kOthersWrite) == 0) continue;
    // An ordinary user's daemon makes everybody's links its own, so that nothing tells whose a link is.
    const bool trusted = options_.chown_to_caller && (owner == 0 || owner == root->uid);
    if (!trusted) return false;
  }
  return true;
}

Result<std::string> Names::read_link(NodeId id, const Caller& caller) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  return moves_.read([&](const Moves&) -> Result<std::string> {
    auto path = node->content.with([&](const Content& content) { return tree_.location(*node, content); });
    if (!path) return path;
    INDUCTORFS_TRY_ASSIGN(const auto status, disk_.stat(*path));
    if (status && !may_follow(node, status->st_uid, caller)) {
      return fail(ErrorCode::kNotPermitted, "readlink: a link of another user in a directory that all users write to");
    }
    return disk_.read_link(*path);
  });
}

Result<void> Names::unlink(NodeId parent, std::string_view name, const Caller& caller) {
  Site where;
  NodePtr node;
  const auto gone = moves_.read([&](const Moves& moves) -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(where, tree_.site(moves, parent, name));
    node = nodes_.child(where.parent, where.name);
    INDUCTORFS_TRY(origin_.note_left(where.path, caller));
    if (!node) return removal_.take_name_away(where, node, nullptr);
    return node->content.with([&](Content& content) { return removal_.take_name_away(where, node, &content); });
  });
  if (!gone) return gone;
  removal_.hide_entry(where.path);  // after the name went: the sealer looks for the name after it has queued
  origin_.member_changed(where.path);
  if (node) tree_.let_go(nodes_.release(node));
  changed_names_in(where.parent);
  const auto is_left = [&](const auto& set) { return !set || !set->empty(); };  // what cannot be read may be there
  if (where.parent->key && !is_left(tree_.read_set(parent_path(where.path)))) {
    where.parent->key->state.with([](KeyState& state) {
      if (state.committed == KeyState::Committed::kLocal) state.committed = KeyState::Committed::kNone;
    });
  }
  return {};
}

Result<void> Names::remove_directory(NodeId parent, std::string_view name, const Caller& caller) {
  Site where;
  INDUCTORFS_TRY(take_directory_away(parent, name, false, where));
  sealing_.seal_after_build(where.path, caller);
  return {};
}

Result<void> Names::take_directory_away(NodeId parent, std::string_view name) {
  Site where;
  return take_directory_away(parent, name, true, where);
}

Result<void> Names::take_directory_away(NodeId parent, std::string_view name, bool shown_goes_too, Site& where) {
  const auto gone = moves_.read([&](const Moves& moves) -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(where, tree_.site(moves, parent, name));
    const NodePtr node = nodes_.child(where.parent, where.name);
    if (!shown_goes_too && !removal_.directory_is_empty(node, where.path)) return fail(ErrorCode::kNotEmpty);
    INDUCTORFS_TRY(tree_.remove_directory(where.path));
    changed_names_in(where.parent);
    return {};
  });
  if (!gone) return gone;
  removal_.forget_root(where.path);
  if (form_of(where.path) == layout::Form::kDirectory) removal_.hide_entry(where.path);
  return {};
}

}  // namespace inductorfs::vfs
