// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/attributes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "inductorfs/takeover/request_slots.h"
#include "vfs/tree/entry_mode.h"

namespace inductorfs::vfs {
namespace {

constexpr std::string_view kOwnPrefix = "user.inductorfs.";
constexpr size_t kXattrLimit = size_t{64} * 1024;  // XATTR_SIZE_MAX and XATTR_LIST_MAX of linux/limits.h

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
    return node->content.with([&](Content& content) { return tree_.attributes(*node, content); });
  });
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
      if (is_same_mode(content)) return tree_.attributes(*node, content);
      if (content.backing == Backing::kShared) {
        INDUCTORFS_TRY(data_.make_private(node, content, early));
      }
      auto path = tree_.location(*node, content);
      if (!path) return tree_.attributes(*node, content);
      content.attributes_valid = false;
      if ((change.uid || change.gid) &&
          ::fchownat(disk_.fd(), path->c_str(), change.uid.value_or(static_cast<uid_t>(-1)),
                     change.gid.value_or(static_cast<gid_t>(-1)), AT_SYMLINK_NOFOLLOW) != 0) {
        return fail_errno("chown", *path);
      }
      // A link has no mode of its own on Linux.
      if (change.mode && node->type != S_IFLNK && ::fchmodat(disk_.fd(), path->c_str(), *change.mode & 07777, 0) != 0) {
        return fail_errno("chmod", *path);
      }
      if (touches_times(change)) {
        const struct timespec times[2] = {timespec_of(change.accessed, change.accessed_now),
                                          timespec_of(change.modified, change.modified_now)};
        if (::utimensat(disk_.fd(), path->c_str(), times, AT_SYMLINK_NOFOLLOW) != 0)
          return fail_errno("utimens", *path);
      }
      if (change.mode) tree_.keep_mode(*node, content);
      return tree_.attributes(*node, content);
    });
  });
}

Result<Attributes> FileAttributes::set_attributes(NodeId id, const AttributeChange& change, const Caller& caller) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  if (change.size) {
    if (!node->is_regular()) return fail(ErrorCode::kInvalid);
    INDUCTORFS_TRY_ASSIGN(auto file, data_.begin_write(node, *change.size, caller.pid));
    const bool done = ::ftruncate(file->file(), static_cast<off_t>(*change.size)) == 0;
    const int saved_errno = errno;
    data_.end_write(node, done);
    if (!done) return fail(error_from_errno(saved_errno, "truncate"));
  }
  const auto path = nodes_.path_of(*node);
  if (node->is_directory() && path)
    INDUCTORFS_TRY(moves_.read([&](const Moves&) { return tree_.make_local_directory(node, *path); }));
  auto changed = apply_change(node, change);
  if (changed && node->is_directory() && path) scopes_.directory_changed(*path);
  return changed;
}

namespace {

/// A name of the file for the xattr system calls, which know no *at form: through the directory's descriptor.
std::string xattr_path(const LocalTree& tree, const std::string& location) {
  return proc_path(tree.fd()) + "/" + location;
}

}  // namespace

Result<std::string> FileAttributes::get_xattr(NodeId id, const std::string& name) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  if (std::string_view(name).starts_with(kOwnPrefix)) return own_xattr(node, name.substr(kOwnPrefix.size()));
  return moves_.read([&](const Moves&) {
    return node->content.with([&](const Content& content) -> Result<std::string> {
      if (content.backing != Backing::kLocal) return fail(ErrorCode::kNoData);
      auto path = tree_.location(*node, content);
      if (!path) return fail(ErrorCode::kNoData);
      std::string value(kXattrLimit, '\0');
      const ssize_t size = ::lgetxattr(xattr_path(disk_, *path).c_str(), name.c_str(), value.data(), value.size());
      if (size < 0) return fail_errno("getxattr", name);
      value.resize(static_cast<size_t>(size));
      return value;
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
        return node->is_regular() ? Result<std::string>(tree_.options().origin) : fail(ErrorCode::kNoData);
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
      const auto seal = disk_.seal_of(file.get());
      return seal ? Result<std::string>(*seal) : fail(ErrorCode::kNoData);
    });
  });
}

