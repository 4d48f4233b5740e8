// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/attributes.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include "inductorfs/takeover/request_slots.h"
#include "vfs/nodes/entry_mode.h"
#include "vfs/tree/shown_attributes.h"

namespace inductorfs::vfs {
namespace {

constexpr std::string_view kOwnPrefix = "user.inductorfs.";
constexpr size_t kMostOfAttributes = 4096;

struct timespec timespec_of(const std::optional<Timestamp>& time, bool now) {
  if (now) return {0, UTIME_NOW};
  if (!time) return {0, UTIME_OMIT};
  return {time->seconds, time->nanoseconds};
}

bool touches_times(const AttributeChange& change) {
  return change.accessed || change.modified || change.accessed_now || change.modified_now;
}

}  // namespace

Result<Attributes> FileAttributes::get_attributes(NodeId id) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  return moves_.read([&](const Moves&) {
    return node->content.with([&](Content& content) { return shown_attributes_.of(*node, content); });
  });
}

/// Whoever could write to the file until now may have mapped it.
Result<void> FileAttributes::note_open(const Node& node, Content& content, const std::string& place,
                                       const AttributeChange& change) {
  const auto path = nodes_.path_of(node);
  const auto shown = shown_attributes_.of(node, content);
  if (!path || !shown) return {};
  constexpr mode_t kOthers = S_IWGRP | S_IWOTH | S_IXGRP | S_IXOTH;
  const bool narrows = change.mode && (shown->mode & ~*change.mode & kOthers) != 0;
  const bool leaves_group = change.gid && *change.gid != shown->gid && (shown->mode & S_IWGRP) != 0;
  const bool leaves_owner = change.uid && *change.uid != shown->uid;
  return narrows || leaves_group || leaves_owner ? origin_.note_open(place, *path, leaves_group || leaves_owner)
                                                 : Result<void>();
}

Result<Attributes> FileAttributes::apply_change(const NodePtr& node, const AttributeChange& change) {
  const auto is_same_mode = [&](const Content& content) {
    return change.mode && content.backing == Backing::kShared && (*change.mode & 07777) == mode_of(content.entry) &&
           !change.uid && !change.gid && !touches_times(change);
  };
  INDUCTORFS_TRY_ASSIGN(auto early, node->content.with(is_same_mode) ? Result<EarlyCopy>(EarlyCopy(std::nullopt))
                                                                     : data_.copy_early(node, false));
  return moves_.read([&](const Moves&) {
    return node->content.with([&](Content& content) -> Result<Attributes> {
      if (is_same_mode(content)) return shown_attributes_.of(*node, content);
      if (content.backing == Backing::kShared) INDUCTORFS_TRY(data_.make_private(node, content, early));
      auto path = tree_.location(*node, content);
      if (!path) return shown_attributes_.of(*node, content);
      INDUCTORFS_TRY(note_open(*node, content, *path, change));
      content.last_user.reset();
      content.attributes_valid = false;
      if (change.uid || change.gid) INDUCTORFS_TRY(disk_.set_owner(*path, change.uid, change.gid));
      // A link has no mode of its own on Linux.
      if (change.mode && node->type != S_IFLNK) INDUCTORFS_TRY(disk_.set_mode(*path, *change.mode & 07777));
      if (touches_times(change)) {
        const struct timespec times[2] = {timespec_of(change.accessed, change.accessed_now),
                                          timespec_of(change.modified, change.modified_now)};
        INDUCTORFS_TRY(disk_.set_times(*path, times));
      }
      if (change.mode) shown_attributes_.keep_mode(*node, content);
      return shown_attributes_.of(*node, content);
    });
  });
}

/// What is changed needs a directory of its own. One that was removed, and is somebody's still, has none.
Result<void> FileAttributes::make_local_directory(const NodePtr& node) {
  if (!node->is_directory() || !nodes_.path_of(*node)) return {};
  return moves_.read([&](const Moves& moves) { return tree_.make_local_directory(moves, node); });
}

