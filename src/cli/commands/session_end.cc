// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/session_end.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "inductorfs/base/fd.h"

namespace inductorfs::cli {
namespace {

constexpr uint64_t kFileLimit = 65'536;

/// By the names of the files, as systemd reads drop-ins of all its directories.
std::vector<std::string> logind_settings() {
  std::vector<std::filesystem::path> drop_ins;
  std::vector<std::string> settings;
  for (const char* directory : {"/usr/lib/systemd", "/run/systemd", "/etc/systemd"}) {
    const std::filesystem::path place(directory);
    if (auto text = read_file(AT_FDCWD, place / "logind.conf", kFileLimit)) settings.push_back(std::move(*text));
    std::error_code none;
    for (const auto& item : std::filesystem::directory_iterator(place / "logind.conf.d", none)) {
      if (item.path().extension() == ".conf") drop_ins.push_back(item.path());
    }
  }
  std::ranges::stable_sort(drop_ins, {}, [](const auto& path) { return path.filename(); });
  for (const auto& path : drop_ins) {
    if (auto text = read_file(AT_FDCWD, path, kFileLimit)) settings.push_back(std::move(*text));
  }
  return settings;
}

bool kills_processes(const std::vector<std::string>& settings) {
  constexpr std::string_view kKey = "KillUserProcesses=";
  bool kills = false;
  for (const std::string& text : settings) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(kKey)) continue;
      const std::string value = line.substr(kKey.size());
      kills = value == "yes" || value == "true" || value == "on" || value == "1";
    }
  }
  return kills;
}

}  // namespace

std::string session_end_warning(const std::string& cgroup, const std::vector<std::string>& settings) {
  const size_t scope = cgroup.find("/session-");
  if (scope == std::string::npos || cgroup.find(".scope", scope) == std::string::npos) return {};
  if (!kills_processes(settings)) return {};
  return "this mount ends when you log out, under all jobs that use it (KillUserProcesses=yes of systemd-logind): use "
         "the unit of a user, systemctl --user enable --now inductorfs@NAME with loginctl enable-linger, or put "
         "systemd-run --user --scope before this command";
}

std::string session_end_warning() {
  if (::geteuid() == 0) return {};
  return session_end_warning(read_file(AT_FDCWD, "/proc/self/cgroup", kFileLimit).value_or(std::string()),
                             logind_settings());
}

}  // namespace inductorfs::cli
