// SPDX-License-Identifier: Apache-2.0
#include "vfs/tree/branch_paths.h"

#include <algorithm>
#include <cstdint>

#include "inductorfs/layout/layout.h"
#include "vfs/disk/local_tree.h"

namespace inductorfs::vfs {
namespace {

constexpr std::string_view kPrefix = ".inductorfs-environment-";

struct Component {
  size_t begin = std::string_view::npos;
  size_t end = 0;
  [[nodiscard]] bool is_there() const { return begin != std::string_view::npos; }
};

/// The first component that is a branch's: there is one at most (is_first_name()).
Component branch_in(std::string_view path) {
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (path.substr(begin, end - begin).starts_with(kPrefix)) return {begin, end};
    begin = end + 1;
  }
  return {};
}

}  // namespace

std::string branch_name(std::string_view environment) { return std::string(kPrefix) + std::string(environment); }

std::string unknown_environment(uid_t user) { return std::string(kUnknownEnvironment) + "-" + std::to_string(user); }

bool is_branch_name(std::string_view name) { return name.starts_with(kPrefix); }

std::string_view environment_in(std::string_view path) {
  const Component branch = branch_in(path);
  if (!branch.is_there()) return {};
  return path.substr(branch.begin + kPrefix.size(), branch.end - branch.begin - kPrefix.size());
}

std::string shown_path(std::string_view path) {
  const Component branch = branch_in(path);
  if (!branch.is_there()) return std::string(path);
  std::string shown(path.substr(0, branch.begin));
  if (branch.end < path.size()) return shown + std::string(path.substr(branch.end + 1));
  if (!shown.empty()) shown.pop_back();
  return shown;
}

std::string root_of_branch(std::string_view path) {
  const Component branch = branch_in(path);
  if (!branch.is_there() || branch.end < path.size()) return std::string(path);
  return std::string(path.substr(0, branch.begin == 0 ? 0 : branch.begin - 1));
}

bool is_first_name(const std::string& directory, std::string_view name) {
  const std::string path = join(directory, name);
  if (branch_in(path).is_there() || !layout::is_in_a_root(path) || layout::name_of(path).root != directory)
    return false;
  // The branch's directory makes the path longer and deeper, which has limits.
  const std::string branch = join(directory, branch_name(unknown_environment(UINT32_MAX)));
  const std::string inside = join(branch, name);
  return layout::is_in_a_root(inside) && layout::name_of(inside).root == branch;
}

std::string CommonDirectory::in(const std::string& branch) const {
  return below.empty() ? branch : join(branch, below);
}

std::string CommonDirectory::path_of(std::string_view name) const {
  return below.empty() ? std::string(name) : join(below, name);
}

std::optional<CommonDirectory> common_directory(const std::string& directory, std::string_view name) {
  const std::string path = join(directory, name);
  if (branch_in(path).is_there()) return std::nullopt;
  // The whole path says it, if it has a shape; else the deepest directory above that has one.
  std::string_view shaped = path;
  while (!shaped.empty() && !layout::is_in_a_root(shaped)) {
    const size_t slash = shaped.rfind('/');
    shaped = shaped.substr(0, slash == std::string_view::npos ? 0 : slash);
  }
  if (shaped.empty()) return std::nullopt;
  CommonDirectory common{layout::name_of(shaped).root, {}};
  const size_t begin = common.root.empty() ? 0 : common.root.size() + 1;
  if (directory.size() > common.root.size()) common.below = directory.substr(begin);
  const std::string below = common.path_of(name);
  if (!is_first_name(common.root, below.substr(0, below.find('/')))) return std::nullopt;
  return common;
}

std::vector<CommonDirectory> common_readings(const std::string& directory) {
  if (branch_in(directory).is_there()) return {};
  std::vector<CommonDirectory> readings{{directory, {}}};
  const size_t slash = directory.rfind('/');
  const bool is_below = slash != std::string::npos;
  const auto above = directory.empty() ? std::nullopt
                                       : common_directory(is_below ? directory.substr(0, slash) : std::string(),
                                                          std::string_view(directory).substr(is_below ? slash + 1 : 0));
  if (above) readings.push_back({above->root, above->path_of(directory.substr(is_below ? slash + 1 : 0))});
  return readings;
}

}  // namespace inductorfs::vfs
