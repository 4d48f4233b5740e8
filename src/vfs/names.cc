// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/overlay.h"

namespace inductorfs::vfs {

Result<void> Overlay::make_local_directory(const NodePtr& directory, const std::string& path) {
  const bool is_virtual =
      directory->content.with([](const Content& content) { return content.backing == Backing::kVirtual; });
  if (!is_virtual) return {};
  INDUCTORFS_TRY(tree_.make_view_directories(path));
  directory->content.with([&](Content& content) { become(directory, content, Backing::kLocal, {}); });
  return {};
}

void Overlay::become(const NodePtr& node, Content& content, Backing backing, std::string elsewhere) {
  content.backing = backing;
  content.elsewhere = std::move(elsewhere);
  content.attributes_valid = false;
  nodes_.note_content(*node, NodeJournal::local(node->id, content.elsewhere));
}

namespace {

constexpr uint64_t kRoomForAName = 64 << 10;

/// The directory part of a site's path.
std::string parent_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

/// For `status`: a job makes as many directories as it has kernels.
void note_once(std::vector<std::string>& told, const std::string& line) {
  constexpr size_t kMost = 20;
  if (told.size() < kMost && std::find(told.begin(), told.end(), line) == told.end()) told.push_back(line);
}

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
  const auto status = tree.stat(LocalTree::view(site.path));
  if (!status) return fail(status.error());
  const auto begun = takeover::begun_effect();
  if (*status && begun && (*begun == 1 || (*status)->st_ino == *begun)) return true;
  if (*status) return fail(ErrorCode::kExists);
  takeover::begin_effect(witness);
  return false;
}

}  // namespace

Result<Found> Overlay::made(const Site& site, const Caller& caller, std::optional<Fd> file) {
  const std::string view_path = LocalTree::view(site.path);
  if (options_.chown_to_caller) {
    const auto parent = tree_.stat(LocalTree::view(parent_path(site.path)));
    if (!parent) return fail(parent.error());
    if (auto given = give_to(tree_, view_path, caller, *parent); !given) return fail(std::move(given).error());
  }
  const auto status = tree_.stat(view_path);
  if (!status) return fail(status.error());
  if (!*status) return fail(ErrorCode::kNotFound);
  (void)nodes_.detach(site.parent, site.name);  // an entry of the cluster that the new name covers
  auto result = add_local(site, **status, 1);
  if (!result) return result;
  if (file) (void)descriptors_.put(result->node, std::move(*file), true);
  changed_names_in(site.parent);
  result->keep = kernel_may_keep(site.path);
  return result;
}

/// Once more when the disk was full and is not any more.
Result<Found> Overlay::make_name(const std::function<Result<Found>(const Moves&)>& make) {
  auto result = moves_.read(make);
  const bool full = !result && result.error().code() == ErrorCode::kNoSpace;
  return full && make_room(kRoomForAName) ? moves_.read(make) : result;
}

Result<Found> Overlay::create(NodeId parent, std::string_view name, mode_t mode, const Caller& caller) {
  auto where = site(parent, name);
  if (!where) return fail(std::move(where).error());
  auto result = make_name([&](const Moves&) -> Result<Found> {
    INDUCTORFS_TRY(make_local_directory(where->parent, parent_path(where->path)));
    const std::string view_path = LocalTree::view(where->path);
    const auto done = begin_name(tree_, *where);
    if (!done) return fail(done.error());
    const int flags = O_RDWR | O_NOFOLLOW | (*done ? 0 : O_CREAT | O_EXCL);
    auto file = open_at(tree_.fd(), view_path, flags, mode & 07777);
    if (!file) return fail(std::move(file).error());
    fail_point("name.created");
    return made(*where, caller, std::move(*file));
  });
  const NodePtr node = result ? nodes_.find(result->node) : nullptr;
  if (!node) return result;
  node->content.with([&](Content& content) {
    content.last_writer = caller.pid;
    content.provenance = std::make_shared<const Provenance>();
  });
  const auto& rule = layout::rule_of(layout::classify(where->path).family);
  if (!rule.shared) return result;
  // What a compiler makes in place is witnessed when its build directory goes.
  if (rule.seal != layout::SealSign::kBuildDirectory) saw_writer(node, where->path, caller.pid);
  if (in_place_.is_on()) {
    in_place_.add(node, where->path);
  } else if (rule.seal == layout::SealSign::kQuiet) {
    sealer_.add_quiet({node, where->path, false});
  }
  return result;
}