Result<Attributes> FileAttributes::set_attributes(NodeId id, const AttributeChange& change, const Caller& caller) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  if (change.size) {
    if (!node->is_regular()) return fail(ErrorCode::kInvalid);
    INDUCTORFS_TRY_ASSIGN(auto file, data_.begin_write(node, *change.size, *change.size, caller));
    const bool done = ::ftruncate(file->file(), static_cast<off_t>(*change.size)) == 0;
    const int saved_errno = errno;
    data_.end_write(node, file, done);
    if (!done) return fail(error_from_errno(saved_errno, "truncate"));
  }
  INDUCTORFS_TRY(make_local_directory(node));
  auto changed = tree_.with_room([&] { return apply_change(node, change); });
  const auto path = node->is_directory() ? nodes_.path_of(*node) : std::nullopt;
  if (changed && path) scopes_.directory_changed(*path);
  return changed;
}

Result<std::string> FileAttributes::get_xattr(NodeId id, const std::string& name) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  if (std::string_view(name).starts_with(kOwnPrefix)) return own_xattr(node, name.substr(kOwnPrefix.size()));
  return moves_.read([&](const Moves&) {
    return node->content.with([&](const Content& content) -> Result<std::string> {
      if (content.backing != Backing::kLocal) return fail(ErrorCode::kNoData);
      auto path = tree_.location(*node, content);
      if (!path) return fail(ErrorCode::kNoData);
      return disk_.xattr(*path, name);
    });
  });
}

Result<std::string> FileAttributes::own_xattr(const NodePtr& node, const std::string& name) {
  const auto path = nodes_.path_of(*node);
  if (!path) return fail(ErrorCode::kNoData);
  const auto& rule = layout::rule_of(layout::classify(*path).family);
  if (name == "family") return std::string(rule.name);
  const bool marked = rule.shared;
  return moves_.read([&](const Moves&) {
    return node->content.with([&](Content& content) -> Result<std::string> {
      if (name == "origin") {
        if (content.backing == Backing::kShared) return content.entry.origin;
        return node->is_regular() ? Result<std::string>(options_.origin) : fail(ErrorCode::kNoData);
      }
      if (!node->is_regular()) return fail(ErrorCode::kNoData);
      if (name == "scope" || name == "private") {
        // Of a file of the cluster, the scope that it came in; of a local one, what its marks say.
        const auto place = tree_.location(*node, content);
        const bool local = content.backing == Backing::kLocal && place && marked;
        const Provenance marks = local ? origin_.provenance(content, *place) : Provenance{};
        std::string value = name == "scope" ? marks.scopes : marks.why_private;
        const bool came = content.backing == Backing::kShared && name == "scope";
        const auto known = came ? catalog_.find(layout::name_of(*path)) : std::nullopt;
        if (known && known->entry.digest == content.entry.digest) value = known->scope;
        return value.empty() ? Result<std::string>(fail(ErrorCode::kNoData)) : value;
      }
      if (name != "digest") return fail(ErrorCode::kNoData);
      if (content.backing == Backing::kShared) return content.entry.digest.to_hex();
      if (!tree_.is_sealed(*node, content)) return fail(ErrorCode::kNoData);
      auto place = tree_.location(*node, content);
      if (!place) return fail(ErrorCode::kNoData);
      INDUCTORFS_TRY_ASSIGN(auto file, disk_.open_file(*place, false));
      INDUCTORFS_TRY_ASSIGN(const auto seal, seal_of(file.get()));
      return seal ? Result<std::string>(*seal) : fail(ErrorCode::kNoData);
    });
  });
}

