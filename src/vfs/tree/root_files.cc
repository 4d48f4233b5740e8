// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/host_error.h"
#include "vfs/tree/parcel_mark.h"
#include "vfs/tree/paths.h"
#include "vfs/tree/root_tree.h"

namespace inductorfs::vfs {
namespace {

Result<std::vector<LocalTree::Item>> items_of(Result<Fd> directory, const std::string& path) {
  if (directory) return LocalTree::list(std::move(*directory), path);
  if (directory.error().code() == ErrorCode::kNotFound) return std::vector<LocalTree::Item>{};
  return fail(std::move(directory).error());
}

Result<std::vector<std::string>> list_kernel_files(const LocalTree& disk, const std::string& path) {
  std::vector<std::string> names;
  auto directory = disk.open_directory(LocalTree::view(path));
  if (!directory && !is_of_host(directory.error().code())) return names;
  if (!directory) directory = disk.open_directory(LocalTree::view(path));  // as read_group_file()
  if (!directory) return fail(std::move(directory).error());
  INDUCTORFS_TRY_ASSIGN(auto items, LocalTree::list(std::move(*directory), path, kMostInSet));
  for (auto& item : items) {
    if (item.type == S_IFREG && is_kernel_file(join(path, item.name))) names.push_back(std::move(item.name));
  }
  return names;
}

}  // namespace

Result<std::string> RootTree::location(const Node& node, const Content& content) const {
  if (!content.elsewhere.empty()) return content.elsewhere;
  auto path = nodes_.path_of(node);
  if (!path) return fail(ErrorCode::kNotFound);
  return LocalTree::view(*path);
}

Result<DescriptorCache::Pointer> RootTree::descriptor(const Node& node, Content& content, bool writable) {
  if (auto open = descriptors_.find(node.id, writable)) return open;
  if (content.backing == Backing::kShared) {
    INDUCTORFS_TRY_ASSIGN(auto blob, store_.open_blob(content.entry.digest));
    return descriptors_.put(node.id, std::move(blob), false);
  }
  INDUCTORFS_TRY_ASSIGN(auto path, location(node, content));
  INDUCTORFS_TRY_ASSIGN(auto file, disk_.open_file(path, writable));
  return descriptors_.put(node.id, std::move(file), writable);
}

bool RootTree::is_sealed(const Node& node, const Content& content) {
  // Opened while the inode was the file's own; seal() drops it.
  if (descriptors_.find(node.id, true)) return false;
  const auto place = location(node, content);
  const auto file = place ? disk_.open_file(*place, false) : Result<Fd>(fail(place.error()));
  // What cannot be looked at may be the store's: a writer gets a copy, or the error.
  if (!file) return file.error().code() != ErrorCode::kNotFound;
  return disk_.is_stores(file->get()).value_or(true);
}

Result<void> RootTree::seal(const Node& node, int file) {
  descriptors_.drop(node.id);
  INDUCTORFS_TRY_ASSIGN(const bool has_one, disk_.is_stores(file));
  return has_one ? Result<void>{} : disk_.set_seal(file, {});
}

Result<std::string> RootTree::read_seal(const std::string& path) const {
  if (form_of(path) != layout::Form::kFile) {
    const auto mark = parcel_mark_of(disk_, LocalTree::view(path));
    return mark ? mark->digest.to_hex() : std::string();
  }
  INDUCTORFS_TRY_ASSIGN(const auto file, disk_.open_file(LocalTree::view(path), false));
  INDUCTORFS_TRY_ASSIGN(const auto seal, disk_.seal_of(file.get()));
  return seal.value_or("");
}

std::string RootTree::seal_on_disk(const std::string& path) const { return read_seal(path).value_or(""); }

Result<std::vector<LocalTree::Item>> RootTree::list_in_view(const std::string& path) {
  return items_of(moves_.read([&](const Moves&) { return disk_.open_directory(LocalTree::view(path)); }), path);
}

Result<std::vector<LocalTree::Item>> RootTree::list_in_view(const Node& directory) {
  std::optional<std::string> path;
  auto opened = moves_.read([&](const Moves&) {
    path = nodes_.path_of(directory);
    return path ? disk_.open_directory(LocalTree::view(*path)) : fail(ErrorCode::kNotFound);
  });
  return items_of(std::move(opened), path.value_or(""));
}

bool RootTree::has_something(const std::string& path) const {
  const auto at = nodes_.walk(path);
  const NodePtr node = at.missing.empty() ? at.node : nullptr;
  if (node && node->key && node->key->state.with([](const KeyState& state) { return !state.writers.empty(); })) {
    return true;
  }
  const auto status = disk_.stat(LocalTree::view(path));
  return status && *status && !disk_.is_empty(LocalTree::view(path));
}

Result<void> RootTree::remove_directory(const std::string& path) {
  if (has_something(path)) return fail(ErrorCode::kNotEmpty);
  const auto at = nodes_.walk(path);
  const NodePtr node = at.missing.empty() ? at.node : nullptr;
  const auto remove = [&]() -> Result<void> {
    const auto removed = disk_.remove_directory(LocalTree::view(path));
    if (!removed && removed.error().code() != ErrorCode::kNotFound) return removed;
    fail_point("name.directory_removed");
    if (node) (void)nodes_.detach(at.parent, at.name);
    return {};
  };
  // Who begins a set in it does so under this lock (KeySets), and not in a directory that has gone.
  INDUCTORFS_TRY(node && node->key ? node->key->state.with([&](const KeyState& state) {
    return state.writers.empty() ? remove() : fail(ErrorCode::kNotEmpty);
  })
                                   : remove());
  if (node) let_go(nodes_.release(node));
  return {};
}

std::vector<std::string> RootTree::kernel_files(const std::string& path) const {
  return list_kernel_files(disk_, path).value_or(std::vector<std::string>{});
}

std::vector<std::string> RootTree::local_set(const std::string& path) const {
  if (auto set = read_set(path)) return std::move(*set);
  auto names = kernel_files(path);
  std::erase_if(names, [](const auto& name) { return !layout::is_group_file(name); });
  return names;
}

Result<std::vector<std::string>> RootTree::read_set(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(auto names, list_kernel_files(disk_, path));
  std::set<std::string> of_set;
  for (const auto& name : names) {
    if (!layout::is_group_file(name)) continue;
    of_set.insert(name);
    const auto text = read_group_file(disk_, LocalTree::view(join(path, name)));
    if (!text && is_of_host(text.error().code())) return fail(text.error());
    const auto children = text ? layout::group_children(*text, last_component(path)) : fail(text.error());
    if (children) of_set.insert(children->begin(), children->end());
  }
  std::erase_if(names, [&](const auto& name) { return !of_set.contains(name); });
  return names;
}

std::vector<std::string> RootTree::cut_set(const std::string& path) const {
  auto names = kernel_files(path);
  if (std::ranges::any_of(names, [](const auto& name) { return layout::is_group_file(name); })) return {};
  std::erase_if(names, [&](const auto& name) {
    return disk_.mark_of(LocalTree::view(join(path, name)), LocalTree::kLeftName).has_value();
  });
  return names;
}

Result<bool> RootTree::local_set_is_whole(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto names, read_set(path));
  const auto state = state_of_set({names.begin(), names.end()}, disk_, LocalTree::view(path), last_component(path));
  if (state == SetState::kUnread) return fail(ErrorCode::kInternal, "a group file cannot be read: " + path);
  return state == SetState::kWhole;
}