Result<Found> Overlay::make_node(NodeId parent, std::string_view name, mode_t mode, dev_t device,
                                 const Caller& caller) {
  if (S_ISREG(mode)) return create(parent, name, mode, caller);
  auto where = site(parent, name);
  if (!where) return fail(std::move(where).error());
  return make_name([&](const Moves&) -> Result<Found> {
    INDUCTORFS_TRY(make_local_directory(where->parent, parent_path(where->path)));
    const auto done = begin_name(tree_, *where);
    if (!done) return fail(done.error());
    if (!*done && ::mknodat(tree_.fd(), LocalTree::view(where->path).c_str(), mode, device) != 0) {
      return fail_errno("mknod", where->path);
    }
    return made(*where, caller, std::nullopt);
  });
}

Result<Found> Overlay::make_directory(NodeId parent, std::string_view name, mode_t mode, const Caller& caller) {
  auto where = site(parent, name);
  if (!where) return fail(std::move(where).error());
  return make_name([&](const Moves&) -> Result<Found> {
    INDUCTORFS_TRY(make_local_directory(where->parent, parent_path(where->path)));
    const std::string view_path = LocalTree::view(where->path);
    const auto done = begin_name(tree_, *where);
    if (!done) return fail(done.error());
    if (!*done && ::mkdirat(tree_.fd(), view_path.c_str(), mode & 07777) != 0) return fail_errno("mkdir", where->path);
    fail_point("name.directory_made");
    const auto above = tree_.stat(LocalTree::view(parent_path(where->path)));
    if (above && *above && ((*above)->st_mode & S_ISGID) != 0) {
      (void)::fchmodat(tree_.fd(), view_path.c_str(), (mode & 07777) | S_ISGID, 0);  // as mkdir(2) says; best effort
    }
    if (const std::string why = misplaced_triton_directory(where->path, options_.mountpoint); !why.empty()) {
      refused_.with([&](std::vector<std::string>& refused) { note_once(refused, why); });
    }
    return made(*where, caller, std::nullopt);
  });
}

Result<Found> Overlay::make_symlink(NodeId parent, std::string_view name, const std::string& target,
                                    const Caller& caller) {
  auto where = site(parent, name);
  if (!where) return fail(std::move(where).error());
  return make_name([&](const Moves&) -> Result<Found> {
    INDUCTORFS_TRY(make_local_directory(where->parent, parent_path(where->path)));
    const auto done = begin_name(tree_, *where);
    if (!done) return fail(done.error());
    if (!*done && ::symlinkat(target.c_str(), tree_.fd(), LocalTree::view(where->path).c_str()) != 0) {
      return fail_errno("symlink", where->path);
    }
    fail_point("name.symlink_made");
    return made(*where, caller, std::nullopt);
  });
}

Result<NodePtr> Overlay::link_file(const NodePtr& node, Content& content, const Site& to) {
  // The blob's inode belongs to the store; a second name of the file needs an inode that may be written to.
  if (node->is_regular()) INDUCTORFS_TRY(make_private(node, content, std::nullopt));
  content.attributes_valid = false;
  const auto from = location(*node, content);
  if (!from) return fail(from.error());
  const auto status = tree_.stat(*from);
  if (!status) return fail(status.error());
  const auto done = begin_name(tree_, to, *status ? (*status)->st_ino : 0);
  if (!done) return fail(done.error());
  if (!*done) INDUCTORFS_TRY(tree_.link(*from, LocalTree::view(to.path)));
  fail_point("name.linked");
  (void)nodes_.detach(to.parent, to.name);
  return nodes_.add(to.parent, to.name, node, 1);
}

