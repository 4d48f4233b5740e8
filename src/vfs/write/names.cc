// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/names.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/own_user.h"
#include "inductorfs/base/text.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/read/listing.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/view_files.h"
#include "vfs/write/branch_removal.h"
#include "vfs/write/key_sets.h"
#include "vfs/write/renames.h"

namespace inductorfs::vfs {
namespace {

/// How often a rename begins anew because somebody has moved a directory above its names.
constexpr int kRenameTries = 8;

/// Before a name is made on the disk. True: an earlier worker made it, for this very request.
Result<bool> begin_name(const LocalTree& tree, const Site& site, uint64_t witness = 1) {
  INDUCTORFS_TRY_ASSIGN(const auto status, tree.stat(LocalTree::view(site.path)));
  const auto begun = takeover::begun_effect();
  if (status && begun && (*begun == 1 || status->st_ino == *begun)) return true;
  if (status) return fail(ErrorCode::kExists);
  takeover::begin_effect(witness);
  return false;
}

bool has_listed(const NodePtr& directory, std::string_view name) {
  return directory &&
         directory->listing.with([&](const Listing& listing) { return listing.find(name) != listing.by_cookie.end(); });
}

void keep_no_name(Found& found) { found.keep_attributes = std::exchange(found.keep, false); }

}  // namespace

void Names::lookup(NodeId parent, std::string_view name, const Caller& caller, LookupDone done) {
  auto route = branches_.route(parent, name, caller, Branches::Use::kLook);
  if (!route) return done({fail(std::move(route).error()), false});
  if (route->is_first) {
    // Another program's next step may be another one.
    const Asked asked{parent, std::string(name), caller};
    done = [this, asked, at = route->parent, pin = route->pin, done = std::move(done)](LookupAnswer answer) {
      if (!answer.found) show_listed(asked, at, answer);
      if (answer.found) keep_no_name(*answer.found);
      answer.keep_absence = false;
      done(std::move(answer));
    };
  }
  key_sets_.settle(route->parent);
  lookup_.lookup(route->parent, name, caller, std::move(done));
}

/// A program lists its branch in the directory that all programs have. What another one has listed there is not its.
void Names::show_listed(const Asked& asked, NodeId parent, LookupAnswer& answer) {
  if (answer.found.error().code() != ErrorCode::kNotFound) return;
  const NodePtr lister = nodes_.find(asked.parent);
  const auto path = has_listed(lister, asked.name) ? nodes_.path_of(*lister) : std::nullopt;
  const auto site = tree_.site_now(parent, asked.name);
  if (!path || !site) return;
  const std::string made_for = listings_.made_for(*path, asked.caller);
  if (auto listed = lookup_.show_listed(*site, *lister, made_for)) answer.found = std::move(*listed);
}

void Names::left_listing(NodeId parent, std::string_view name) {
  const NodePtr directory = nodes_.find(parent);
  if (!directory) return;
  directory->listing.with([&](Listing& listing) {
    if (const auto at = listing.find(name); at != listing.by_cookie.end()) listing.by_cookie.erase(at);
  });
}

Result<void> Names::read_directory(NodeId directory, uint64_t cookie, const Caller& caller,
                                   const std::function<bool(const DirectoryItem&)>& take) {
  key_sets_.settle(directory);
  return listings_.read_directory(directory, cookie, caller, take);
}

/// Whose a new name is.
Result<FileOwner> Names::owner_of_new(const Site& site, mode_t mode, const Caller& caller) const {
  const bool is_callers = options_.chown_to_caller;
  FileOwner result{is_callers ? caller.uid : own_uid(), is_callers ? caller.gid : own_gid(), mode};
  INDUCTORFS_TRY_ASSIGN(const auto parent, disk_.stat(LocalTree::view(parent_path(site.path))));
  if (!parent || (parent->st_mode & S_ISGID) == 0) return result;
  // Such a directory hands its group on, and the bit too (mkdir(2), open(2)).
  result.gid = parent->st_gid;
  if (S_ISDIR(mode)) result.mode |= S_ISGID;
  return result;
}

Result<Found> Names::made(const Site& site, std::optional<Fd> file) {
  auto result = show_made(site, std::move(file));
  if (result) return result;
  return not_made(LocalTree::view(site.path), result.error());
}

/// Who is told of an error makes it again, and the kernel does not know that it is there.
tl::unexpected<Error> Names::not_made(const std::string& view_path, const Error& why) const {
  if (!disk_.unlink(view_path)) (void)disk_.remove_directory(view_path);
  return fail(Error(why));
}

Result<Found> Names::show_made(const Site& site, std::optional<Fd> file) {
  INDUCTORFS_TRY_ASSIGN(const auto status, disk_.stat(LocalTree::view(site.path)));
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

/// Calls `make` under the lock under which `where` is resolved. Once more when the disk was full, or
/// the user at a limit, and is not any more.
Result<Found> Names::make_name(NodeId parent, std::string_view name, const Caller& caller, Site& where,
                               const std::function<Result<Found>()>& make) {
  INDUCTORFS_TRY_ASSIGN(const auto route, branches_.route(parent, name, caller, Branches::Use::kMake));
  const auto once = [&](const Moves& moves) -> Result<Found> {
    INDUCTORFS_TRY_ASSIGN(where, tree_.site(moves, route.parent, name));
    INDUCTORFS_TRY(tree_.make_local_directory(moves, where.parent));
    return make();
  };
  const auto make_it = [&] { return tree_.with_room([&] { return moves_.read(once); }); };
  auto made = make_it();
  const bool again = !made && made.error().code() == ErrorCode::kOverQuota && tree_.make_room(0);
  if (again) made = make_it();
  if (made && route.is_first) keep_no_name(*made);
  return made;
}

/// What an earlier worker made before it was killed is there, and needs no room.
Result<UserCharges::NewFile> Names::place_of(bool is_made, uid_t owner) const {
  if (is_made) return disk_.charges().admit_made(owner);
  return disk_.charges().admit(owner);
}

Result<Found> Names::create(NodeId parent, std::string_view name, mode_t mode, const Caller& caller) {
  Site where;
  auto result = make_name(parent, name, caller, where, [&]() -> Result<Found> {
    const std::string view_path = LocalTree::view(where.path);
    INDUCTORFS_TRY_ASSIGN(const auto done, begin_name(disk_, where));
    INDUCTORFS_TRY_ASSIGN(const auto owner, owner_of_new(where, S_IFREG | (mode & 07777), caller));
    INDUCTORFS_TRY_ASSIGN(auto place, place_of(done, owner.uid));
    INDUCTORFS_TRY_ASSIGN(auto file, done ? disk_.open_file(view_path, true) : disk_.create_file(view_path));
    fail_point("name.created");
    if (auto given = disk_.charges().give(file.get(), owner, &place); !given) return not_made(view_path, given.error());
    return made(where, std::move(file));
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
    seal_queue_.add_quiet({.node = node, .path = where.path, .has_no_sign = !seals_when_quiet(where.path)});
  }
  return result;
}

Result<Found> Names::make_node(NodeId parent, std::string_view name, mode_t mode, dev_t /*device*/,
                               const Caller& caller) {
  if (S_ISREG(mode)) return create(parent, name, mode, caller);
  if (!S_ISFIFO(mode) && !S_ISSOCK(mode)) return fail(ErrorCode::kNotPermitted, "mknod: a device");
  return make_special(parent, name, mode, {}, caller);
}

Result<Found> Names::make_special(NodeId parent, std::string_view name, mode_t mode, std::string_view target,
                                  const Caller& caller) {
  Site where;
  return make_name(parent, name, caller, where, [&]() -> Result<Found> {
    INDUCTORFS_TRY_ASSIGN(const auto done, begin_name(disk_, where));
    INDUCTORFS_TRY_ASSIGN(const auto owner, owner_of_new(where, mode, caller));
    INDUCTORFS_TRY_ASSIGN(auto place, place_of(done, owner.uid));
    if (done) INDUCTORFS_TRY(disk_.unlink(LocalTree::view(where.path)));  // it may be half made, and nobody knows it
    INDUCTORFS_TRY(disk_.make_special(LocalTree::view(where.path), owner, target, &place));
    fail_point("name.special_made");
    return made(where, std::nullopt);
  });
}

Result<Found> Names::make_directory(NodeId parent, std::string_view name, mode_t mode, const Caller& caller) {
  Site where;
  auto result = make_name(parent, name, caller, where, [&]() -> Result<Found> {
    const std::string view_path = LocalTree::view(where.path);
    INDUCTORFS_TRY_ASSIGN(const auto done, begin_name(disk_, where));
    INDUCTORFS_TRY_ASSIGN(const auto owner, owner_of_new(where, S_IFDIR | (mode & 07777), caller));
    INDUCTORFS_TRY_ASSIGN(auto place, place_of(done, owner.uid));
    if (!done) INDUCTORFS_TRY(disk_.make_directory(view_path));
    fail_point("name.directory_made");
    if (auto given = disk_.give_to(view_path, owner, &place); !given) return not_made(view_path, given.error());
    return made(where, std::nullopt);
  });
  if (result) refusals_.note_if_hidden(where.path, disk_);
  const NodePtr node = result && form_of(where.path) == layout::Form::kDirectory ? nodes_.find(result->node) : nullptr;
  if (node) seal_queue_.add_quiet({.node = node, .path = where.path, .has_no_sign = true});
  return result;
}

Result<Found> Names::make_symlink(NodeId parent, std::string_view name, const std::string& target,
                                  const Caller& caller) {
  constexpr mode_t kModeOfLinks = 0777;
  return make_special(parent, name, S_IFLNK | kModeOfLinks, target, caller);
}

Result<NodePtr> Names::link_file(const NodePtr& node, Content& content, const Site& to, EarlyCopy& early,
                                 const Caller& caller) {
  INDUCTORFS_TRY(Data::may_name(content, to.path, caller));
  // The blob's inode belongs to the store; a second name of the file needs an inode that may be written to.
  if (node->is_regular()) INDUCTORFS_TRY(data_.make_private(node, content, early));
  content.attributes_valid = false;
  INDUCTORFS_TRY_ASSIGN(const auto from, tree_.location(*node, content));
  INDUCTORFS_TRY(origin_.note_namer(from, caller));
  const auto path = nodes_.path_of(*node);
  if (path && layout::name_of(*path).root != to.entry.root) INDUCTORFS_TRY(origin_.note_open(from, *path));
  INDUCTORFS_TRY_ASSIGN(const auto status, disk_.stat(from));
  INDUCTORFS_TRY_ASSIGN(const auto done, begin_name(disk_, to, status ? status->st_ino : 0));
  if (!done) {
    INDUCTORFS_TRY_ASSIGN(const auto place, disk_.charges().admit(status ? status->st_uid : 0));
    INDUCTORFS_TRY(disk_.link(from, LocalTree::view(to.path)));
    if (const auto file = disk_.hold(LocalTree::view(to.path))) disk_.charges().gained_name(file->get());
  }
  fail_point("name.linked");
  (void)nodes_.detach(to.parent, to.name);
  return nodes_.add(to.parent, to.name, node, 1);
}

Result<Found> Names::link(NodeId id, NodeId new_parent, std::string_view new_name, const Caller& caller) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  if (node->is_directory()) return fail(ErrorCode::kNotPermitted, "link: directories have one name");
  INDUCTORFS_TRY_ASSIGN(auto early, data_.copy_early(node, true));
  Site where;
  auto result = make_name(new_parent, new_name, caller, where, [&]() -> Result<Found> {
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

Result<void> Names::rename(NodeId parent, std::string_view name, NodeId new_parent, std::string_view new_name,
                           RenameMode mode, const Caller& caller) {
  INDUCTORFS_TRY_ASSIGN(const auto source, branches_.route(parent, name, caller, Branches::Use::kRemove));
  INDUCTORFS_TRY_ASSIGN(const auto target, branches_.route_target(new_parent, new_name, caller, source));
  for (int i = 0; i < kRenameTries; ++i) {
    INDUCTORFS_TRY_ASSIGN(auto from, tree_.site_now(source.parent, name));
    INDUCTORFS_TRY_ASSIGN(auto to, tree_.site_now(target.parent, new_name));
    INDUCTORFS_TRY(branches_.check_move(from.path, to.path));
    key_sets_.give_up(source.parent, name);
    if (auto done = renames_.finish_begun(from, to, mode, caller)) return *done;
    INDUCTORFS_TRY_ASSIGN(const bool done, renames_.rename(from, to, mode, caller));
    if (done) left_listing(parent, name);
    if (done) return {};
  }
  return fail(ErrorCode::kBusy, "rename: the directories above are being moved all the time");
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
    const auto root = known_roots_.access_of(layout::name_of(*path));
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

/// What a program of no environment removes in a root goes for all of them: it saw one name for all.
void Names::removed(NodeId parent, std::string_view name, const Branches::Route& route, const Caller& caller) {
  if (!route.is_for_all) return;
  const NodePtr directory = nodes_.find(parent);
  const auto path = directory ? nodes_.path_of(*directory) : std::nullopt;
  if (path) branch_removal_.remove_name(*path, name, caller);
}

/// A set goes with the first of its names that is removed. Who has listed another one, and does not know yet that the
/// kernel was told, has removed it by that.
bool Names::went_with_its_set(NodeId lister, NodeId directory, std::string_view name) {
  const NodePtr holder = nodes_.find(directory);
  const bool is_listed = holder && holder->key && has_listed(nodes_.find(lister), name);
  if (is_listed) left_listing(lister, name);
  return is_listed;
}

Result<void> Names::unlink(NodeId parent, std::string_view name, const Caller& caller) {
  INDUCTORFS_TRY_ASSIGN(const auto route, branches_.route(parent, name, caller, Branches::Use::kRemove));
  key_sets_.give_up(route.parent, name);
  const bool second_gone = key_sets_.remove_second(route.parent, name);
  const auto gone = take_file_away(route.parent, name, caller);
  const bool has_gone = gone || (gone.error().code() == ErrorCode::kNotFound &&
                                 (second_gone || went_with_its_set(parent, route.parent, name)));
  if (!has_gone) return gone;
  removed(parent, name, route, caller);
  return {};
}

Result<void> Names::remove_directory(NodeId parent, std::string_view name, const Caller& caller) {
  INDUCTORFS_TRY_ASSIGN(const auto route, branches_.route(parent, name, caller, Branches::Use::kRemove));
  if (const auto asked = tree_.site_now(parent, name); asked && environment_in(asked->path).empty()) {
    branch_removal_.prepare(asked->path, route.is_for_all, caller);
  }
  Site where;
  INDUCTORFS_TRY(take_directory_away(route.parent, name, false, where));
  sealing_.seal_after_build(where.path, caller);
  left_listing(parent, name);
  removed(parent, name, route, caller);
  const auto is_called_so = [&](const std::string& place) { return base_name_of(place) == name; };
  if (options_.place_removed && std::ranges::any_of(options_.further_places, is_called_so)) options_.place_removed();
  return {};
}

Result<void> Names::take_file_away(NodeId parent, std::string_view name, const Caller& caller) {
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
  removal_.hide_entry(where.path);  // after the name went: the seal queue looks for the name after it has queued
  origin_.member_changed(where.path);
  if (node) tree_.let_go(nodes_.release(node));
  changed_names_in(where.parent);
  const auto is_left = [&](const auto& set) { return !set || !set->empty(); };  // what cannot be read may be there
  if (where.parent->key && !is_left(read_set(disk_, parent_path(where.path)))) {
    where.parent->key->state.with([](KeyState& state) {
      if (state.committed == KeyState::Committed::kLocal) state.committed = KeyState::Committed::kNone;
    });
  }
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
