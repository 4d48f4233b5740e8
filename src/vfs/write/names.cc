// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/names.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/tree/paths.h"

namespace inductorfs::vfs {
namespace {

constexpr uint64_t kRoomForAName = 64 << 10;

/// After a name was made on the disk: who it belongs to.
Result<void> give_to(const LocalTree& tree, const std::string& view_path, const Caller& caller,
                     const std::optional<struct stat>& parent) {
  // A set-group-id directory hands its group on (mkdir(2), open(2)).
  const bool inherits = parent && (parent->st_mode & S_ISGID) != 0;
  const gid_t group = inherits ? parent->st_gid : caller.gid;
  if (::fchownat(tree.fd(), view_path.c_str(), caller.uid, group, AT_SYMLINK_NOFOLLOW) != 0) {
    return fail_errno("chown", view_path);
  }
  return {};
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
      removal_(parts.removal) {}

Result<Found> Names::made(const Site& site, const Caller& caller, std::optional<Fd> file) {
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

/// Once more when the disk was full and is not any more.
Result<Found> Names::make_name(const std::function<Result<Found>(const Moves&)>& make) {
  auto result = moves_.read(make);
  const bool full = !result && result.error().code() == ErrorCode::kNoSpace;
  return full && tree_.make_room(kRoomForAName) ? moves_.read(make) : result;
}

Result<Found> Names::create(NodeId parent, std::string_view name, mode_t mode, const Caller& caller) {
  INDUCTORFS_TRY_ASSIGN(auto where, tree_.site(parent, name));
  auto result = make_name([&](const Moves&) -> Result<Found> {
    INDUCTORFS_TRY(tree_.make_local_directory(where.parent, parent_path(where.path)));
    const std::string view_path = LocalTree::view(where.path);
    INDUCTORFS_TRY_ASSIGN(const auto done, begin_name(disk_, where));
    const int flags = O_RDWR | O_NOFOLLOW | (done ? 0 : O_CREAT | O_EXCL);
    INDUCTORFS_TRY_ASSIGN(auto file, open_at(disk_.fd(), view_path, flags, mode & 07777));
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
  INDUCTORFS_TRY_ASSIGN(auto where, tree_.site(parent, name));
  return make_name([&](const Moves&) -> Result<Found> {
    INDUCTORFS_TRY(tree_.make_local_directory(where.parent, parent_path(where.path)));
    INDUCTORFS_TRY_ASSIGN(const auto done, begin_name(disk_, where));
    if (!done && ::mknodat(disk_.fd(), LocalTree::view(where.path).c_str(), mode, device) != 0) {
      return fail_errno("mknod", where.path);
    }
    return made(where, caller, std::nullopt);
  });
}

Result<Found> Names::make_directory(NodeId parent, std::string_view name, mode_t mode, const Caller& caller) {
  INDUCTORFS_TRY_ASSIGN(auto where, tree_.site(parent, name));
  auto result = make_name([&](const Moves&) -> Result<Found> {
    INDUCTORFS_TRY(tree_.make_local_directory(where.parent, parent_path(where.path)));
    const std::string view_path = LocalTree::view(where.path);
    INDUCTORFS_TRY_ASSIGN(const auto done, begin_name(disk_, where));
    if (!done && ::mkdirat(disk_.fd(), view_path.c_str(), mode & 07777) != 0) return fail_errno("mkdir", where.path);
    fail_point("name.directory_made");
    const auto above = disk_.stat(LocalTree::view(parent_path(where.path)));
    if (above && *above && ((*above)->st_mode & S_ISGID) != 0) {
      (void)::fchmodat(disk_.fd(), view_path.c_str(), (mode & 07777) | S_ISGID, 0);  // as mkdir(2) says; best effort
    }
    return made(where, caller, std::nullopt);
  });
  const NodePtr node = result && form_of(where.path) == layout::Form::kDirectory ? nodes_.find(result->node) : nullptr;
  if (node) sealer_.add_quiet({.node = node, .path = where.path, .has_no_sign = true});
  return result;
}

Result<Found> Names::make_symlink(NodeId parent, std::string_view name, const std::string& target,
                                  const Caller& caller) {
  INDUCTORFS_TRY_ASSIGN(auto where, tree_.site(parent, name));
  return make_name([&](const Moves&) -> Result<Found> {
    INDUCTORFS_TRY(tree_.make_local_directory(where.parent, parent_path(where.path)));
    INDUCTORFS_TRY_ASSIGN(const auto done, begin_name(disk_, where));
    if (!done && ::symlinkat(target.c_str(), disk_.fd(), LocalTree::view(where.path).c_str()) != 0) {
      return fail_errno("symlink", where.path);
    }
    fail_point("name.symlink_made");
    return made(where, caller, std::nullopt);
  });
}

Result<NodePtr> Names::link_file(const NodePtr& node, Content& content, const Site& to, EarlyCopy& early) {
  // The blob's inode belongs to the store; a second name of the file needs an inode that may be written to.
  if (node->is_regular()) INDUCTORFS_TRY(data_.make_private(node, content, early));
  content.attributes_valid = false;
  INDUCTORFS_TRY_ASSIGN(const auto from, tree_.location(*node, content));
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
  INDUCTORFS_TRY_ASSIGN(auto where, tree_.site(new_parent, new_name));
  INDUCTORFS_TRY_ASSIGN(auto early, data_.copy_early(node, true));
  auto result = make_name([&](const Moves&) -> Result<Found> {
    INDUCTORFS_TRY(tree_.make_local_directory(where.parent, parent_path(where.path)));
    // One step with the look at whether the store shares the file's inode: a seal in between would count one name and
    // give the store the inode of both, and the next write would take only one of them to an inode of its own.
    auto linked = node->content.with([&](Content& content) { return link_file(node, content, where, early); });
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
    std::string target(4096, '\0');
    const ssize_t size = ::readlinkat(disk_.fd(), path->c_str(), target.data(), target.size());
    if (size < 0) return fail_errno("readlink", *path);
    target.resize(static_cast<size_t>(size));
    return target;
  });
}

Result<void> Names::unlink(NodeId parent, std::string_view name) {
  INDUCTORFS_TRY_ASSIGN(auto where, tree_.site(parent, name));
  const NodePtr node = nodes_.child(where.parent, where.name);
  INDUCTORFS_TRY(moves_.read([&](const Moves&) {
    if (!node) return removal_.take_name_away(where, node, nullptr);
    return node->content.with([&](Content& content) { return removal_.take_name_away(where, node, &content); });
  }));
  removal_.hide_entry(where.entry);  // after the name went: the sealer looks for the name after it has queued
  origin_.member_changed(where.path);
  if (node) tree_.let_go(nodes_.release(node));
  changed_names_in(where.parent);
  if (where.parent->key && tree_.local_set(parent_path(where.path)).empty()) {
    where.parent->key->state.with([](KeyState& state) {
      if (state.committed == KeyState::Committed::kLocal) state.committed = KeyState::Committed::kNone;
    });
  }
  return {};
}

Result<void> Names::remove_directory(NodeId parent, std::string_view name, const Caller& caller) {
  INDUCTORFS_TRY_ASSIGN(auto where, tree_.site(parent, name));
  INDUCTORFS_TRY(take_directory_away(where));
  sealing_.seal_after_build(where.path, caller.pid);
  return {};
}

Result<void> Names::take_directory_away(NodeId parent, std::string_view name) {
  INDUCTORFS_TRY_ASSIGN(auto where, tree_.site(parent, name));
  return take_directory_away(where);
}

Result<void> Names::take_directory_away(const Site& where) {
  INDUCTORFS_TRY(moves_.read([&](const Moves&) -> Result<void> {
    const NodePtr node = nodes_.child(where.parent, where.name);
    if (!removal_.directory_is_empty(node, where.path)) return fail(ErrorCode::kNotEmpty);
    const std::string view_path = LocalTree::view(where.path);
    if (::unlinkat(disk_.fd(), view_path.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
      return fail_errno("rmdir", where.path);
    }
    fail_point("name.directory_removed");
    (void)nodes_.detach(where.parent, where.name);
    if (node) tree_.let_go(nodes_.release(node));
    changed_names_in(where.parent);
    return {};
  }));
  removal_.forget_root(where.path);
  if (form_of(where.path) == layout::Form::kDirectory) removal_.hide_entry(where.entry);
  return {};
}

}  // namespace inductorfs::vfs