Result<Found> Overlay::link(NodeId id, NodeId new_parent, std::string_view new_name, const Caller& caller) {
  auto node = live(id);
  if (!node) return fail(std::move(node).error());
  if ((*node)->is_directory()) return fail(ErrorCode::kNotPermitted, "link: directories have one name");
  auto where = site(new_parent, new_name);
  if (!where) return fail(std::move(where).error());
  auto result = make_name([&](const Moves&) -> Result<Found> {
    INDUCTORFS_TRY(make_local_directory(where->parent, parent_path(where->path)));
    // One step with the look at whether the store shares the file's inode: a seal in between would count one name and
    // give the store the inode of both, and the next write would take only one of them to an inode of its own.
    auto linked = (*node)->content.with([&](Content& content) { return link_file(*node, content, *where); });
    if (!linked) return fail(std::move(linked).error());
    named_again(*linked);
    changed_names_in(where->parent);
    return found(*linked, true);
  });
  if (!result) return result;
  saw_writer(*node, where->path, caller.pid);
  in_place_.add(*node, where->path);
  return result;
}

Result<std::string> Overlay::read_link(NodeId id) {
  auto node = live(id);
  if (!node) return fail(std::move(node).error());
  return moves_.read([&](const Moves&) -> Result<std::string> {
    auto path = (*node)->content.with([&](const Content& content) { return location(**node, content); });
    if (!path) return path;
    std::string target(4096, '\0');
    const ssize_t size = ::readlinkat(tree_.fd(), path->c_str(), target.data(), target.size());
    if (size < 0) return fail_errno("readlink", *path);
    target.resize(static_cast<size_t>(size));
    return target;
  });
}

void Overlay::hide_entry(const std::string& canonical) {
  if (!layout::rule_of(layout::classify(canonical).family).shared) return;
  if (catalog_.find(canonical)) counters_.get("view.hidden").add();
  // Without an entry too: what is on its way to the cluster must not come back from there.
  queueing_.with([&](const Queueing&) { catalog_.hide(canonical); });
  sets_.hide(local_paths_of(canonical));
}

Result<void> Overlay::keep_orphan(const Site& site, const NodePtr& node) {
  const bool referred = node && nodes_.links_of(node) <= 1 && (node->lookups.load() != 0 || node->pins.load() != 0);
  if (!referred || !node->is_regular()) return {};
  // A second name, so that who has the file open reads it to the end; the first one goes in the next step.
  (void)tree_.unlink(LocalTree::orphan(node->id));  // of a node with this number in an earlier life
  return tree_.link(LocalTree::view(site.path), LocalTree::orphan(node->id));
}

void Overlay::become_orphan(const Node& node, Content& content, std::string place) {
  content.elsewhere = std::move(place);
  nodes_.note_content(node, NodeJournal::local(node.id, content.elsewhere));
  orphans_.with([](Orphans& orphans) { ++orphans.left; });
}

/// A node became an orphan when the last name went that was known of it, and the disk has a further name for its file,
/// which was just found or made. The file is at that name again, and the orphan's own name goes.
void Overlay::named_again(const NodePtr& node) {
  node->content.with([&](Content& content) {
    if (content.backing != Backing::kLocal || !content.elsewhere.starts_with("orphans/")) return;
    if (!nodes_.path_of(*node)) return;  // that name went meanwhile, too
    const std::string place = content.elsewhere;
    become(node, content, Backing::kLocal, {});
    (void)tree_.unlink(place);  // what stays is removed by the next worker, or at the next start
    orphans_.notify_with([](Orphans& orphans) { orphans.one_is_gone(); });
  });
}

/// After a name went: whether it was the last one that is known. Whether it was the last of all is the disk's to say
/// (attributes()).
void Overlay::orphaned(const Node& node, Content& content, bool has_file) {
  const bool last_name = nodes_.path_of(node) == std::nullopt;
  content.attributes_valid = content.attributes_valid && content.backing == Backing::kShared;
  const bool kept = last_name && has_file && node.is_regular() && content.backing == Backing::kLocal;
  if (kept) become_orphan(node, content, LocalTree::orphan(node.id));
  if (last_name) content.attributes.links = 0;
}