/// 0 bytes: for a user at a limit of his own, for whom nothing is evicted.
bool RootTree::make_room(uint64_t bytes) {
  const uint64_t evicted = bytes > 0 ? store_.free_space(bytes) : 0;
  if (bytes > 0 && evicted >= bytes) return true;
  // What was deleted or closed just now may still be on its way out: the kernel's FORGET follows the last of unlink(2)
  // and close(2), and nobody waits for it. On a local disk the space is there when that returns.
  constexpr std::chrono::milliseconds kForgetDelay{100};
  // Who has a deleted file open for long is waited for once a second at most.
  constexpr std::chrono::seconds kHeld{1};
  const auto now = std::chrono::steady_clock::now();
  const auto none_comes = [&](const Orphans& orphans) {
    return orphans.left <= (now < orphans.held_until ? orphans.held : 0);
  };
  if (orphans_.with(none_comes)) {
    return evicted > 0 ||
           orphans_.with([&](const Orphans& orphans) { return orphans.latest_gone + kForgetDelay > now; });
  }
  return orphans_.wait_until(now + kForgetDelay, none_comes, [&](Orphans& orphans) {
    if (none_comes(orphans)) return true;
    orphans.held = orphans.left;
    orphans.held_until = now + kForgetDelay + kHeld;
    return true;
  });
}

}  // namespace inductorfs::vfs