/// Without user.inductorfs.*, which are read by name, as Ceph's virtual attributes are: what is listed, rsync -X, tar
/// --xattrs and cp --preserve=all read and set at their target, where these cannot be set; and of a symbolic link or a
/// fifo the kernel lets nobody read them (xattr(7)).
Result<std::vector<std::string>> FileAttributes::list_xattrs(NodeId id) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  std::vector<std::string> names;
  return moves_.read([&](const Moves&) {
    return node->content.with([&](const Content& content) -> Result<std::vector<std::string>> {
      if (content.backing != Backing::kLocal) return names;
      auto path = tree_.location(*node, content);
      if (!path) return names;
      std::string text(kXattrLimit, '\0');
      const ssize_t size = ::llistxattr(xattr_path(disk_, *path).c_str(), text.data(), text.size());
      if (size < 0) return fail_errno("listxattr", *path);
      for (size_t at = 0; at < static_cast<size_t>(size);) {
        std::string name(text.c_str() + at);
        at += name.size() + 1;
        if (!std::string_view(name).starts_with(kOwnPrefix)) names.push_back(std::move(name));
      }
      return names;
    });
  });
}

namespace {

Result<void> set_or_remove(const std::string& path, const std::string& name, std::optional<std::string_view> value,
                           int flags) {
  // One that comes again after an earlier worker was killed in it meets its own effect.
  const bool again = takeover::begun_effect().has_value();
  const bool there = ::lgetxattr(path.c_str(), name.c_str(), nullptr, 0) >= 0;
  if (!again && value && there && (flags & XATTR_CREATE) != 0) return fail(ErrorCode::kExists);
  if (!again && !there && (!value || (flags & XATTR_REPLACE) != 0)) return fail(ErrorCode::kNoData);
  if (again && !value && !there) return {};
  takeover::begin_effect();
  const int result = value ? ::lsetxattr(path.c_str(), name.c_str(), value->data(), value->size(), again ? 0 : flags)
                           : ::lremovexattr(path.c_str(), name.c_str());
  if (result != 0) return fail_errno(value ? "setxattr" : "removexattr", name);
  return {};
}

}  // namespace

Result<void> FileAttributes::set_xattr(NodeId id, const std::string& name, std::string_view value, int flags) {
  return change_xattr(id, name, [&](const std::string& path) { return set_or_remove(path, name, value, flags); });
}

Result<void> FileAttributes::remove_xattr(NodeId id, const std::string& name) {
  return change_xattr(id, name, [&](const std::string& path) { return set_or_remove(path, name, std::nullopt, 0); });
}

Result<void> FileAttributes::change_xattr(NodeId id, const std::string& name,
                                          const std::function<Result<void>(const std::string&)>& change) {
  if (std::string_view(name).starts_with(kOwnPrefix)) {
    return fail(ErrorCode::kNotPermitted, name + ": attributes of inductorfs are read-only");
  }
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  INDUCTORFS_TRY_ASSIGN(auto early, data_.copy_early(node, false));
  const auto path = nodes_.path_of(*node);
  return moves_.read([&](const Moves&) -> Result<void> {
    const bool needs_directory = node->is_directory() && path;
    if (auto made = needs_directory ? tree_.make_local_directory(node, *path) : Result<void>{}; !made) return made;
    return node->content.with([&](Content& content) -> Result<void> {
      const bool shared = content.backing == Backing::kShared;
      if (auto own = shared ? data_.make_private(node, content, early) : Result<void>{}; !own) return own;
      INDUCTORFS_TRY_ASSIGN(auto place, tree_.location(*node, content));
      content.attributes_valid = false;
      return change(xattr_path(disk_, place));
    });
  });
}

Result<struct statvfs> FileAttributes::statistics() {
  struct statvfs result {};
  if (::fstatvfs(disk_.fd(), &result) != 0) return fail_errno("statvfs");
  return result;
}

}  // namespace inductorfs::vfs
