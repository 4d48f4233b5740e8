// SPDX-License-Identifier: Apache-2.0
#include "vfs/tree/branch_paths.h"

#include <algorithm>

#include "inductorfs/layout/layout.h"
#include "vfs/tree/local_tree.h"

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
  const std::string path = join(directory, std::string(name));
  if (branch_in(path).is_there() || !layout::is_in_a_root(path) || layout::name_of(path).root != directory)
    return false;
  // The branch's directory makes the path longer and deeper, which has limits.
  const std::string branch = join(directory, branch_name(std::string(16, '0')));
  const std::string inside = join(branch, std::string(name));
  return layout::is_in_a_root(inside) && layout::name_of(inside).root == branch;
}

}  // namespace inductorfs::vfs
