// SPDX-License-Identifier: Apache-2.0
#include "vfs/tree/root_tree.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/layout/layout.h"
#include "vfs/tree/view_files.h"

namespace inductorfs::vfs {
namespace {

constexpr size_t kNameLimit = 255;

}  // namespace

uint64_t inode_number_of(std::string_view path) {
  constexpr uint64_t kNotOnDisk = uint64_t{1} << 62;
  return (std::hash<std::string_view>{}(path) & (kNotOnDisk - 1)) | kNotOnDisk;
}

void note_named(const Site& site) {
  if (!site.parent->key || !layout::is_group_file(site.name) || !is_kernel_file(site.path)) return;
  site.parent->key->groups.with([](GroupNames& names) { names.keep_unseen(); });
}

std::string pending_path(const Node& directory, const SetOwner& writer) {
  auto known = directory.key->state.with([&](const KeyState& state) {
    const auto set = state.writers.find(writer);
    return set == state.writers.end() ? std::string() : set->second.place;
  });
  if (!known.empty()) return known;
  return LocalTree::in_folder(LocalTree::kPendingFolder, std::to_string(static_cast<uint64_t>(directory.id)) + "-" +
                                                             std::to_string(writer.process) + "-" +
                                                             std::to_string(writer.start));
}

RootTree::RootTree(const FileSystemOptions& options, LocalTree disk, NodePtr root, store::BlobStore& store)
    : disk_(std::move(disk)),
      store_(store),
      root_(std::move(root)),
      nodes_(root_, options.region),
      known_roots_(options, disk_, nodes_),
      descriptors_(options.descriptor_limit) {}

Result<NodePtr> RootTree::live(NodeId id) const {
  NodePtr node = nodes_.find(id);
  if (!node) return fail(ErrorCode::kNotFound);
  return node;
}

Result<Site> RootTree::site(const Moves& /*moves*/, NodeId parent, std::string_view name) const {
  if (name.size() > kNameLimit)
    return fail(ErrorCode::kNameTooLong, "a name of " + std::to_string(name.size()) + " bytes");
  INDUCTORFS_TRY_ASSIGN(auto directory, live(parent));
  if (!directory->is_directory()) return fail(ErrorCode::kNotDirectory);
  auto path = nodes_.path_of(*directory, name);
  if (!path) return fail(ErrorCode::kNotFound);
  Site result{std::move(directory), std::string(name), std::move(*path), {}, {}};
  result.entry = layout::name_of(result.path);
  return result;
}

Result<Site> RootTree::site_now(NodeId parent, std::string_view name) const {
  return moves_.read([&](const Moves& moves) { return site(moves, parent, name); });
}

bool RootTree::is_at(const Moves& /*moves*/, const Site& site) const {
  return nodes_.path_of(*site.parent, site.name) == site.path;
}

NodePtr RootTree::new_node(mode_t type, uint64_t inode_number, const Site& site) {
  auto node = std::make_shared<Node>(nodes_.next_id(), type, inode_number);
  make_key_directory(*node, site.path);
  return node;
}

void RootTree::make_key_directory(Node& node, const std::string& path) {
  // Staging directories too (triton/<device>/tmp.<uuid>): the bundler renames them to key directories.
  if (node.type != S_IFDIR || !layout::may_hold_triton_set(path)) return;
  node.key = std::make_unique<KeyDirectory>();
  const auto names = kernel_files(disk_, path);
  if (std::any_of(names.begin(), names.end(), [](const auto& name) { return layout::is_group_file(name); })) {
    node.key->state.with([](KeyState& state) { state.committed = KeyState::Committed::kLocal; });
  }
}

void RootTree::forget(NodeId node, uint64_t count) {
  let_go(nodes_.forget(node, count));
  if (waiting_.load() > 0) forgotten_.notify_with([](uint64_t& calls) { ++calls; });
}

bool RootTree::wait_until_forgotten(const std::vector<NodePtr>& nodes, Deadline deadline) {
  waiting_.fetch_add(1);  // before the look, so that a later forget() is not missed
  const auto is_known = [](const NodePtr& node) { return node->lookups.load() > 0; };
  bool known = true;
  for (bool late = false; !late;) {
    const uint64_t calls = forgotten_.with([](uint64_t now) { return now; });
    known = std::any_of(nodes.begin(), nodes.end(), is_known);
    if (!known) break;
    late = forgotten_.wait_until(
        deadline.at(), [&](uint64_t now) { return now != calls; }, [&](uint64_t now) { return now == calls; });
  }
  waiting_.fetch_sub(1);
  return !known;
}

void RootTree::let_go(const std::vector<NodePtr>& gone) {
  for (const NodePtr& node : gone) {
    descriptors_.drop(node->id);
    unpin_set(*node);
    const NodePtr named = node->content.with([&](Content& content) {
      end(*node, content);
      return std::exchange(content.view_of, nullptr);
    });
    if (named) unpin(named);
  }
}

void RootTree::end(const Node& node, const Content& content) {
  if (content.backing == Backing::kShared) {
    pins_.with([&](Pins& pins) { pins.unshare(content.entry.digest, node.id); });
  } else if (LocalTree::is_orphan(content.elsewhere)) {
    (void)disk_.unlink(content.elsewhere);  // what stays is removed at the next start
    orphans_.notify_with([](Orphans& orphans) { orphans.one_is_gone(); });
  }
}

/// The blobs of a set of the cluster that a key directory showed.
void RootTree::unpin_set(const Node& directory) {
  if (!directory.key) return;
  directory.key->state.with([&](const KeyState& state) {
    for (const auto& item : state.cluster) {
      pins_.with([&](Pins& pins) { pins.unshare(item.second.entry.digest, directory.id); });
    }
  });
}

void Pins::unshare(const codec::Digest& digest, NodeId node) {
  const auto pin = shared.find(digest);
  if (pin == shared.end()) return;
  if (const auto one = std::find(pin->second.begin(), pin->second.end(), node); one != pin->second.end())
    pin->second.erase(one);
  if (pin->second.empty()) shared.erase(pin);
}

void RootTree::unpin(const NodePtr& node) {
  node->pins.fetch_sub(1);
  let_go(nodes_.release(node));
}

void RootTree::named_again(const NodePtr& node) {
  node->content.with([&](Content& content) {
    if (content.backing != Backing::kLocal || !LocalTree::is_orphan(content.elsewhere)) return;
    if (!nodes_.path_of(*node)) return;  // that name went meanwhile, too
    const std::string place = content.elsewhere;
    become(node, content, Backing::kLocal, {});
    (void)disk_.unlink(place);  // what stays is removed by the next worker, or at the next start
    orphans_.notify_with([](Orphans& orphans) { orphans.one_is_gone(); });
  });
}

Result<void> RootTree::make_view_directories(const std::string& path) {
  const auto before = disk_.stat(LocalTree::view(path));
  INDUCTORFS_TRY(disk_.make_view_directories(path, known_roots_.access_of_entries(layout::name_of(path))));
  if (!listed_more_ || (before && *before)) return {};
  // A listing that the kernel keeps of one of those above may lack the next.
  for (size_t end = path.size(); end != std::string::npos && end > 0; end = path.rfind('/', end - 1)) {
    if (const NodePtr above = nodes_.find(parent_path(path.substr(0, end)))) listed_more_(above->id);
  }
  return {};
}

Result<void> RootTree::make_local_directory(const Moves& /*moves*/, const NodePtr& directory) {
  const bool is_virtual =
      directory->content.with([](const Content& content) { return content.backing == Backing::kVirtual; });
  if (!is_virtual) return {};
  const auto path = nodes_.path_of(*directory);
  if (!path) return fail(ErrorCode::kNotFound);
  INDUCTORFS_TRY(make_view_directories(*path));
  directory->content.with([&](Content& content) { become(directory, content, Backing::kLocal, {}); });
  return {};
}

void RootTree::become(const NodePtr& node, Content& content, Backing backing, std::string elsewhere) {
  content.backing = backing;
  content.elsewhere = std::move(elsewhere);
  content.attributes_valid = false;
  nodes_.note_content(*node, NodeJournal::local(node->id, content.elsewhere));
}

void RootTree::become_orphan(const Node& node, Content& content, std::string place) {
  content.elsewhere = std::move(place);
  nodes_.note_content(node, NodeJournal::local(node.id, content.elsewhere));
  orphans_.with([](Orphans& orphans) { ++orphans.left; });
}

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
  return is_stores(file->get()).value_or(true);
}

Result<void> RootTree::seal(const Node& node, int file) {
  descriptors_.drop(node.id);
  INDUCTORFS_TRY_ASSIGN(const bool has_one, is_stores(file));
  return has_one ? Result<void>{} : set_seal(file, {});
}

Result<std::vector<LocalTree::Item>> RootTree::list_in_view(const std::string& path) {
  return list_if_there(moves_.read([&](const Moves&) { return disk_.open_directory(LocalTree::view(path)); }), path);
}

Result<std::vector<LocalTree::Item>> RootTree::list_in_view(const Node& directory) {
  std::optional<std::string> path;
  auto opened = moves_.read([&](const Moves&) {
    path = nodes_.path_of(directory);
    return path ? disk_.open_directory(LocalTree::view(*path)) : fail(ErrorCode::kNotFound);
  });
  return list_if_there(std::move(opened), path.value_or(""));
}

bool RootTree::has_something(const std::string& path) const {
  const NodePtr node = nodes_.find(path);
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
