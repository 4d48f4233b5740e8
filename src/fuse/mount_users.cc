// SPDX-License-Identifier: Apache-2.0
#include "mount_users.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/handle.h"
#include "inductorfs/base/text.h"
#include "mount_paths.h"

namespace inductorfs::fuse {
namespace {

using Directory = Handle<DIR, closedir>;
/// read_file refuses what is longer; a command line may have 2 MiB and more.
constexpr uint64_t kCommandLimit = 8ULL << 20;
constexpr size_t kCommandShown = 80;
constexpr uint64_t kMapsLimit = 64ULL << 20;
constexpr size_t kUsersNamed = 8;

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  const Directory directory(opendir(path.c_str()));
  if (!directory) return names;  // the process has ended, or belongs to somebody else: is_hidden() tells
  while (const dirent* item = readdir(directory.get())) {
    if (item->d_name[0] != '.') names.emplace_back(item->d_name);
  }
  return names;
}

bool link_is_within(const std::string& link, const std::string& directory) {
  std::array<char, PATH_MAX> target{};
  const ssize_t size = readlink(link.c_str(), target.data(), target.size());
  return size > 0 && is_within({target.data(), static_cast<size_t>(size)}, directory);
}

/// A line of maps: "begin-end perms offset MA:MI inode path", MA and MI in hexadecimal. The device is surer than the
/// path, which a bind mount spells otherwise.
bool maps_name_device(std::string_view maps, unsigned major, unsigned minor) {
  while (!maps.empty()) {
    const std::string line(take_part(maps, '\n'));
    size_t at = 0;
    for (int i = 0; i < 3 && at != std::string::npos; ++i) at = line.find(' ', at == 0 ? 0 : at + 1);
    if (at == std::string::npos) continue;
    char* colon = nullptr;
    const unsigned long found_major = std::strtoul(line.c_str() + at + 1, &colon, 16);
    if (found_major == major && *colon == ':' && std::strtoul(colon + 1, nullptr, 16) == minor) return true;
  }
  return false;
}

bool maps_mount(const std::string& process, const std::string& device) {
  char* colon = nullptr;
  const unsigned long major = std::strtoul(device.c_str(), &colon, 10);
  if (*colon != ':') return false;
  const unsigned long minor = std::strtoul(colon + 1, nullptr, 10);
  const auto maps = read_file(AT_FDCWD, process + "/maps", kMapsLimit);
  return maps && maps_name_device(*maps, static_cast<unsigned>(major), static_cast<unsigned>(minor));
}

/// How the process uses one of the mounts, and which; empty: none.
MountUser use_of(const std::string& process, std::span<const MountEntry> mounts) {
  MountUser user;
  const auto is_used = [&](const std::string& link, const char* use) {
    const auto mount = std::ranges::find_if(
        mounts, [&](const MountEntry& one) { return link_is_within(process + link, one.mount_point); });
    if (mount == mounts.end()) return false;
    user.use = use;
    user.mount_point = mount->mount_point;
    return true;
  };
  if (is_used("/cwd", "working directory") || is_used("/root", "root directory") || is_used("/exe", "program")) {
    return user;
  }
  for (const std::string& fd : names_in(process + "/fd")) {
    if (is_used("/fd/" + fd, "open file")) return user;
  }
  for (const MountEntry& mount : mounts) {
    if (&mount != &mounts.front() && mount.device == mounts.front().device) continue;
    if (maps_mount(process, mount.device)) user = {0, {}, "mapped file", mount.mount_point};
  }
  return user;
}

/// The links of another user's process may not be read (PTRACE_MODE_READ). A kernel thread's neither, and it has no
/// arguments, which everybody may read.
bool is_hidden(const std::string& process) {
  std::array<char, PATH_MAX> target{};
  if (readlink((process + "/cwd").c_str(), target.data(), target.size()) >= 0) return false;
  if (errno != EACCES && errno != EPERM) return false;
  const auto arguments = read_file(AT_FDCWD, process + "/cmdline", kCommandLimit);
  return arguments && !arguments->empty();
}

/// One line of what /proc gives: arguments end with NUL, and a process may write anything into its own.
std::string shown(std::string text) {
  while (!text.empty() && (text.back() == '\0' || text.back() == '\n')) text.pop_back();
  for (char& c : text) {
    if (c == '\0') c = ' ';
    if (c < ' ' || c > '~') c = '?';
  }
  if (text.size() > kCommandShown) text = text.substr(0, kCommandShown) + "...";
  return text;
}

std::string command_of(const std::string& process) {
  for (const char* source : {"/cmdline", "/comm"}) {
    const auto text = read_file(AT_FDCWD, process + source, kCommandLimit);
    if (std::string command = text ? shown(*text) : std::string(); !command.empty()) return command;
  }
  return "?";
}

}  // namespace

MountUsers find_mount_users(std::span<const MountEntry> mounts) {
  MountUsers users;
  for (const std::string& name : names_in("/proc")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string process = "/proc/" + name;
    if (MountUser user = use_of(process, mounts); !user.use.empty()) {
      user.pid = static_cast<pid_t>(std::strtol(name.c_str(), nullptr, 10));
      user.command = command_of(process);
      users.found.push_back(std::move(user));
    } else if (is_hidden(process)) {
      ++users.hidden;
    }
  }
  return users;
}

std::string describe_users(const MountUsers& users) {
  std::string text;
  const std::vector<MountUser>& found = users.found;
  for (size_t i = 0; i < std::min(found.size(), kUsersNamed); ++i) {
    if (i > 0) text += ", ";
    text += "pid " + std::to_string(found[i].pid) + " (" + found[i].command + ", " + found[i].use + ")";
  }
  if (found.size() > kUsersNamed) text += " and " + std::to_string(found.size() - kUsersNamed) + " more";
  if (found.empty() && users.hidden > 0) {
    text = "a process of another user (" + std::to_string(users.hidden) + " may not be looked at: ask as root)";
  }
  return text;
}

}  // namespace inductorfs::fuse
