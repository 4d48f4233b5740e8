// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/also.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/text.h"
#include "inductorfs/config/json.h"
#include "inductorfs/control/control.h"
#include "inductorfs/control/runtime_directory.h"
#include "inductorfs/fuse/session.h"
#include "inductorfs/places/mountpoint.h"
#include "inductorfs/places/own_mounts.h"
#include "inductorfs/places/place.h"
#include "walk.h"

namespace inductorfs::places {
namespace {

using config::Json;

/// What an ordinary user's daemon has linked, with the targets: no table of the kernel has that.
using Links = std::map<std::string, std::string>;

constexpr uint64_t kRecordLimit = 1ULL << 20;
constexpr std::string_view kSocketSuffix = ".sock";
constexpr std::string_view kRecordSuffix = ".also";
constexpr const char* kBindsLock = "binds.lock";
/// More layers than this at one place are nothing that a daemon of ours made.
constexpr int kMostLayers = 16;
/// A bind mount whose directory is being renamed is looked for again.
constexpr int kMostLooks = 16;
constexpr mode_t kPermissions = 07777;
constexpr mode_t kOthersWrite = 0022;

/// The root of the mount. Who may rename a directory around it can have put anything else at its path.
Result<Fd> open_mount(const std::string& mountpoint, const BindId& mount) {
  Result<Step> at = open_path(mountpoint);
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* const entry = at ? find_mount_by_id(table, at->mount) : nullptr;
  if (entry != nullptr && entry->id == mount.mount && entry->device == mount.device) return std::move(at->fd);
  return fail(ErrorCode::kNotPermitted, mountpoint + " leads to something else than this mount: look who may rename " +
                                            "the directories around it, and mount again");
}

/// One name of this mount, made with this owner and mode when it is missing.
Result<Fd> open_or_make(const Fd& at, uint64_t mount, const std::string& part, const PlaceUser& owner, mode_t mode,
                        const std::string& path) {
  const bool made = ::mkdirat(at.get(), part.c_str(), mode) == 0;
  if (!made && errno != EEXIST) return fail_errno("mkdir", path);
  Fd next(::openat(at.get(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!next) return fail_errno("open", path);
  INDUCTORFS_TRY_ASSIGN(const auto found, mount_id_of(next));
  if (found != mount) {
    return fail(ErrorCode::kNotPermitted, path + " is another mount: unmount that, or name another place");
  }
  // Refused for an ordinary user who mounts for another: then it stays the daemon's own.
  if (made) (void)::fchownat(next.get(), "", owner.uid, owner.gid, AT_EMPTY_PATH);
  // A directory of torch's is shown with the mode of the mount until somebody chooses another.
  const bool closed = (mode & kOthersWrite) == 0;
  if (made && closed && ::chmod(through_descriptor(next).c_str(), mode) != 0) return fail_errno("chmod", path);
  return next;
}

/// What is shown to `user` is nobody else's to write to: compilers include what lies there.
Result<void> close_to_others(const Fd& directory, const PlaceUser& user, const std::string& path) {
  struct stat found {};
  if (::fstat(directory.get(), &found) != 0) return fail_errno("stat", path);
  if (found.st_uid != 0 && found.st_uid != user.uid) {
    return fail(ErrorCode::kNotPermitted, path + " belongs to the user " + std::to_string(found.st_uid) +
                                              ", and the place is the user " + std::to_string(user.uid) +
                                              "'s: remove it, or name a place of its owner");
  }
  if ((found.st_mode & kOthersWrite) == 0) return {};
  // The numbers of directories that only the cluster has begin with the bits 01 (inode_number_of,
  // src/vfs/tree/root_tree.h).
  if (found.st_ino >> 62 != 1) {
    return fail(ErrorCode::kNotPermitted, path + " may be written to by others: look at what they put there, take " +
                                              "their right away (chmod go-w), and mount again");
  }
  const mode_t mode = found.st_mode & kPermissions & ~kOthersWrite;
  if (::chmod(through_descriptor(directory).c_str(), mode) != 0) return fail_errno("chmod", path);
  return {};
}

/// The directory `name` of the mount, made when it is missing. Who may write to the mount's root may write to what is
/// on the way; the last one is `user`'s, by default that of the mount, and closed to others.
Result<Fd> open_source(const std::string& mountpoint, const BindId& mount, const std::string& name,
                       const std::optional<PlaceUser>& user) {
  INDUCTORFS_TRY_ASSIGN(auto at, open_mount(mountpoint, mount));
  struct stat root {};
  if (::fstat(at.get(), &root) != 0) return fail_errno("stat", mountpoint);
  const PlaceUser owner{root.st_uid, root.st_gid};
  const PlaceUser reader = user.value_or(owner);
  if (owner.uid != 0 && owner.uid != reader.uid) {  // what the cluster has is shown as the owner's
    return fail(ErrorCode::kNotPermitted, mountpoint + " belongs to the user " + std::to_string(owner.uid) +
                                              ", who would write what the user " + std::to_string(reader.uid) +
                                              " takes for its own: name a place of the mount's owner");
  }
  size_t from = 0;
  while (from < name.size()) {
    const size_t end = std::min(name.find('/', from), name.size());
    const std::string path = mountpoint + "/" + name.substr(0, end);
    const bool last = end == name.size();
    const mode_t mode = root.st_mode & kPermissions & ~(last ? kOthersWrite : 0);
    INDUCTORFS_TRY_ASSIGN(
        auto next, open_or_make(at, mount.mount, name.substr(from, end - from), last ? reader : owner, mode, path));
    at = std::move(next);
    if (last) INDUCTORFS_TRY(close_to_others(at, reader, path));
    from = end + 1;
  }
  return at;
}

/// Binds are root's, so the daemon that made one has its socket in root's directory, whoever asks.
std::string directory_of_binders() {
  const config::Environment none = [](const std::string&) { return std::optional<std::string>(); };
  return config::runtime_directory(0, none);
}

bool has_live_daemon(const MountEntry& main_mount) {
  return control::is_served(directory_of_binders() + "/" + config::socket_name(main_mount.mount_point));
}

/// kBusy when what is at the place is no dead daemon's.
Result<void> check_stale(const Place& place, const std::string& path) {
  const std::vector<MountEntry> table = read_mount_table();
  if (place.covered->root == "/") {
    return fail(ErrorCode::kBusy, path + " is an inductorfs mount itself: name another place");
  }
  const MountEntry* main_mount = find_main_mount(table, *place.covered);
  if (main_mount != nullptr && has_live_daemon(*main_mount)) {
    return fail(ErrorCode::kBusy, path + " already shows the mount " + main_mount->mount_point);
  }
  log::info("places.also_stale_replaced", {{"path", path}});
  return {};
}

/// The place, made when it is missing, with at most `layers` mounts that dead daemons left there.
Result<Place> open_place(const std::string& path, std::ptrdiff_t layers) {
  for (int layer = 0; layer < kMostLayers; ++layer) {
    Result<Place> place = make_place(path);
    if (!place || !place->covered) return place;
    INDUCTORFS_TRY(check_stale(*place, path));
    const auto is_there = [&](const MountEntry& entry) { return entry.mount_point == place->covered->mount_point; };
    if (std::ranges::count_if(read_mount_table(), is_there) <= layers) return place;
    INDUCTORFS_TRY(detach(place->fd));
  }
  return fail(ErrorCode::kBusy, path + " has too many mounts on it");
}

/// Shows `source` at the place. What a dead daemon left there goes when the new mount is there, so that no job writes
/// below it; where the kernel cannot exchange them, a moment before.
Result<BindId> bind_instead(const Fd& source, const std::string& path, Place& place) {
  if (place.covered) {
    Result<BindId> bound = bind(source, place.fd, true);
    if (bound) INDUCTORFS_TRY(detach(place.fd));
    if (bound) return bound;
    INDUCTORFS_TRY_ASSIGN(auto bare, open_place(path, 0));
    place = std::move(bare);
  }
  return bind(source, place.fd);
}

Result<void> bind_place(const std::string& mountpoint, const BindId& mount, const config::Also& also) {
  INDUCTORFS_TRY_ASSIGN(auto place, open_place(also.path, 1));
  INDUCTORFS_TRY_ASSIGN(const auto source, open_source(mountpoint, mount, also.name, place.user));
  INDUCTORFS_TRY(bind_instead(source, also.path, place));
  return {};
}

Result<void> link_place(const std::string& mountpoint, const BindId& mount, const config::Also& also) {
  INDUCTORFS_TRY(open_source(mountpoint, mount, also.name, std::nullopt));
  INDUCTORFS_TRY_ASSIGN(const auto parent, make_place(also.path.substr(0, also.path.rfind('/'))));
  if (parent.covered) {
    return fail(ErrorCode::kBusy, also.path + " lies in the inductorfs mount " + parent.covered->mount_point);
  }
  const std::string name(base_name_of(also.path));
  const std::string target = mountpoint + "/" + also.name;
  const bool made = ::symlinkat(target.c_str(), parent.fd.get(), name.c_str()) == 0;
  if (made || (errno == EEXIST && link_target(parent.fd, name) == target)) return {};
  return fail(ErrorCode::kExists, also.path + " exists: remove it, or mount as root for a bind mount");
}

/// Removes the link unless somebody has turned it elsewhere.
void unlink_place(const std::string& path, const std::string& target) {
  const Result<Fd> parent = open_parent(path);
  const std::string name(base_name_of(path));
  if (!parent || link_target(*parent, name) != target) return;
  (void)::unlinkat(parent->get(), name.c_str(), 0);  // gone already is as good
}

Links read_record(const std::string& path) {
  const Result<std::string> bytes = read_file(AT_FDCWD, path, kRecordLimit);
  if (!bytes) return {};
  try {
    return Json::from_cbor(*bytes).get<Links>();
  } catch (const std::exception&) {
    return {};  // damaged: then nobody knows of its links
  }
}

/// As CBOR, because a path may have any byte.
Result<void> write_record(const std::string& path, const Links& links) {
  const std::vector<uint8_t> bytes = Json::to_cbor(Json(links));
  return write_file_atomically(AT_FDCWD, path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, 0600);
}

/// Locks the byte of root's file that stands for the device; none when that cannot be, or another process has it.
Fd lock_binds_of(const std::string& device, bool waits) {
  const std::string directory = directory_of_binders();
  unsigned major = 0;
  unsigned minor = 0;
  if (::sscanf(device.c_str(), "%u:%u", &major, &minor) != 2) return {};
  if (::geteuid() != 0 || !control::prepare_runtime_directory(directory)) return {};
  Fd file(::open((directory + "/" + kBindsLock).c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  struct flock byte {};
  byte.l_type = F_WRLCK;
  byte.l_start = static_cast<off_t>(makedev(major, minor));
  byte.l_len = 1;
  while (file && ::fcntl(file.get(), waits ? F_OFD_SETLKW : F_OFD_SETLK, &byte) != 0) {
    if (errno != EINTR) return {};
  }
  return file;
}

bool is_orphaned(const std::vector<MountEntry>& table, const MountEntry& bind) {
  const MountEntry* const there = find_mount_by_id(table, bind.id);
  return there != nullptr && there->root != "/" && find_main_mount(table, *there) == nullptr;
}

bool is_bind_of(const MountEntry& entry, const std::string& device) {
  return entry.is_ours() && entry.device == device && entry.root != "/";
}

}  // namespace

std::string also_record_path(const std::string& socket) {
  const size_t size = socket.ends_with(kSocketSuffix) ? socket.size() - kSocketSuffix.size() : socket.size();
  return socket.substr(0, size) + std::string(kRecordSuffix);
}

AlsoPlaces::AlsoPlaces(std::string mountpoint, std::vector<config::Also> places, bool root, std::string record)
    : mountpoint_(std::move(mountpoint)), places_(std::move(places)), root_(root), record_(std::move(record)) {}

/// Before there are links, so that none is forgotten when this process is killed.
void AlsoPlaces::record_links() const {
  Links links;
  for (const config::Also& also : places_) links.emplace(also.path, mountpoint_ + "/" + also.name);
  for (const auto& [path, target] : read_record(record_)) {
    if (!links.contains(path)) unlink_place(path, target);  // of a predecessor that was killed
  }
  const Result<void> written = write_record(record_, links);
  if (!written) log::warning("places.also_not_recorded", {{"why", written.error().what()}});
}

std::vector<std::string> AlsoPlaces::show(const BindId& mount) const {
  if (!root_) record_links();
  std::vector<std::string> states;
  for (const config::Also& also : places_) {
    const Result<void> shown = root_ ? bind_place(mountpoint_, mount, also) : link_place(mountpoint_, mount, also);
    if (shown) {
      states.emplace_back(root_ ? "bound" : "linked");
      log::info("places.also_shown", {{"path", also.path}, {"name", also.name}, {"state", states.back()}});
    } else {
      const Error& error = shown.error();
      const std::string why = error.what().empty() ? std::string(to_string(error.code())) : error.what();
      states.push_back(std::string(kPlaceFailed) + why);
      log::warning("places.also_failed", {{"path", also.path}, {"why", why}});
    }
  }
  return states;
}

void AlsoPlaces::hide(const BindId& mount) const {
  if (root_) return detach_binds_of(mount.device, mountpoint_);
  for (const config::Also& also : places_) unlink_place(also.path, mountpoint_ + "/" + also.name);
  (void)::unlink(record_.c_str());  // where there are no places there is none
}

Result<void> AlsoPlaces::check_idle(const BindId& mount) const {
  const std::vector<MountEntry> table = read_mount_table();
  std::vector<MountEntry> bound;
  for (const MountEntry& entry : table) {
    if (is_bind_of(entry, mount.device)) bound.push_back(entry);
  }
  const fuse::MountUse use = bound.empty() ? fuse::MountUse() : fuse::mount_use(bound);
  if (use.mount_point.empty()) return {};
  const MountEntry* const used = find_mount_at(bound, use.mount_point);
  return fail(ErrorCode::kBusy, use.mount_point + ", which shows " + mountpoint_ + (used == nullptr ? "" : used->root) +
                                    ", is in use by " + use.users +
                                    "; end that, or detach all with `inductorfs unmount --lazy " + mountpoint_ + "`");
}

void detach_binds_of(const std::string& device, const std::string& mountpoint) {
  bool left = true;
  for (int look = 0; left && look < kMostLooks; ++look) {
    left = false;
    const std::vector<MountEntry> table = read_mount_table();
    for (const MountEntry& entry : table) {
      if (!is_bind_of(entry, device)) continue;
      const MountEntry* const shown = find_main_mount(table, entry);
      if (shown != nullptr && shown->mount_point != mountpoint && has_live_daemon(*shown)) return;  // its number by now
      const Result<void> done = detach(entry);
      if (done) continue;
      left = true;
      if (look + 1 < kMostLooks) continue;
      log::error("places.also_left_behind", {{"path", entry.mount_point}, {"why", done.error().what()}});
    }
  }
}

void take_back_places(const std::string& record) {
  const Links links = read_record(record);
  const std::vector<MountEntry> table = read_mount_table();
  for (const auto& [path, target] : links) {
    const MountEntry* const mount = find_mount_of(table, target);
    if (mount != nullptr && mount->is_ours()) return;
  }
  for (const auto& [path, target] : links) unlink_place(path, target);
  (void)::unlink(record.c_str());  // the next sweep tries again
}

Fd keep_binds_of(const std::string& device) { return lock_binds_of(device, true); }

void detach_orphaned_binds() {
  const std::vector<MountEntry> table = read_mount_table();
  for (const MountEntry& entry : table) {
    if (!entry.is_ours() || !is_orphaned(table, entry) || !is_dead_mount(entry.mount_point)) continue;
    const Result<Step> at = open_path(entry.mount_point);
    if (!at || at->mount != entry.id) continue;  // renamed or hidden: the next sweep tries again
    // Nothing below blocks: who replaces a dead mount waits for it.
    const Fd lock = lock_binds_of(entry.device, false);
    if (lock && is_orphaned(read_mount_table(), entry)) (void)detach(at->fd);
  }
}

}  // namespace inductorfs::places
