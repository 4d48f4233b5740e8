// SPDX-License-Identifier: Apache-2.0
#include "also.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <iterator>
#include <optional>

#include "also_record.h"
#include "control.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/log.h"
#include "inductorfs/fuse/session.h"
#include "mount_table.h"
#include "place.h"

namespace inductorfs::daemon {
namespace {

using Kind = AlsoState::Kind;

/// More layers than this at one place are nothing that a daemon of ours made.
constexpr int kMostLayers = 16;

std::string through_descriptor(const Fd& fd) { return "/proc/self/fd/" + std::to_string(fd.get()); }

/// The directory `name` of the mount, made when it is missing, with owner and mode of the mount's root: whoever may
/// write there may write here.
Result<Fd> open_source(const std::string& mountpoint, const std::string& name) {
  Fd at(::open(mountpoint.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!at) return fail_errno("open", mountpoint);
  struct stat root {};
  if (::fstat(at.get(), &root) != 0) return fail_errno("stat", mountpoint);
  const std::string path = mountpoint + "/" + name;
  size_t from = 0;
  while (from < name.size()) {
    const size_t end = std::min(name.find('/', from), name.size());
    const std::string part = name.substr(from, end - from);
    if (::mkdirat(at.get(), part.c_str(), root.st_mode & 07777U) == 0) {
      // Refused for an ordinary user who mounts for another: then it stays the daemon's own.
      (void)::fchownat(at.get(), part.c_str(), root.st_uid, root.st_gid, AT_SYMLINK_NOFOLLOW);
    } else if (errno != EEXIST) {
      return fail_errno("mkdir", path);
    }
    at = Fd(::openat(at.get(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!at) return fail_errno("open", path);
    from = end + 1;
  }
  return at;
}

bool has_live_daemon(const MountEntry& main_mount) {
  // Binds are root's, so the daemon that made one has its socket in root's directory.
  const Environment none = [](const std::string&) { return std::optional<std::string>(); };
  return is_listening(runtime_directory(0, none) + "/" + socket_name(main_mount.mount_point));
}

/// Frees the place from what dead daemons left there. kBusy when a living one shows itself there.
Result<void> clear_stale(const std::string& path) {
  for (int layer = 0; layer < kMostLayers; ++layer) {
    const std::vector<MountEntry> table = read_mount_table();
    const MountEntry* around = find_mount_of(table, path);
    if (around == nullptr || !around->is_ours()) return {};
    if (around->mount_point != path) {
      return fail(ErrorCode::kBusy, path + " lies in the inductorfs mount " + around->mount_point);
    }
    const MountEntry* main_mount = find_main_mount(table, *around);
    if (main_mount != nullptr && has_live_daemon(*main_mount)) {
      return fail(ErrorCode::kBusy, path + " already shows the mount " + main_mount->mount_point);
    }
    log::info("also_stale_replaced", {{"path", path}});
    if (::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0) return fail_errno("umount", path);
  }
  return fail(ErrorCode::kBusy, path + " has too many mounts on it");
}

/// Beside what a predecessor made on the way to the same place; outermost first, which is the shortest.
void add_made(AlsoState& state, std::vector<std::string> made) {
  state.made.insert(state.made.end(), std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
  std::sort(state.made.begin(), state.made.end(),
            [](const std::string& a, const std::string& b) { return a.size() < b.size(); });
  state.made.erase(std::unique(state.made.begin(), state.made.end()), state.made.end());
}

Result<void> bind_place(const std::string& mountpoint, AlsoState& state) {
  INDUCTORFS_TRY(clear_stale(state.also.path));
  const Result<Fd> source = open_source(mountpoint, state.also.name);
  if (!source) return fail(source.error());
  Result<MadeDirectory> place = make_place(state.also.path);
  if (!place) return fail(place.error());
  // Both ends by descriptor: nobody can put something else at the path between the check and the mount.
  const std::string from = through_descriptor(*source);
  const std::string to = through_descriptor(place->fd);
  if (::mount(from.c_str(), to.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    const Error why = error_from_errno(errno, "bind mount", state.also.path);
    remove_made(place->made);
    return fail(why);
  }
  add_made(state, std::move(place->made));
  state.kind = Kind::kBound;
  return {};
}

std::string link_target(const std::string& path) {
  std::array<char, PATH_MAX> target{};
  const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
  return size < 0 ? std::string() : std::string(target.data(), static_cast<size_t>(size));
}

Result<void> link_place(const std::string& mountpoint, AlsoState& state) {
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* around = find_mount_of(table, state.also.path);
  if (around != nullptr && around->is_ours()) {
    return fail(ErrorCode::kBusy, state.also.path + " lies in the inductorfs mount " + around->mount_point);
  }
  const Result<Fd> source = open_source(mountpoint, state.also.name);
  if (!source) return fail(source.error());
  const std::string target = mountpoint + "/" + state.also.name;
  Result<MadeDirectory> parent = make_place(state.also.path.substr(0, state.also.path.rfind('/')));
  if (!parent) return fail(parent.error());
  const bool made = ::symlink(target.c_str(), state.also.path.c_str()) == 0;
  if (!made && (errno != EEXIST || link_target(state.also.path) != target)) {
    remove_made(parent->made);
    return fail(ErrorCode::kExists, state.also.path + " exists: remove it, or mount as root for a bind mount");
  }
  add_made(state, std::move(parent->made));
  state.kind = Kind::kLinked;
  return {};
}

/// The mount at a place is taken away only when it is of this file system.
bool shows_mount_of(const std::string& path, const std::string& name) {
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* top = find_mount_at(table, path);
  return top != nullptr && top->is_ours() && top->root == "/" + name;
}

void unbind(const AlsoState& state) {
  const std::string& path = state.also.path;
  if (!shows_mount_of(path, state.also.name)) return;  // taken away by an operator
  if (::umount2(path.c_str(), UMOUNT_NOFOLLOW) == 0) return;
  if (errno == EBUSY) log::warning("also_busy", {{"path", path}, {"action", "detached lazily"}});
  if (::umount2(path.c_str(), UMOUNT_NOFOLLOW | MNT_DETACH) != 0) {
    log::error("also_left_behind", {{"path", path}, {"why", std::strerror(errno)}});
  }
}

}  // namespace

void take_away_place(const std::string& mountpoint, const AlsoState& state) {
  if (state.kind == Kind::kBound) unbind(state);
  if (state.kind == Kind::kLinked && link_target(state.also.path) == mountpoint + "/" + state.also.name) {
    (void)::unlink(state.also.path.c_str());  // gone already is as good
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

AlsoPlaces::AlsoPlaces(std::string mountpoint, std::vector<Also> places, bool root, std::string record)
    : mountpoint_(std::move(mountpoint)), root_(root), record_(std::move(record)) {
  states_.with([&](std::vector<AlsoState>& states) {
    for (Also& place : places) {
      states.emplace_back();
      states.back().also = std::move(place);
    }
  });
}

/// A predecessor that was killed has left directories that nobody else would ever remove.
void AlsoPlaces::inherit(std::vector<AlsoState>& fresh) const {
  std::optional<AlsoRecord> record = record_.empty() ? std::nullopt : read_also_record(record_);
  if (!record) return;
  for (AlsoState& old : record->places) {
    const auto same = std::find_if(fresh.begin(), fresh.end(),
                                   [&](const AlsoState& state) { return state.also.path == old.also.path; });
    if (same == fresh.end()) {
      take_back(record->mountpoint, std::move(old));
    } else {
      same->made = std::move(old.made);
    }
  }
}

void AlsoPlaces::show() {
  std::vector<AlsoState> fresh = states();
  inherit(fresh);
  for (AlsoState& state : fresh) {
    const Result<void> shown = root_ ? bind_place(mountpoint_, state) : link_place(mountpoint_, state);
    if (shown) {
      log::info("also_shown", {{"path", state.also.path}, {"name", state.also.name}, {"state", state.to_string()}});
      continue;
    }
    state.kind = Kind::kFailed;
    state.why =
        shown.error().what().empty() ? std::string(inductorfs::to_string(shown.error().code())) : shown.error().what();
    log::warning("also_failed", {{"path", state.also.path}, {"why", state.why}});
  }
  if (!record_.empty()) {
    const Result<void> written = write_also_record(record_, {mountpoint_, fresh});
    if (!written) log::warning("also_not_recorded", {{"why", written.error().what()}});
  }
  states_.with([&](std::vector<AlsoState>& states) { states = std::move(fresh); });
}

void AlsoPlaces::resume(const std::vector<AlsoState>& noted) {
  std::vector<AlsoState> fresh = states();
  for (AlsoState& state : fresh) {
    const auto known =
        std::find_if(noted.begin(), noted.end(), [&](const AlsoState& one) { return one.also == state.also; });
    if (known != noted.end()) {
      state = *known;
    } else if (root_ && shows_mount_of(state.also.path, state.also.name)) {
      state.kind = Kind::kBound;
    } else if (!root_ && link_target(state.also.path) == mountpoint_ + "/" + state.also.name) {
      state.kind = Kind::kLinked;
    }
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
      state.made.clear();
    }
  });
}

Result<void> AlsoPlaces::check_idle() const {
  for (const AlsoState& state : states()) {
    if (state.kind != Kind::kBound || !shows_mount_of(state.also.path, state.also.name)) continue;
    const std::string who = fuse::mount_users(state.also.path);
    if (who.empty()) continue;
    return fail(ErrorCode::kBusy, state.also.path + ", which shows " + mountpoint_ + "/" + state.also.name +
                                      ", is in use by " + who + "; end that, or detach all with `inductorfs unmount " +
                                      "--lazy " + mountpoint_ + "`");
  }
  return {};
}

std::vector<AlsoState> AlsoPlaces::states() const {
  return states_.with([](const std::vector<AlsoState>& states) { return states; });
}

void detach_binds_of(const std::string& device) {
  for (const MountEntry& entry : read_mount_table()) {
    if (!entry.is_ours() || entry.device != device || entry.root == "/") continue;
    // As an ordinary user there are none; as root it works or the next mount does it.
    (void)::umount2(entry.mount_point.c_str(), UMOUNT_NOFOLLOW | MNT_DETACH);
  }
}

}  // namespace inductorfs::daemon