Result<void> Overlay::remove_first_name(const std::string& view_path, const NodePtr& node, Content* content,
                                        Result<void> kept) {
  // A disk that is full to its last inode has no room for a second name: the first one becomes it.
  bool moves = !kept && kept.error().code() == ErrorCode::kNoSpace;
  if (!kept && !moves) return kept;
  fail_point("name.unlinking");
  if (moves) {
    auto moved = tree_.rename(view_path, LocalTree::orphan(node->id));
    if (!moved && moved.error().code() != ErrorCode::kNoSpace) return moved;
    // Under a quota that counts names too (btrfs) nothing but unlink(2) is left, and refusing it would leave no way
    // back. Who has the file open reads it as long as its descriptor is kept.
    moves = moved.has_value();
    if (!moves && content != nullptr) (void)descriptor(*node, *content, false);  // without one nobody reads on
  }
  if (!moves && ::unlinkat(tree_.fd(), view_path.c_str(), 0) != 0) return fail_errno("unlink", view_path);
  fail_point("name.unlinked");
  return {};
}

Result<void> Overlay::take_name_away(const Site& site, const NodePtr& node, Content* content) {
  const std::string view_path = LocalTree::view(site.path);
  const auto status = tree_.stat(view_path);
  if (!status) return fail(status.error());
  if (!*status && !node && !catalog_.find(site.canonical)) {
    if (!takeover::begun_effect()) return fail(ErrorCode::kNotFound);
  } else {
    auto kept = *status ? keep_orphan(site, node) : Result<void>{};
    takeover::begin_effect();
    if (*status) INDUCTORFS_TRY(remove_first_name(view_path, node, content, std::move(kept)));
  }
  (void)nodes_.detach(site.parent, site.name);
  if (content != nullptr) orphaned(*node, *content, status->has_value());
  return {};
}

Result<void> Overlay::unlink(NodeId parent, std::string_view name) {
  auto where = site(parent, name);
  if (!where) return fail(std::move(where).error());
  const NodePtr node = nodes_.child(where->parent, where->name);
  INDUCTORFS_TRY(moves_.read([&](const Moves&) {
    if (!node) return take_name_away(*where, node, nullptr);
    return node->content.with([&](Content& content) { return take_name_away(*where, node, &content); });
  }));
  hide_entry(where->canonical);  // after the name went: the sealer looks for the name after it has queued
  if (node) let_go(nodes_.release(node));
  changed_names_in(where->parent);
  if (where->parent->key && local_set(parent_path(where->path)).empty()) {
    where->parent->key->state.with([](KeyState& state) {
      if (state.committed == KeyState::Committed::kLocal) state.committed = KeyState::Committed::kNone;
    });
  }
  return {};
}

bool Overlay::shows_set(const NodePtr& directory, const std::string& path) const {
  return directory && directory->is_directory() && path.starts_with("triton") && sets_.shown_at(directory);
}

bool Overlay::directory_is_empty(const NodePtr& directory, const std::string& path) const {
  if (directory && directory->key) {
    // Triton removes the key directory, and then its parents, after every put (os.removedirs): a set that is not
    // complete yet must hold it.
    const bool pending = directory->key->state.with([](const KeyState& state) { return !state.writers.empty(); });
    if (pending) return false;
  }
  if (catalog_.has_directory(layout::canonical_path(path)) || shows_set(directory, path)) return false;
  const auto status = tree_.stat(LocalTree::view(path));
  return !status || !*status || tree_.is_empty(LocalTree::view(path));
}

Result<void> Overlay::remove_directory(NodeId parent, std::string_view name, const Caller& caller) {
  auto where = site(parent, name);
  if (!where) return fail(std::move(where).error());
  INDUCTORFS_TRY(moves_.read([&](const Moves&) -> Result<void> {
    const NodePtr node = nodes_.child(where->parent, where->name);
    if (!directory_is_empty(node, where->path)) return fail(ErrorCode::kNotEmpty);
    const std::string view_path = LocalTree::view(where->path);
    if (::unlinkat(tree_.fd(), view_path.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
      return fail_errno("rmdir", where->path);
    }
    fail_point("name.directory_removed");
    (void)nodes_.detach(where->parent, where->name);
    if (node) let_go(nodes_.release(node));
    changed_names_in(where->parent);
    return {};
  }));
  seal_after_build(where->path, caller.pid);
  return {};
}

}  // namespace inductorfs::vfs
