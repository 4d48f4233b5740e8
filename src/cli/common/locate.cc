// SPDX-License-Identifier: Apache-2.0
#include "cli/common/locate.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "inductorfs/config/json.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/config/text.h"
#include "inductorfs/control/control.h"
#include "inductorfs/control/requests.h"
#include "inductorfs/control/runtime_directory.h"
#include "inductorfs/places/mountpoint.h"

namespace inductorfs::cli {

using config::Json;

namespace {

constexpr Milliseconds kWherePatience{1000};
/// What a daemon that has just crashed may take until its successor listens.
constexpr Milliseconds kTakeoverPatience{5000};
constexpr int kTakeoverTick = 20;
/// Not without end: it may be the question that kills.
constexpr int kAsksAgain = 2;
/// Sockets that are asked in one directory; more mounts than that on one host are found by their mount entries only.
constexpr size_t kMostSockets = 256;

/// Where daemons put their sockets: this user's, root's, and those of the user who owns the mount. What another user
/// has made there in that one's name is left out, or its socket would answer for the daemon.
std::vector<std::string> runtime_directories(const MountEntry* entry, const config::Environment& environment) {
  std::vector<std::string> found{"/run/inductorfs"};
  const std::string own = config::runtime_directory(::geteuid(), environment);
  if (control::is_runtime_directory(own, ::geteuid())) found.insert(found.begin(), own);
  if (const std::optional<uid_t> owner = entry == nullptr ? std::nullopt : fuse_user_of(*entry); owner && *owner != 0) {
    const std::string number = std::to_string(*owner);
    for (const std::string& directory : {"/run/user/" + number + "/inductorfs", "/tmp/inductorfs-" + number}) {
      if (control::is_runtime_directory(directory, *owner)) found.push_back(directory);
    }
  }
  return found;
}

/// Symbolic links before the last component followed, unless that could lead into a mount of ours.
std::optional<std::string> with_real_parent(const std::vector<MountEntry>& table, const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string parent = path.substr(0, std::max<size_t>(slash, 1));
  const MountEntry* around = places::find_mount_of(table, parent);
  std::array<char, PATH_MAX> real{};
  if ((around != nullptr && around->is_ours()) || ::realpath(parent.c_str(), real.data()) == nullptr) {
    return std::nullopt;
  }
  return config::absolute_path(path.substr(slash + 1), real.data());
}

/// Whether a daemon has, or had, its socket where this process looks.
bool has_socket(const std::string& mountpoint, const MountEntry& entry, const config::Environment& environment) {
  const std::vector<std::string> directories = runtime_directories(&entry, environment);
  return std::any_of(directories.begin(), directories.end(), [&](const std::string& directory) {
    struct stat found {};
    return ::lstat((directory + "/" + config::socket_name(mountpoint)).c_str(), &found) == 0;
  });
}

std::optional<Located> find_socket(const std::string& mountpoint, const MountEntry* entry,
                                   const config::Environment& environment) {
  for (const std::string& directory : runtime_directories(entry, environment)) {
    const std::string socket = directory + "/" + config::socket_name(mountpoint);
    if (control::is_listening(socket)) return Located{socket, mountpoint};
  }
  return std::nullopt;
}

/// What a daemon says about where it shows its mount.
struct Shown {
  std::string socket;
  std::string mountpoint;
  std::vector<config::Also> also;
};

std::optional<Shown> ask_where(const std::string& socket) {
  const Result<std::string> answer = control::ask(socket, control::where_request(), Deadline::after(kWherePatience));
  const Result<std::string> result = answer ? control::parse_answer(*answer) : answer;
  if (!result) return std::nullopt;
  const Json where = config::from_text(*result);
  Shown shown{socket, config::lines_at(where, "mountpoint"), {}};
  if (shown.mountpoint.empty()) return std::nullopt;
  for (const Json& item : config::part_of(where, "also")) {
    shown.also.push_back({config::lines_at(item, "name"), config::lines_at(item, "path")});
  }
  return shown;
}

void ask_all_in(const std::string& directory, std::vector<Shown>& all) {
  std::error_code ignored;  // no such directory: no daemons
  for (const auto& item : std::filesystem::directory_iterator(directory, ignored)) {
    if (item.path().extension() != ".sock" || all.size() >= kMostSockets) continue;
    if (std::optional<Shown> shown = ask_where(item.path().string())) all.push_back(std::move(*shown));
  }
}

std::vector<Shown> ask_all(const config::Environment& environment) {
  std::vector<Shown> all;
  std::set<std::string> seen;  // a root's own directory is root's directory
  for (const std::string& directory : runtime_directories(nullptr, environment)) {
    if (seen.insert(directory).second) ask_all_in(directory, all);
  }
  return all;
}

/// The socket of a daemon that a supervisor is just replacing: whoever touches the mount waits for it, too.
std::optional<Located> await_socket(const std::string& mountpoint, const MountEntry& entry,
                                    const config::Environment& environment) {
  const Deadline deadline = Deadline::after(kTakeoverPatience);
  while (!places::is_dead_mount(mountpoint) && !deadline.passed()) {
    if (std::optional<Located> found = find_socket(mountpoint, &entry, environment)) return found;
    (void)::poll(nullptr, 0, kTakeoverTick);
  }
  return std::nullopt;
}

/// The longest place of any daemon that the path lies in.
std::optional<LocatedPath> find_shown(const std::string& path, const config::Environment& environment) {
  std::optional<LocatedPath> best;
  size_t best_size = 0;
  const auto offer = [&](const Shown& shown, const std::string& place, const std::string& name) {
    if (place.empty() || !config::is_at_or_below(path, place) || place.size() < best_size) return;
    const std::string rest = config::relative_to(path, place);
    best = LocatedPath{{shown.socket, shown.mountpoint}, name + (name.empty() || rest.empty() ? "" : "/") + rest};
    best_size = place.size();
  };
  for (const Shown& shown : ask_all(environment)) {
    offer(shown, shown.mountpoint, "");
    for (const config::Also& also : shown.also) offer(shown, also.path, also.name);
  }
  return best;
}

}  // namespace

Result<Located> locate_mount(const std::string& mountpoint, const config::Environment& environment) {
  const std::vector<MountEntry> table = read_mount_table();
  const std::optional<std::string> real = with_real_parent(table, mountpoint);
  std::vector<std::string> spellings{mountpoint};
  if (real && *real != mountpoint) spellings.push_back(*real);
  bool mounted = false;
  std::optional<uid_t> owner;
  for (const std::string& spelling : spellings) {
    const MountEntry* entry = find_mount_at(table, spelling);
    if (entry != nullptr && entry->is_ours()) {
      mounted = true;
      owner = fuse_user_of(*entry);
    }
    if (std::optional<Located> found = find_socket(spelling, entry, environment)) return std::move(*found);
  }
  if (!mounted) {
    return fail(ErrorCode::kNotFound,
                "no inductorfs mount: " + mountpoint + ": \"inductorfs status\" lists all mounts");
  }
  const bool own = !owner || *owner == ::geteuid() || ::geteuid() == 0;
  if (!own && *owner != 0) {
    return fail(ErrorCode::kNotPermitted, "the mount belongs to the user " + std::to_string(*owner) + ": " +
                                              mountpoint + ": ask as that user or as root");
  }
  bool dead = true;
  for (const std::string& spelling : spellings) {
    const MountEntry* entry = find_mount_at(table, spelling);
    if (entry == nullptr || !entry->is_ours()) continue;
    dead = dead && places::is_dead_mount(spelling);
    if (!dead && !has_socket(spelling, *entry, environment) && !places::has_processes_here(*entry)) {
      return fail(ErrorCode::kNotSupported, "the mount is served from outside of this container or mount namespace: " +
                                                mountpoint + ": run inductorfs where it was mounted");
    }
    if (std::optional<Located> found = await_socket(spelling, *entry, environment)) return std::move(*found);
  }
  if (dead) {
    return fail(
        ErrorCode::kUnavailable,
        "the daemon has ended: " + mountpoint +
            ": run inductorfs unmount --lazy and mount again, where it was mounted (for a container: on its host)");
  }
  return fail(ErrorCode::kUnavailable, "the daemon does not answer: " + mountpoint +
                                           ": see its log; inductorfs unmount --lazy detaches the mount");
}

std::vector<Located> own_mounts(const config::Environment& environment) {
  std::vector<Shown> all;
  ask_all_in(config::runtime_directory(::geteuid(), environment), all);
  std::vector<Located> mounts;
  std::set<std::string> seen;  // a socket may have a second name
  for (const Shown& shown : all) {
    if (seen.insert(shown.mountpoint).second) mounts.push_back({shown.socket, shown.mountpoint});
  }
  return mounts;
}

std::vector<Located> all_mounts(const config::Environment& environment) {
  std::vector<Located> mounts;
  std::set<std::string> seen;
  for (const Shown& shown : ask_all(environment)) {
    if (seen.insert(shown.mountpoint).second) mounts.push_back({shown.socket, shown.mountpoint});
  }
  const std::vector<MountEntry> table = read_mount_table();
  for (const MountEntry& entry : table) {
    // A bind mount is the same mount at a further place.
    if (!entry.is_ours() || places::find_main_mount(table, entry) != &entry) continue;
    if (!seen.insert(entry.mount_point).second) continue;
    mounts.push_back(find_socket(entry.mount_point, &entry, environment).value_or(Located{{}, entry.mount_point}));
  }
  return mounts;
}

Result<std::string> ask_any_worker(const Located& mount, const std::string& request, Deadline deadline,
                                   const config::Environment& environment) {
  Result<std::string> answer = control::ask(mount.socket, request, deadline);
  for (int i = 0; i < kAsksAgain && !answer && answer.error().code() == ErrorCode::kUnavailable; ++i) {
    INDUCTORFS_TRY_ASSIGN(const auto next, locate_mount(mount.mountpoint, environment));
    answer = control::ask(next.socket, request, deadline);
  }
  return answer;
}

Result<LocatedPath> locate_path(const std::string& path, const config::Environment& environment) {
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* around = places::find_mount_of(table, path);
  if (around != nullptr && around->is_ours()) {
    const MountEntry* main_mount = places::find_main_mount(table, *around);
    const std::string mountpoint = main_mount == nullptr ? around->mount_point : main_mount->mount_point;
    INDUCTORFS_TRY_ASSIGN(const auto mount, locate_mount(mountpoint, environment));
    const std::string inside = around->root == "/" ? "" : around->root.substr(1);
    const std::string rest = config::relative_to(path, around->mount_point);
    return LocatedPath{mount, inside + (inside.empty() || rest.empty() ? "" : "/") + rest};
  }
  if (std::optional<LocatedPath> shown = find_shown(path, environment)) return std::move(*shown);
  const std::optional<std::string> real = with_real_parent(table, path);
  if (real && *real != path) return locate_path(*real, environment);
  return fail(ErrorCode::kNotFound,
              "the path lies in no inductorfs mount: " + path + ": \"inductorfs status\" lists all mounts");
}

}  // namespace inductorfs::cli
