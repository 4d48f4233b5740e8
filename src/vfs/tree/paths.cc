// SPDX-License-Identifier: Apache-2.0
#include "vfs/tree/paths.h"

#include <sys/stat.h>

#include <algorithm>

#include "inductorfs/layout/layout.h"

namespace inductorfs::vfs {
namespace {

bool has_sign(const std::string& path, layout::SealSign sign) {
  const auto& rule = layout::rule_of(layout::classify(path).family);
  return rule.shared && rule.seal == sign;
}

}  // namespace

std::string parent_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

std::string last_component(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_kernel_file(const std::string& path) { return layout::classify(path).family == layout::Family::kTritonKernel; }

layout::Form form_of(const std::string& path) { return layout::rule_of(layout::classify(path).family).form; }

std::vector<std::string> parcels_of_member(const std::string& path) {
  std::vector<std::string> parcels;
  if (layout::classify(path).family != layout::Family::kParcelMember) return parcels;
  std::string above = parent_path(path);
  if (auto index = layout::index_beside(path)) parcels.push_back(*std::move(index));
  for (; !above.empty(); above = parent_path(above)) {
    if (form_of(above) == layout::Form::kDirectory) parcels.push_back(above);
  }
  return parcels;
}

bool is_parcel(const std::string& path, mode_t type) {
  const layout::Form form = form_of(path);
  return form != layout::Form::kFile && type == (form == layout::Form::kDirectory ? S_IFDIR : S_IFREG);
}

bool seals_when_quiet(const std::string& path) { return has_sign(path, layout::SealSign::kQuiet); }

bool seals_after_build(const std::string& path) { return has_sign(path, layout::SealSign::kBuildDirectory); }

bool is_being_built(const std::string& directory, const std::string& name,
                    const std::vector<LocalTree::Item>& siblings) {
  if (!seals_after_build(directory.empty() ? name : join(directory, name))) return false;
  return std::any_of(siblings.begin(), siblings.end(), [&](const auto& sibling) {
    if (sibling.type != S_IFDIR) return false;
    const std::string prefix = directory.empty() ? std::string() : directory + "/";
    const auto sealed = layout::sealed_by_removal_of(prefix + sibling.name);
    return std::find(sealed.begin(), sealed.end(), prefix + name) != sealed.end();
  });
}

bool kernel_may_keep(std::string_view path) {
  const auto classified = layout::classify(path);
  return classified.family != layout::Family::kTemporary || !classified.canonical.starts_with("triton/");
}

namespace {

/// By a rename of a directory above it.
bool may_come_into_a_root(std::string_view path) {
  while (!layout::is_in_a_root(path)) {
    const size_t slash = path.find('/');
    if (slash == std::string_view::npos) return false;
    path = path.substr(slash + 1);
  }
  return true;
}

}  // namespace

bool absence_may_be_kept(const std::string& path, const layout::Name& entry) {
  if (!layout::is_in_a_root(path)) return !may_come_into_a_root(path);
  const std::string parent = parent_path(path);
  // A device's directory is listed with the cluster's first set, and the kernel is told a moment later.
  if (parent_path(entry.path) == "triton" && layout::is_device_name(last_component(path))) return false;
  if (layout::is_triton_key_directory(path) && !layout::is_device_name(last_component(parent))) return false;
  return parent != entry.root || entry.root.empty();
}

}  // namespace inductorfs::vfs
