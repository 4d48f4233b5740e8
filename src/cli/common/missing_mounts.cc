// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "cli/common/child_answer.h"
#include "cli/common/locate.h"
#include "inductorfs/base/encoding.h"

namespace inductorfs::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigurations = "/etc/inductorfs";
constexpr const char* kUnits = "/etc/systemd/system";  ///< `systemctl enable` makes its links below
constexpr std::string_view kUnitBegin = "inductorfs@";
constexpr std::string_view kUnitEnd = ".service";
constexpr std::string_view kConfigurationEnd = ".toml";
constexpr Milliseconds kPatience{500};

/// The names in a directory; none where it cannot be read.
std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(directory, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  return names;
}

std::optional<std::string> between(std::string_view begin, const std::string& name, std::string_view end) {
  if (name.size() <= begin.size() + end.size() || !name.starts_with(begin) || !name.ends_with(end)) return std::nullopt;
  return name.substr(begin.size(), name.size() - begin.size() - end.size());
}

/// By systemd.unit(5): '-' stands for '/', and \xNN for any other byte.
std::string path_of_instance(std::string_view instance) {
  if (instance == "-") return "/";
  std::string path = "/";
  for (size_t i = 0; i < instance.size(); ++i) {
    const auto byte = instance.substr(i, 2) == "\\x" ? from_hex(instance.substr(i + 2, 2)) : std::nullopt;
    path += byte && byte->size() == 1 ? *byte : std::string(1, instance[i] == '-' ? '/' : instance[i]);
    if (byte && byte->size() == 1) i += 3;
  }
  return path;
}

/// An instance of the unit that somebody wants here.
struct Wanted {
  std::string unit;           ///< empty: none is enabled
  std::string configuration;  ///< empty: there is none
};

std::map<std::string, Wanted> wanted_instances() {
  std::map<std::string, Wanted> wanted;
  for (const std::string& name : names_in(kConfigurations)) {
    const auto instance = between({}, name, kConfigurationEnd);
    if (instance) wanted[*instance].configuration = std::string(kConfigurations) + "/" + name;
  }
  for (const std::string& target : names_in(kUnits)) {
    if (!target.ends_with(".wants") && !target.ends_with(".requires")) continue;
    for (const std::string& name : names_in(fs::path(kUnits) / target)) {
      if (const auto instance = between(kUnitBegin, name, kUnitEnd)) wanted[*instance].unit = name;
    }
  }
  return wanted;
}

/// By a child: the disk may not answer. Then it is not known to be absent.
bool is_absent(const std::string& path) {
  const auto answer = answer_of_child(::geteuid(), Deadline::after(kPatience), [&] {
    struct stat found {};
    return std::string(::lstat(path.c_str(), &found) == 0 ? "there" : "absent");
  });
  return answer == "absent";
}

std::string why_missing(const std::string& instance, const Wanted& wanted) {
  const std::string unit = "'" + std::string(kUnitBegin) + instance + std::string(kUnitEnd) + "'";
  if (!wanted.unit.empty())
    return "nothing is mounted here, and its unit is enabled: systemctl status " + unit + " says why";
  return "nothing is mounted here, and " + wanted.configuration + " is there: systemctl enable --now " + unit +
         " mounts it; or remove that file";
}

}  // namespace

std::vector<Located> missing_mounts(const std::vector<Located>& mounts, const config::Environment& environment) {
  std::vector<Located> missing;
  for (const auto& [instance, wanted] : wanted_instances()) {
    const std::string path = path_of_instance(instance);
    if (std::ranges::find(mounts, path, &Located::mountpoint) != mounts.end()) continue;
    const auto spelled_in_another_way = locate_mount(path, environment);
    if (spelled_in_another_way || spelled_in_another_way.error().code() != ErrorCode::kNotFound) continue;
    // Without a unit it may be a configuration of another mount, whatever its name: a DaemonSet's has one of its own.
    if (wanted.unit.empty() && is_absent(path)) continue;
    missing.push_back({{}, path, why_missing(instance, wanted)});
  }
  return missing;
}

}  // namespace inductorfs::cli
