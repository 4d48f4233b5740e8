// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/also.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
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
#include "source.h"
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
/// Of one mount, for all users, and of one user, who has three if he renames no directory on the way to one.
constexpr int kMostBinds = 1024;
constexpr int kMostOfOne = 8;

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

/// Says whether nothing lies in the directory itself, whatever is mounted on it.
Result<bool> is_empty(const Fd& directory, const std::string& path) {
  Fd listing(::openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!listing) return fail_errno("open", path);
  const std::unique_ptr<DIR, int (*)(DIR*)> names(::fdopendir(listing.get()), ::closedir);
  if (!names) return fail_errno("list", path);
  (void)listing.release();
  const dirent* entry = nullptr;
  while ((entry = ::readdir(names.get())) != nullptr) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") return false;
  }
  return true;
}

/// The user's own directory at the place, without what dead daemons left there or this mount shows instead; `shown`
/// when it shows the right one.
Result<Place> open_users_place(const BindId& mount, const config::Also& also, uid_t uid, bool& shown) {
  for (int layer = 0; layer < kMostLayers; ++layer) {
    INDUCTORFS_TRY_ASSIGN(auto place, find_place(also.path));
    if (!place.user || place.user->uid != uid) {
      return fail(ErrorCode::kNotPermitted, also.path + " is not in the user's own directory");
    }
    const bool is_own = place.covered && place.covered->device == mount.device;
    shown = is_own && place.covered->root == "/" + also.name;
    if (!place.covered || shown) return place;
    if (!is_own) INDUCTORFS_TRY(check_stale(place, also.path));
    INDUCTORFS_TRY(detach(place.fd));
  }
  return fail(ErrorCode::kBusy, also.path + " has too many mounts on it");
}

/// A user who renames the directories of places and asks again gets no end of them. Whose one is says the directory of
/// the mount that it shows (`root`): what a user renames on the way to it does not change that.
Result<void> check_few(const BindId& mount, const std::string& root) {
  int all = 0;
  int own = 0;
  for (const MountEntry& entry : read_mount_table()) {
    if (!entry.is_ours() || entry.device != mount.device || entry.root == "/") continue;
    if (++all > kMostBinds) return fail(ErrorCode::kOverQuota, "the mount is shown at too many places");
    if (entry.root.starts_with("/" + root + "/") && ++own > kMostOfOne) {
      return fail(ErrorCode::kOverQuota, "too many places were renamed since the mount began: mount again");
    }
  }
  return {};
}

void log_shown(const config::Also& also, const std::string& state) {
  log::info("places.also_shown", {{"path", also.path}, {"name", also.name}, {"state", state}});
}

Result<void> bind_users_place(const std::string& mountpoint, const BindId& mount, const config::Also& also, uid_t uid) {
  bool shown = false;
  INDUCTORFS_TRY_ASSIGN(auto place, open_users_place(mount, also, uid, shown));
  if (shown) return {};
  const std::string in_the_way =
      also.path + " holds what jobs made without the mount: remove it when no job of this user runs, and ask again";
  INDUCTORFS_TRY_ASSIGN(const bool is_free, is_empty(place.fd, also.path));
  if (!is_free) return fail(ErrorCode::kNotEmpty, in_the_way);
  INDUCTORFS_TRY_ASSIGN(const auto source, open_users_source(mountpoint, mount, also.name, *place.user));
  INDUCTORFS_TRY(bind(source, place.fd));
  const Result<bool> still = is_empty(place.fd, also.path);
  if (still && *still) {
    log_shown(also, "bound");
    return {};
  }
  INDUCTORFS_TRY_ASSIGN(const auto covering, find_place(also.path));  // a job was quicker
  if (covering.covered && covering.covered->device == mount.device) INDUCTORFS_TRY(detach(covering.fd));
  return fail(ErrorCode::kNotEmpty, in_the_way);
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

/// What became of a place, in words; the log has it too.
std::string state_of(const config::Also& also, const Result<void>& shown, const char* state) {
  if (shown) return state;
  const Error& error = shown.error();
  const std::string why = error.what().empty() ? std::string(to_string(error.code())) : error.what();
  const bool is_wanted = error.code() != ErrorCode::kNotFound;  // of a user's places, which that user makes
  if (is_wanted) log::warning("places.also_failed", {{"path", also.path}, {"why", why}});
  return std::string(kPlaceFailed) + why;
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
    states.push_back(state_of(also, shown, root_ ? "bound" : "linked"));
    if (shown) log_shown(also, states.back());
  }
  return states;
}

std::vector<std::string> AlsoPlaces::show_to(const BindId& mount, const config::User& user, const std::string& root,
                                             const std::string& torch) const {
  const Result<void> few = check_few(mount, root);
  std::vector<std::string> states;
  for (config::Also also : config::default_places(torch)) {
    const auto is_there = [&](const config::Also& given) { return given.path == also.path; };
    if (std::ranges::any_of(places_, is_there)) continue;
    also.name = root + "/" + also.name;
    states.push_back(state_of(also, few ? bind_users_place(mountpoint_, mount, also, user.uid) : few, "bound"));
  }
  return states;
}

std::vector<uid_t> AlsoPlaces::users(const BindId& mount) const {
  const Result<std::set<uid_t>> owners = owners_in(mountpoint_, mount);
  return owners ? std::vector<uid_t>(owners->begin(), owners->end()) : std::vector<uid_t>();
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

void detach_removed_binds(const std::string& device) {
  for (const MountEntry& entry : read_mount_table()) {
    if (entry.device == device && shows_removed(entry)) (void)detach(entry);  // the next one tries again
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