/// Without user.inductorfs.*, which are read by name, as Ceph's virtual attributes are: what is listed, rsync -X, tar
/// --xattrs and cp --preserve=all read and set at their target, where these cannot be set; and of a symbolic link or a
/// fifo the kernel lets nobody read them (xattr(7)).
Result<std::vector<std::string>> FileAttributes::list_xattrs(NodeId id) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  return moves_.read([&](const Moves&) {
    return node->content.with([&](const Content& content) -> Result<std::vector<std::string>> {
      if (content.backing != Backing::kLocal) return std::vector<std::string>{};
      auto path = tree_.location(*node, content);
      if (!path) return std::vector<std::string>{};
      INDUCTORFS_TRY_ASSIGN(auto names, disk_.xattr_names(*path));
      std::erase_if(names, [](const auto& name) { return name.starts_with(kOwnPrefix); });
      return names;
    });
  });
}

namespace {

/// The attributes of users count for nobody, and some disks keep any number: together a file may have what it may have
/// on ext4.
Result<void> has_room(const LocalTree& tree, const std::string& path, const std::string& name, size_t size) {
  size_t total = name.size() + size;
  INDUCTORFS_TRY_ASSIGN(const auto names, tree.xattr_names(path));
  for (const auto& other : names) {
    if (other == name || std::string_view(other).starts_with(kOwnPrefix)) continue;
    total += other.size() + tree.xattr(path, other).value_or(std::string()).size();
  }
  if (total <= kMostOfAttributes) return {};
  return fail(ErrorCode::kNoSpace, "setxattr " + path + ": a file has at most " + std::to_string(kMostOfAttributes) +
                                       " bytes of attributes, names and values");
}

Result<void> set_or_remove(const LocalTree& tree, const std::string& path, const std::string& name,
                           std::optional<std::string_view> value, int flags) {
  // One that comes again after an earlier worker was killed in it meets its own effect.
  const bool again = takeover::begun_effect().has_value();
  const bool there = tree.xattr(path, name).has_value();
  if (!again && value && there && (flags & XATTR_CREATE) != 0) return fail(ErrorCode::kExists);
  if (!again && !there && (!value || (flags & XATTR_REPLACE) != 0)) return fail(ErrorCode::kNoData);
  if (again && !value && !there) return {};
  if (value) INDUCTORFS_TRY(has_room(tree, path, name, value->size()));
  takeover::begin_effect();
  return tree.set_xattr(path, name, value, again ? 0 : flags);
}

}  // namespace

Result<void> FileAttributes::set_xattr(NodeId id, const std::string& name, std::string_view value, int flags) {
  return change_xattr(id, name,
                      [&](const std::string& path) { return set_or_remove(disk_, path, name, value, flags); });
}

Result<void> FileAttributes::remove_xattr(NodeId id, const std::string& name) {
  return change_xattr(id, name,
                      [&](const std::string& path) { return set_or_remove(disk_, path, name, std::nullopt, 0); });
}

Result<void> FileAttributes::change_xattr(NodeId id, const std::string& name,
                                          const std::function<Result<void>(const std::string&)>& change) {
  if (std::string_view(name).starts_with(kOwnPrefix)) {
    return fail(ErrorCode::kNotPermitted, name + ": attributes of inductorfs are read-only");
  }
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  INDUCTORFS_TRY(make_local_directory(node));
  Result<void> changed;
  Result<void> room = tree_.with_room([&]() -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(auto early, data_.copy_early(node, false));
    return moves_.read([&](const Moves&) -> Result<void> {
      return node->content.with([&](Content& content) -> Result<void> {
        if (content.backing == Backing::kShared) INDUCTORFS_TRY(data_.make_private(node, content, early));
        INDUCTORFS_TRY_ASSIGN(auto place, tree_.location(*node, content));
        content.attributes_valid = false;
        changed = change(place);  // an inode may be full, for which nothing on the disk has to go
        return {};
      });
    });
  });
  return room ? changed : room;
}

Result<struct statvfs> FileAttributes::statistics() { return disk_.statistics(); }

}  // namespace inductorfs::vfs
