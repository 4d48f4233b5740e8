// SPDX-License-Identifier: Apache-2.0
#include "vfs/tree/shown_attributes.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>

#include "vfs/nodes/entry_mode.h"
#include "vfs/tree/common_access.h"

namespace inductorfs::vfs {
namespace {

Timestamp timestamp_of(const struct timespec& time) { return {time.tv_sec, time.tv_nsec}; }

}  // namespace

Attributes attributes_of(const struct stat& status) {
  Attributes result;
  result.inode_number = status.st_ino;
  result.mode = status.st_mode;
  // 1 is "not counted" for directories: those from the cluster are not in the local count (find(1) knows this form).
  result.links = S_ISDIR(status.st_mode) ? 1 : status.st_nlink;
  result.uid = status.st_uid;
  result.gid = status.st_gid;
  result.device = status.st_rdev;
  result.size = static_cast<uint64_t>(status.st_size);
  result.blocks = static_cast<uint64_t>(status.st_blocks);
  result.accessed = timestamp_of(status.st_atim);
  result.modified = timestamp_of(status.st_mtim);
  result.changed = timestamp_of(status.st_ctim);
  return result;
}

void ShownAttributes::set_of_entry(const Node& node, Content& content, const layout::Name& entry) const {
  constexpr int64_t kSecond = 1'000'000'000;
  const RootAccess access = known_roots_.access_of_entries(entry);
  const int64_t modified = mtime_of(content.entry);
  Attributes shown;
  shown.inode_number = node.inode_number;
  shown.mode = S_IFREG | mode_of(content.entry);
  shown.uid = access.uid;
  shown.gid = access.gid;
  shown.size = content.rendered ? content.rendered->size() : content.entry.size;
  shown.blocks = (shown.size + 511) / 512;
  shown.modified = {modified / kSecond, modified % kSecond};
  shown.accessed = shown.changed = shown.modified;
  content.attributes = shown;
  content.attributes_valid = true;
}

void ShownAttributes::set_of_virtual(const Node& node, Content& content, const layout::Name& entry) const {
  const RootAccess access = known_roots_.access_of_entries(entry);
  Attributes& attributes = content.attributes;
  attributes.inode_number = node.inode_number;
  attributes.mode = S_IFDIR | access.mode;
  attributes.uid = access.uid;
  attributes.gid = access.gid;
  attributes.size = 4096;
  content.attributes_valid = true;
}

Result<Attributes> ShownAttributes::of(const Node& node, Content& content) {
  INDUCTORFS_TRY_ASSIGN(auto shown, own_attributes(node, content));
  // An entry of the cluster has the mode of mode_of(). A file with several names keeps its own, whichever of them is
  // known.
  const bool may_be_common =
      node.is_directory() || (node.is_regular() && content.backing == Backing::kLocal && shown.links == 1);
  const auto path = may_be_common ? nodes_.path_of(node) : std::nullopt;
  if (!path) return shown;
  if (node.is_directory()) show_change(node, content, *path, shown);
  const auto use = node.is_directory() ? layout::CommonUse::kNone : layout::common_use_of(*path);
  if (node.is_directory() ? !layout::is_common_directory(*path) : use == layout::CommonUse::kNone) return shown;
  const auto root = known_roots_.access_of(layout::name_of(*path));
  if (!root) return shown;
  const Attributes wide = widened(shown, *root, use);
  // The disk is asked only where the umask was narrower than the root.
  const bool chosen = use != layout::CommonUse::kWrite && wide.mode != shown.mode && mode_is_chosen(node, content);
  return chosen ? widened(shown, *root, use, true) : wide;
}

void ShownAttributes::show_change(const Node& node, Content& content, const std::string& path,
                                  Attributes& shown) const {
  auto& change = content.names_changed;
  if (const auto time = catalog_.names_changed(layout::name_of(path))) {
    node.told_change = *time;
    change = std::max(change, std::chrono::nanoseconds(*time));
  }
  const bool is_virtual = content.backing == Backing::kVirtual;
  if (is_virtual && change.count() == 0) change = std::chrono::system_clock::now().time_since_epoch();
  for (Timestamp* time : {&shown.accessed, &shown.modified, &shown.changed}) {
    const auto own = std::chrono::seconds(time->seconds) + std::chrono::nanoseconds(time->nanoseconds);
    if (!is_virtual && (time == &shown.accessed || own >= change)) continue;
    const auto seconds = std::chrono::floor<std::chrono::seconds>(change);
    *time = {seconds.count(), (change - seconds).count()};
  }
}

bool ShownAttributes::mode_is_chosen(const Node& node, const Content& content) const {
  const auto place = tree_.location(node, content);
  return place && mark_of(disk_, *place, kModeMark);
}

void ShownAttributes::keep_mode(const Node& node, Content& content) {
  const auto path = nodes_.path_of(node);
  const auto place = tree_.location(node, content);
  const auto own = own_attributes(node, content);
  if (!path || !place || !own) return;
  // A lock gets its mode from filelock, without a choice. Of several names any may be the one that stays.
  const bool counts =
      node.is_directory()
          ? layout::is_common_directory(*path)
          : node.is_regular() && (own->links > 1 || layout::common_use_of(*path) == layout::CommonUse::kRead);
  if (!counts) return;
  set_mark(disk_, *place, kModeMark, "1");
  content.attributes_valid = false;
}

Result<Attributes> ShownAttributes::own_attributes(const Node& node, Content& content) {
  if (content.attributes_valid) return content.attributes;
  auto path = tree_.location(node, content);
  if (!path) {
    // Deleted, and known to the kernel still: a directory, or bytes of the cluster. Its last attributes stand.
    content.attributes.links = 0;
    return content.attributes;
  }
  INDUCTORFS_TRY_ASSIGN(const auto status, disk_.stat(*path));
  if (!status) return fail(ErrorCode::kNotFound);
  content.attributes = attributes_of(*status);
  node.owner = content.attributes.uid;
  // The other links of a sealed file are the store's and the seal queue's.
  if (content.attributes.links > 1 && node.is_regular() && tree_.is_sealed(node, content)) content.attributes.links = 1;
  // One of its names is ours. Others may be there that nobody has looked up yet.
  if (LocalTree::is_orphan(content.elsewhere) && content.attributes.links > 0) --content.attributes.links;
  content.attributes.inode_number = node.inode_number;
  content.attributes_valid = true;
  return content.attributes;
}

}  // namespace inductorfs::vfs
