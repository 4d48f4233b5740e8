// SPDX-License-Identifier: Apache-2.0
#include "vfs/tree/root_tree.h"

#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include "inductorfs/layout/layout.h"
#include "vfs/nodes/entry_mode.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/paths.h"

namespace inductorfs::vfs {
namespace {

constexpr size_t kNameLimit = 255;

Attributes attributes_of_entry(const codec::Entry& entry, uint64_t size, const RootAccess& access) {
  Attributes result;
  result.mode = S_IFREG | mode_of(entry);
  result.uid = access.uid;
  result.gid = access.gid;
  result.size = size;
  result.blocks = (size + 511) / 512;
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t modified = mtime_of(entry);
  result.modified = {modified / kSecond, modified % kSecond};
  result.accessed = result.changed = result.modified;
  return result;
}

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

RootTree::RootTree(const FileSystemOptions& options, LocalTree disk, NodePtr root, store::BlobStore& store,
                   NamesChanged names_changed)
    : options_(options),
      disk_(std::move(disk)),
      store_(store),
      names_changed_(std::move(names_changed)),
      root_(std::move(root)),
      nodes_(root_, options.region),
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

std::vector<std::string> RootTree::local_paths_of(const std::string& canonical) const {
  std::vector<std::string> paths = local_paths_of(layout::Name(canonical));
  for (auto& root : roots()) {
    auto more = local_paths_of({canonical, std::move(root)});
    paths.insert(paths.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  return paths;
}

std::vector<std::string> RootTree::local_paths_of(const layout::Name& entry) const {
  // The kernel keeps no absence of a name that stands in a root itself, but for the mountpoint (Lookup).
  const auto is_known = [this, &root = entry.root](std::string_view name) {
    return nodes_.walk(join(root, name)).missing.empty();
  };
  const bool everything = entry.root.empty();
  const std::string prefix = "triton/" + std::string(layout::kAnyDevice) + "/";
  if (!entry.path.starts_with(prefix)) {
    const bool known = everything || is_known(entry.path.substr(0, entry.path.find('/')));
    return known ? std::vector{join(entry.root, entry.path)} : std::vector<std::string>();
  }
  // One entry shows in every device's directory.
  std::vector<std::string> paths;
  const std::string rest = entry.path.substr(prefix.size());
  const std::string triton = join(entry.root, "triton");
  const auto walked = nodes_.walk(triton);
  std::set<std::string> devices;
  if (everything || walked.missing.empty()) devices.insert("0");
  if (walked.missing.empty()) {
    for (const auto& [name, node] : nodes_.children(walked.node)) {
      if (layout::is_device_name(name)) devices.insert(name);
    }
  }
  for (const auto& device : devices) paths.push_back(join(join(triton, device), rest));
  const std::string_view key = std::string_view(rest).substr(0, rest.find('/'));
  for (const char* directory : {"", "triton"}) {
    if (is_known(join(directory, key))) paths.push_back(join(entry.root, join(directory, rest)));
  }
  return paths;
}

void RootTree::each_key_directory(const std::function<void(const NodePtr&)>& use) const {
  const auto use_children = [&](const NodePtr& directory) {
    for (const auto& [name, child] : nodes_.children(directory)) {
      if (child->key) use(child);
    }
  };
  auto all = roots();
  all.emplace_back();
  for (const auto& root : all) {
    if (const auto walked = nodes_.walk(root); walked.missing.empty()) use_children(walked.node);
    const auto triton = nodes_.walk(join(root, "triton"));
    if (!triton.missing.empty()) continue;
    use_children(triton.node);
    for (const auto& [device, node] : nodes_.children(triton.node)) use_children(node);
  }
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
  const auto names = kernel_files(path);
  if (std::any_of(names.begin(), names.end(), [](const auto& name) { return layout::is_group_file(name); })) {
    node.key->state.with([](KeyState& state) { state.committed = KeyState::Committed::kLocal; });
  }
}

RootAccess RootTree::access_of_entries(const layout::Name& entry) const {
  const RootAccess mountpoint{options_.owner_uid, options_.owner_gid, options_.root_mode & 07777};
  return root_of_branch(entry.root).empty() ? mountpoint : access_of_root(entry).value_or(mountpoint);
}

void RootTree::set_entry_attributes(const Node& node, Content& content, const layout::Name& entry) const {
  const uint64_t size = content.rendered ? content.rendered->size() : content.entry.size;
  content.attributes = attributes_of_entry(content.entry, size, access_of_entries(entry));
  content.attributes.inode_number = node.inode_number;
  content.attributes_valid = true;
}

void RootTree::set_virtual_attributes(const Node& node, Content& content, const layout::Name& entry) const {
  const RootAccess access = access_of_entries(entry);
  Attributes& attributes = content.attributes;
  attributes.inode_number = node.inode_number;
  attributes.mode = S_IFDIR | access.mode;
  attributes.uid = access.uid;
  attributes.gid = access.gid;
  attributes.size = 4096;
  content.attributes_valid = true;
}

/// From the disk each time, so that a chmod of the root counts at once for what the kernel asks about.
std::optional<RootAccess> RootTree::access_of_root(const layout::Name& entry) const {
  const auto status = disk_.stat(LocalTree::view(root_of_branch(entry.root)));
  if (!status || !*status) return std::nullopt;
  return RootAccess{(*status)->st_uid, (*status)->st_gid, (*status)->st_mode & 07777};
}

std::optional<OwnFile> RootTree::newest_own(const std::string& directory, int depth, const std::string& name) const {
  std::optional<OwnFile> newest;
  if (depth == 0) {
    const std::string path = join(directory, name);
    const auto status = disk_.stat(LocalTree::view(path));
    if (!status || !*status || !S_ISREG((*status)->st_mode)) return newest;
    return OwnFile{path, {}, modified_ns(**status)};
  }
  for (const auto& item : disk_.list(LocalTree::view(directory)).value_or(std::vector<LocalTree::Item>{})) {
    if (item.type != S_IFDIR) continue;
    auto found = newest_own(join(directory, item.name), depth - 1, name);
    if (found && (!newest || found->mtime_ns > newest->mtime_ns)) newest = std::move(found);
  }
  return newest;
}

bool RootTree::lets_in(std::string_view path, uid_t user, std::span<const gid_t> groups) const {
  for (size_t end = 0; end != std::string_view::npos; end = path.find('/', end + 1)) {
    const std::string above(path.substr(0, end));
    const auto status = disk_.stat(LocalTree::view(above));
    if (!status || !*status || !S_ISDIR((*status)->st_mode)) return !status || !*status || !S_ISLNK((*status)->st_mode);
    if (!above.empty() && layout::is_common_directory(above)) continue;  // as the root is
    const bool in_group = std::ranges::find(groups, (*status)->st_gid) != groups.end();
    const mode_t enters = (*status)->st_uid == user ? S_IXUSR : in_group ? S_IXGRP : S_IXOTH;
    if (((*status)->st_mode & enters) == 0) return false;
  }
  return true;
}

Result<Attributes> RootTree::attributes(const Node& node, Content& content) {
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
  const auto root = access_of_root(layout::name_of(*path));
  if (!root) return shown;
  const Attributes wide = widened(shown, *root, use);
  // The disk is asked only where the umask was narrower than the root.
  const bool chosen = use != layout::CommonUse::kWrite && wide.mode != shown.mode && mode_is_chosen(node, content);
  return chosen ? widened(shown, *root, use, true) : wide;
}

void RootTree::show_change(const Node& node, Content& content, const std::string& path, Attributes& shown) const {
  auto& change = content.names_changed;
  if (const auto time = names_changed_(layout::name_of(path))) {
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

bool RootTree::mode_is_chosen(const Node& node, const Content& content) const {
  const auto place = location(node, content);
  return place && disk_.mark_of(*place, LocalTree::kModeName);
}

void RootTree::keep_mode(const Node& node, Content& content) {
  const auto path = nodes_.path_of(node);
  const auto place = location(node, content);
  const auto own = own_attributes(node, content);
  if (!path || !place || !own) return;
  // A lock gets its mode from filelock, without a choice. Of several names any may be the one that stays.
  const bool counts =
      node.is_directory()
          ? layout::is_common_directory(*path)
          : node.is_regular() && (own->links > 1 || layout::common_use_of(*path) == layout::CommonUse::kRead);
  if (!counts) return;
  disk_.set_mark(*place, LocalTree::kModeName, "1");
  content.attributes_valid = false;
}

Result<Attributes> RootTree::own_attributes(const Node& node, Content& content) {
  if (content.attributes_valid) return content.attributes;
  auto path = location(node, content);
  if (!path) {
    // Deleted, and known to the kernel still: a directory, or bytes of the cluster. Its last attributes stand.
    content.attributes.links = 0;
    return content.attributes;
  }
  INDUCTORFS_TRY_ASSIGN(const auto status, disk_.stat(*path));
  if (!status) return fail(ErrorCode::kNotFound);
  content.attributes = attributes_of(*status);
  node.owner = content.attributes.uid;
  // The other links of a sealed file are the store's and the sealer's.
  if (content.attributes.links > 1 && node.is_regular() && is_sealed(node, content)) content.attributes.links = 1;
  // One of its names is ours. Others may be there that nobody has looked up yet.
  if (LocalTree::is_orphan(content.elsewhere) && content.attributes.links > 0) --content.attributes.links;
  content.attributes.inode_number = node.inode_number;
  content.attributes_valid = true;
  return content.attributes;
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

std::string RootTree::seen_by(pid_t thread, const std::string& path) const {
  const std::string shown = shown_path(path);
  return options_.where_seen ? options_.where_seen(thread, shown) : path_in_mount(shown);
}

std::string RootTree::path_in_mount(std::string_view path) const { return join(options_.mountpoint, shown_path(path)); }

void RootTree::mark_view(const std::string& place, const std::vector<std::string>& names,
                         const std::string& key_directory, pid_t writer) const {
  if (!options_.where_seen) return;
  for (const auto& name : names) {
    if (!layout::is_group_file(name)) continue;
    const auto text = disk_.read_file(join(place, name), kGroupFileLimit);
    const auto named = text ? layout::group_directory(*text, last_component(key_directory)) : Result<std::string>("");
    const std::string seen = seen_by(writer, key_directory);
    // One that names another directory of the mount was moved here, or copied. A relative path is right for processes
    // in one working directory, so that everybody is shown an absolute one.
    const bool elsewhere =
        named && named->starts_with('/') && *named != seen && !named->starts_with(seen_by(writer, {}) + "/");
    if (elsewhere) disk_.set_mark(join(place, name), LocalTree::kSeenName, seen);
  }
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
  INDUCTORFS_TRY(disk_.make_view_directories(path, access_of_entries(layout::name_of(path))));
  if (!listed_more_ || (before && *before)) return {};
  // A listing that the kernel keeps of one of those above may lack the next.
  for (size_t end = path.size(); end != std::string::npos && end > 0; end = path.rfind('/', end - 1)) {
    const auto above = nodes_.walk(parent_path(path.substr(0, end)));
    if (above.missing.empty()) listed_more_(above.node->id);
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

}  // namespace inductorfs::vfs
