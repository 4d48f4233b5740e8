// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/also.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <iterator>
#include <optional>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/log.h"
#include "inductorfs/control/control.h"
#include "inductorfs/fuse/session.h"
#include "inductorfs/places/also_record.h"
#include "inductorfs/places/own_mounts.h"
#include "inductorfs/places/place.h"
#include "walk.h"

namespace inductorfs::places {
namespace {

using Kind = AlsoState::Kind;

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

bool has_live_daemon(const MountEntry& main_mount) {
  // Binds are root's, so the daemon that made one has its socket in root's directory.
  const config::Environment none = [](const std::string&) { return std::optional<std::string>(); };
  return control::is_served(config::runtime_directory(0, none) + "/" + config::socket_name(main_mount.mount_point));
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

/// Beside what a predecessor made on the way to the same place; outermost first, which is the shortest.
void add_made(AlsoState& state, std::vector<std::string> made) {
  state.made.insert(state.made.end(), std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
  std::sort(state.made.begin(), state.made.end(),
            [](const std::string& a, const std::string& b) { return a.size() < b.size(); });
  state.made.erase(std::unique(state.made.begin(), state.made.end()), state.made.end());
}

Result<void> bind_place(const std::string& mountpoint, const BindId& mount, AlsoState& state) {
  INDUCTORFS_TRY_ASSIGN(auto place, open_place(state.also.path, 1));
  const Result<Fd> source = open_source(mountpoint, mount, state.also.name, place.user);
  const Result<BindId> bound = source ? bind_instead(*source, state.also.path, place) : fail(source.error());
  if (!bound) {
    remove_made(place.made);
    return fail(bound.error());
  }
  add_made(state, std::move(place.made));
  state.kind = Kind::kBound;
  state.bound = *bound;
  return {};
}

std::string link_target(const Fd& directory, const std::string& name) {
  std::array<char, PATH_MAX> target{};
  const ssize_t size = ::readlinkat(directory.get(), name.c_str(), target.data(), target.size());
  return size < 0 ? std::string() : std::string(target.data(), static_cast<size_t>(size));
}

bool is_link_to(const std::string& path, const std::string& target) {
  const Result<Fd> parent = open_parent(path);
  return parent && link_target(*parent, name_of(path)) == target;
}

Result<void> link_place(const std::string& mountpoint, const BindId& mount, AlsoState& state) {
  const std::string name = name_of(state.also.path);
  INDUCTORFS_TRY_ASSIGN(auto parent, make_place(state.also.path.substr(0, state.also.path.rfind('/'))));
  if (parent.covered) {
    return fail(ErrorCode::kBusy, state.also.path + " lies in the inductorfs mount " + parent.covered->mount_point);
  }
  const Result<Fd> source = open_source(mountpoint, mount, state.also.name, std::nullopt);
  if (!source) {
    remove_made(parent.made);
    return fail(source.error());
  }
  const std::string target = mountpoint + "/" + state.also.name;
  const bool made = ::symlinkat(target.c_str(), parent.fd.get(), name.c_str()) == 0;
  if (!made && (errno != EEXIST || link_target(parent.fd, name) != target)) {
    remove_made(parent.made);
    return fail(ErrorCode::kExists, state.also.path + " exists: remove it, or mount as root for a bind mount");
  }
  add_made(state, std::move(parent.made));
  state.kind = Kind::kLinked;
  return {};
}

void unbind(const std::string& mountpoint, const AlsoState& state) {
  Result<void> done;
  for (int look = 0; look < kMostLooks; ++look) {
    const std::vector<MountEntry> table = read_mount_table();
    const MountEntry* const entry = find_bind(table, state.bound);
    if (entry == nullptr) return;  // taken away by an operator
    // Another mount's has the numbers of ours by now, or whoever wrote them has lied.
    const MountEntry* const shown = find_main_mount(table, *entry);
    if (shown != nullptr && shown->mount_point != mountpoint && has_live_daemon(*shown)) {
      done = fail(ErrorCode::kBusy, "it shows the mount " + shown->mount_point + " now");
      break;
    }
    done = detach(*entry);
    if (done) return;
  }
  log::error("places.also_left_behind", {{"path", state.also.path}, {"why", done.error().what()}});
}

/// What a worker finds at the place of a mount that it has taken over.
BindId find_bound(const std::string& mountpoint, const config::Also& also) {
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* const mount = find_mount_at(table, mountpoint);
  const MountEntry* const top = find_mount_at(table, also.path);
  const bool shown = mount != nullptr && top != nullptr && top->is_ours() && top->device == mount->device;
  return shown ? BindId{top->id, top->device} : BindId{};
}

}  // namespace

void take_away_place(const std::string& mountpoint, const AlsoState& state) {
  if (state.kind == Kind::kBound) unbind(mountpoint, state);
  if (state.kind == Kind::kLinked) {
    const Result<Fd> parent = open_parent(state.also.path);
    const std::string name = name_of(state.also.path);
    if (parent && link_target(*parent, name) == mountpoint + "/" + state.also.name) {
      (void)::unlinkat(parent->get(), name.c_str(), 0);  // gone already is as good
    }
  }
  remove_made(state.made);
}

std::string AlsoState::to_string() const {
  switch (kind) {
    case Kind::kAbsent:
      return "absent";
    case Kind::kBound:
      return "bound";
    case Kind::kLinked:
      return "linked";
    case Kind::kFailed:
      return "failed: " + why;
  }
  return "absent";
}

AlsoPlaces::AlsoPlaces(std::string mountpoint, std::vector<config::Also> places, bool root, std::string record)
    : mountpoint_(std::move(mountpoint)), root_(root), record_(std::move(record)) {
  states_.with([&](std::vector<AlsoState>& states) {
    for (config::Also& place : places) {
      states.emplace_back();
      states.back().also = std::move(place);
    }
  });
}

/// A predecessor that was killed has left directories that nobody else would ever remove.
void AlsoPlaces::inherit(std::vector<AlsoState>& fresh) const {
  std::optional<AlsoRecord> record = record_.empty() ? std::nullopt : read_also_record(record_);
  if (!record || record->mountpoint != mountpoint_) return;
  for (AlsoState& old : record->places) {
    const auto same = std::find_if(fresh.begin(), fresh.end(),
                                   [&](const AlsoState& state) { return state.also.path == old.also.path; });
    if (same == fresh.end()) {
      take_away_place(record->mountpoint, old);
    } else {
      same->made = std::move(old.made);
    }
  }
}

void AlsoPlaces::show(const BindId& mount, const std::function<void()>& after_each) {
  std::vector<AlsoState> fresh = states();
  inherit(fresh);
  for (AlsoState& state : fresh) {
    const Result<void> shown = root_ ? bind_place(mountpoint_, mount, state) : link_place(mountpoint_, mount, state);
    if (shown) {
      log::info("places.also_shown",
                {{"path", state.also.path}, {"name", state.also.name}, {"state", state.to_string()}});
    } else {
      const Error& error = shown.error();
      state.kind = Kind::kFailed;
      state.why = error.what().empty() ? std::string(inductorfs::to_string(error.code())) : error.what();
      log::warning("places.also_failed", {{"path", state.also.path}, {"why", state.why}});
    }
    states_.with([&](std::vector<AlsoState>& states) { states = fresh; });
    if (after_each) after_each();
  }
  if (!record_.empty()) {
    const Result<void> written = write_also_record(record_, {mountpoint_, fresh});
    if (!written) log::warning("places.also_not_recorded", {{"why", written.error().what()}});
  }
}

void AlsoPlaces::resume(const std::vector<AlsoState>& noted) {
  std::vector<AlsoState> fresh = states();
  for (AlsoState& state : fresh) {
    const auto known =
        std::find_if(noted.begin(), noted.end(), [&](const AlsoState& one) { return one.also == state.also; });
    if (known != noted.end()) {
      state = *known;
    } else if (!root_ && is_link_to(state.also.path, mountpoint_ + "/" + state.also.name)) {
      state.kind = Kind::kLinked;
    }
    if (!root_ || state.bound.mount != 0) continue;
    state.bound = find_bound(mountpoint_, state.also);  // of a worker that noted nothing, or no numbers
    if (state.bound.mount != 0) state.kind = Kind::kBound;
  }
  states_.with([&](std::vector<AlsoState>& states) { states = std::move(fresh); });
}

void AlsoPlaces::hide() {
  const std::vector<AlsoState> shown = states();
  for (auto state = shown.rbegin(); state != shown.rend(); ++state) take_away_place(mountpoint_, *state);
  if (!record_.empty()) (void)::unlink(record_.c_str());  // mostly there is none
  states_.with([](std::vector<AlsoState>& states) {
    for (AlsoState& state : states) {
      state.kind = Kind::kAbsent;
      state.bound = {};
      state.made.clear();
    }
  });
}

Result<void> AlsoPlaces::check_idle() const {
  const std::vector<MountEntry> table = read_mount_table();
  const std::vector<AlsoState> shown = states();
  std::vector<MountEntry> bound;
  for (const AlsoState& state : shown) {
    const MountEntry* const entry = find_bind(table, state.bound);
    if (state.kind == Kind::kBound && entry != nullptr) bound.push_back(*entry);
  }
  const fuse::MountUse use = bound.empty() ? fuse::MountUse() : fuse::mount_use(bound);
  if (use.mount_point.empty()) return {};
  const MountEntry* const used = find_mount_at(table, use.mount_point);
  const auto state =
      std::ranges::find_if(shown, [&](const AlsoState& one) { return used != nullptr && one.bound.mount == used->id; });
  const std::string path = state == shown.end() ? use.mount_point : state->also.path;
  const std::string what = state == shown.end() ? mountpoint_ : mountpoint_ + "/" + state->also.name;
  return fail(ErrorCode::kBusy, path + ", which shows " + what + ", is in use by " + use.users +
                                    "; end that, or detach all with `inductorfs unmount --lazy " + mountpoint_ + "`");
}

std::vector<AlsoState> AlsoPlaces::states() const {
  return states_.with([](const std::vector<AlsoState>& states) { return states; });
}

void detach_binds_of(const std::string& device) {
  for (const MountEntry& entry : read_mount_table()) {
    if (!entry.is_ours() || entry.device != device || entry.root == "/") continue;
    (void)detach(entry);  // an ordinary user has none; as root it works or the next mount does it
  }
}

}  // namespace inductorfs::places
