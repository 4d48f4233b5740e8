// SPDX-License-Identifier: Apache-2.0
#include "vfs/tree/view_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/host_error.h"
#include "inductorfs/layout/layout.h"
#include "vfs/tree/parcel_mark.h"

namespace inductorfs::vfs {
namespace {

/// Once more where the disk fails, because a set without its group file is taken for no set.
Result<std::string> read_group_file(const LocalTree& tree, const std::string& place) {
  auto text = tree.read_file(place, kGroupFileLimit);
  return text || !is_of_host(text.error().code()) ? std::move(text) : tree.read_file(place, kGroupFileLimit);
}

Result<std::vector<std::string>> list_kernel_files(const LocalTree& tree, const std::string& path) {
  std::vector<std::string> names;
  auto directory = tree.open_directory(LocalTree::view(path));
  if (!directory && !is_of_host(directory.error().code())) return names;
  if (!directory) directory = tree.open_directory(LocalTree::view(path));  // as read_group_file()
  if (!directory) return fail(std::move(directory).error());
  INDUCTORFS_TRY_ASSIGN(auto items, list_open(std::move(*directory), path, kMostInSet));
  for (auto& item : items) {
    if (item.type == S_IFREG && is_kernel_file(join(path, item.name))) names.push_back(std::move(item.name));
  }
  return names;
}

}  // namespace

SetState state_of_set(const std::set<std::string>& files, const LocalTree& tree, const std::string& directory,
                      const std::string& key) {
  SetState state = SetState::kNoGroup;
  for (const auto& name : files) {
    if (!layout::is_group_file(name)) continue;
    const auto text = read_group_file(tree, join(directory, name));
    if (!text && is_of_host(text.error().code())) return SetState::kUnread;
    const auto children = text ? layout::group_children(*text, key) : fail(text.error());
    if (!children) return SetState::kUnknown;
    if (!std::ranges::all_of(*children, [&](const auto& child) { return files.contains(child); })) {
      return SetState::kLacksChildren;
    }
    state = SetState::kWhole;
  }
  return state;
}

void put_groups_first(std::vector<std::string>& names) {
  std::stable_partition(names.begin(), names.end(), [](const auto& name) { return layout::is_group_file(name); });
}

std::vector<std::string> kernel_files(const LocalTree& tree, const std::string& path) {
  return list_kernel_files(tree, path).value_or(std::vector<std::string>{});
}

std::vector<std::string> local_set(const LocalTree& tree, const std::string& path) {
  if (auto set = read_set(tree, path)) return std::move(*set);
  auto names = kernel_files(tree, path);
  std::erase_if(names, [](const auto& name) { return !layout::is_group_file(name); });
  return names;
}

Result<std::vector<std::string>> read_set(const LocalTree& tree, const std::string& path) {
  INDUCTORFS_TRY_ASSIGN(auto names, list_kernel_files(tree, path));
  std::set<std::string> of_set;
  for (const auto& name : names) {
    if (!layout::is_group_file(name)) continue;
    of_set.insert(name);
    const auto text = read_group_file(tree, LocalTree::view(join(path, name)));
    if (!text && is_of_host(text.error().code())) return fail(text.error());
    const auto children = text ? layout::group_children(*text, last_component(path)) : fail(text.error());
    if (children) of_set.insert(children->begin(), children->end());
  }
  std::erase_if(names, [&](const auto& name) { return !of_set.contains(name); });
  return names;
}

std::vector<std::string> cut_set(const LocalTree& tree, const std::string& path) {
  auto names = kernel_files(tree, path);
  if (std::ranges::any_of(names, [](const auto& name) { return layout::is_group_file(name); })) return {};
  std::erase_if(
      names, [&](const auto& name) { return mark_of(tree, LocalTree::view(join(path, name)), kLeftMark).has_value(); });
  return names;
}

Result<bool> local_set_is_whole(const LocalTree& tree, const std::string& path) {
  INDUCTORFS_TRY_ASSIGN(const auto names, read_set(tree, path));
  const auto state = state_of_set({names.begin(), names.end()}, tree, LocalTree::view(path), last_component(path));
  if (state == SetState::kUnread) return fail(ErrorCode::kInternal, "a group file cannot be read: " + path);
  return state == SetState::kWhole;
}

Result<std::string> read_seal(const LocalTree& tree, const std::string& path) {
  if (form_of(path) != layout::Form::kFile) {
    const auto mark = parcel_mark_of(tree, LocalTree::view(path));
    return mark ? mark->digest.to_hex() : std::string();
  }
  INDUCTORFS_TRY_ASSIGN(const auto file, tree.open_file(LocalTree::view(path), false));
  INDUCTORFS_TRY_ASSIGN(const auto seal, seal_of(file.get()));
  return seal.value_or("");
}

std::string seal_on_disk(const LocalTree& tree, const std::string& path) { return read_seal(tree, path).value_or(""); }

Result<codec::Digest> digest_to_seal(int file, const std::string& path) {
  if (!layout::is_group_file(last_component(path))) return codec::digest_of_file(file);
  INDUCTORFS_TRY_ASSIGN(const auto text, read_file(AT_FDCWD, proc_path(file), kGroupFileLimit));
  INDUCTORFS_TRY_ASSIGN(const auto canonical, layout::canonical_group(text, last_component(parent_path(path))));
  return codec::digest_of(canonical);
}

}  // namespace inductorfs::vfs
