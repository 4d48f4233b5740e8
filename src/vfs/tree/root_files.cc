// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <chrono>

#include "vfs/tree/parcel_mark.h"
#include "vfs/tree/paths.h"
#include "vfs/tree/root_tree.h"

namespace inductorfs::vfs {

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

bool RootTree::is_sealed(const Node& node, Content& content) {
  if (content.sealed != SealState::kAskDisk) return content.sealed == SealState::kSealed;
  const auto place = location(node, content);
  const auto file = place ? disk_.open_file(*place, false) : Result<Fd>(fail(place.error()));
  // What cannot be looked at may be the store's: a writer gets a copy, or the error.
  if (!file) return file.error().code() != ErrorCode::kNotFound;
  const bool sealed = disk_.seal_of(file->get()) || is_blob_without_seal(file->get());
  content.sealed = sealed ? SealState::kSealed : SealState::kOpen;
  return sealed;
}

/// The daemon ended between taking the inode into the store and marking it.
bool RootTree::is_blob_without_seal(int file) {
  struct stat status {};
  struct stat blob_status {};
  if (::fstat(file, &status) != 0 || status.st_nlink < 2) return false;
  const auto digest = codec::digest_of_file(file);
  if (!digest) return false;
  const auto blob = store_.open_blob(*digest);
  return blob && ::fstat(blob->file(), &blob_status) == 0 && blob_status.st_ino == status.st_ino &&
         blob_status.st_dev == status.st_dev;
}

std::string RootTree::seal_on_disk(const std::string& path) const {
  if (form_of(path) != layout::Form::kFile) {
    const auto mark = parcel_mark_of(disk_, LocalTree::view(path));
    return mark ? mark->digest.to_hex() : std::string();
  }
  const auto file = disk_.open_file(LocalTree::view(path), false);
  return file ? disk_.seal_of(file->get()).value_or("") : std::string();
}

Result<std::vector<LocalTree::Item>> RootTree::list_in_view(const std::string& path) {
  const std::string place = LocalTree::view(path);
  auto directory = moves_.read([&](const Moves&) { return disk_.open_directory(place); });
  if (directory) return LocalTree::list(std::move(*directory), place);
  if (directory.error().code() == ErrorCode::kNotFound) return std::vector<LocalTree::Item>{};
  return fail(std::move(directory).error());
}

std::vector<std::string> RootTree::local_set(const std::string& path) const {
  std::vector<std::string> names;
  auto directory = disk_.open_directory(LocalTree::view(path));
  if (!directory) return names;
  if (auto items = LocalTree::list(std::move(*directory), path, kMostInSet)) {
    for (auto& item : *items) {
      if (item.type == S_IFREG && is_kernel_file(join(path, item.name))) names.push_back(std::move(item.name));
    }
  }
  return names;
}

bool RootTree::local_set_is_whole(const std::string& path) const {
  const auto names = local_set(path);
  return set_is_whole({names.begin(), names.end()}, disk_, LocalTree::view(path), last_component(path));
}

bool RootTree::make_room(uint64_t bytes) {
  const uint64_t evicted = store_.free_space(bytes);
  if (evicted >= bytes) return true;
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
