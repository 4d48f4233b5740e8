// SPDX-License-Identifier: Apache-2.0
#include "vfs/tree/root_tree.h"

#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include "inductorfs/layout/layout.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/entry_mode.h"
#include "vfs/tree/paths.h"

namespace inductorfs::vfs {
namespace {

constexpr size_t kNameLimit = 255;
constexpr std::chrono::seconds kPrunePause{1};

Attributes attributes_of_entry(const codec::Entry& entry, uint64_t size, const RootAccess& access) {
  Attributes result;
  result.mode = S_IFREG | mode_of(entry);
  result.uid = access.uid;
  result.gid = access.gid;
  result.size = size;
  result.blocks = (size + 511) / 512;
  constexpr int64_t kSecond = 1'000'000'000;
  result.modified = {entry.mtime_ns / kSecond, entry.mtime_ns % kSecond};
  result.accessed = result.changed = result.modified;
  return result;
}

}  // namespace

uint64_t inode_number_of(std::string_view path) { return std::hash<std::string_view>{}(path) | (1ULL << 63); }

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
    : options_(options),
      disk_(std::move(disk)),
      store_(store),
      root_(std::move(root)),
      nodes_(root_, options.region),
      descriptors_(options.descriptor_limit) {}

Result<NodePtr> RootTree::live(NodeId id) const {
  NodePtr node = nodes_.find(id);
  if (!node) return fail(ErrorCode::kNotFound);
  return node;
}

Result<Site> RootTree::site(NodeId parent, std::string_view name) const {
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
  if (is_known(rest.substr(0, rest.find('/')))) paths.push_back(join(entry.root, rest));
  return paths;
}

bool RootTree::Roots::is_full(uid_t owner) const {
  if (known.size() >= kMostRoots) return true;
  return std::count_if(known.begin(), known.end(), [owner](const auto& one) { return one.second.owner == owner; }) >=
         static_cast<ptrdiff_t>(kMostRootsOfOne);
}

bool RootTree::insert_root(Roots& roots, const layout::Name& entry, uid_t owner) {
  const auto now = std::chrono::steady_clock::now();
  if (roots.is_full(owner) && now >= roots.next_prune) {
    roots.next_prune = now + kPrunePause;
    std::erase_if(roots.known, [this](const auto& one) { return !nodes_.walk(one.first).missing.empty(); });
  }
  if (!roots.known.contains(entry.root) && roots.is_full(owner)) return false;
  Root& root = roots.known.try_emplace(entry.root, Root{owner, false}).first->second;
  root.is_torchs = root.is_torchs || layout::proves_root(entry);
  return true;
}

bool RootTree::admit(const layout::Name& entry) {
  if (entry.root.empty()) return true;
  const bool proves = layout::proves_root(entry);
  const auto known = roots_.read([&](const Roots& roots) -> std::optional<bool> {
    const auto found = roots.known.find(entry.root);
    if (found != roots.known.end()) return !proves || found->second.is_torchs ? std::optional(true) : std::nullopt;
    const bool stays_full = roots.known.size() >= kMostRoots && std::chrono::steady_clock::now() < roots.next_prune;
    return stays_full ? std::optional(false) : std::nullopt;
  });
  if (known) return *known;
  const uid_t owner = owner_of(entry.root).value_or(0);
  return roots_.write([&](Roots& roots) { return insert_root(roots, entry, owner); });
}

bool RootTree::lists_cluster(const layout::Name& entry) const {
  if (entry.root.empty()) return true;
  return roots_.read([&](const Roots& roots) {
    const auto found = roots.known.find(entry.root);
    return found != roots.known.end() && (found->second.is_torchs || !layout::is_ambiguous(entry));
  });
}

std::vector<std::string> RootTree::roots() const {
  return roots_.read([](const Roots& roots) {
    std::vector<std::string> paths;
    for (const auto& [path, root] : roots.known) paths.push_back(path);
    return paths;
  });
}

std::optional<uid_t> RootTree::owner_of(const std::string& root) const {
  const auto status = disk_.stat(LocalTree::view(root));
  if (!status || !*status) return std::nullopt;
  const auto access = access_of_root({std::string(), root});  // of a branch the root's
  return access ? std::optional(access->uid) : std::nullopt;
}

bool RootTree::has_roots_at(const std::string& path) const {
  return roots_.read([&](const Roots& roots) {
    if (roots.known.contains(path)) return true;
    const auto below = roots.known.lower_bound(path + "/");
    return below != roots.known.end() && below->first.starts_with(path + "/");
  });
}

/// Takes the roots at and below a directory out, with what they are called in it.
std::map<std::string, RootTree::Root> RootTree::take_roots(Roots& roots, const std::string& directory) {
  std::map<std::string, Root> taken;
  for (auto one = roots.known.lower_bound(directory); one != roots.known.end() && one->first.starts_with(directory);) {
    const std::string rest = one->first.substr(directory.size());
    const bool inside = rest.empty() || rest.front() == '/';
    if (inside) taken.emplace(rest, one->second);
    one = inside ? roots.known.erase(one) : std::next(one);
  }
  return taken;
}

void RootTree::move_roots(const std::string& from, const std::string& to) {
  roots_.write([&](Roots& roots) {
    for (auto& [rest, root] : take_roots(roots, from)) roots.known[to + rest] = root;
  });
  (void)admit(layout::name_of(to));
}

void RootTree::exchange_roots(const std::string& one, const std::string& other) {
  roots_.write([&](Roots& roots) {
    const auto first = take_roots(roots, one);
    const auto second = take_roots(roots, other);
    for (const auto& [rest, root] : first) roots.known[other + rest] = root;
    for (const auto& [rest, root] : second) roots.known[one + rest] = root;
  });
  (void)admit(layout::name_of(one));
  (void)admit(layout::name_of(other));
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
  const auto names = local_set(path);
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

Result<Attributes> RootTree::attributes(const Node& node, Content& content) {
  INDUCTORFS_TRY_ASSIGN(auto shown, own_attributes(node, content));
  // An entry of the cluster has the mode of mode_of(). A file with several names keeps its own, whichever of them is
  // known.
  const bool may_be_common =
      node.is_directory() || (node.is_regular() && content.backing == Backing::kLocal && shown.links == 1);
  const auto path = may_be_common ? nodes_.path_of(node) : std::nullopt;
  if (!path) return shown;
  const auto use = node.is_directory() ? layout::CommonUse::kNone : layout::common_use_of(*path);
  if (node.is_directory() ? !layout::is_common_directory(*path) : use == layout::CommonUse::kNone) return shown;
  const auto root = access_of_root(layout::name_of(*path));
  if (!root) return shown;
  const Attributes wide = widened(shown, *root, use);
  // The disk is asked only where the umask was narrower than the root.
  const bool chosen = use != layout::CommonUse::kWrite && wide.mode != shown.mode && mode_is_chosen(node, content);
  return chosen ? widened(shown, *root, use, true) : wide;
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
  if (content.attributes.links > 1 && is_sealed(node, content)) content.attributes.links = 1;
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
    // One that names another directory of the mount was moved here, or copied.
    const bool elsewhere = named && *named != seen && !named->starts_with(seen_by(writer, {}) + "/");
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
  return disk_.make_view_directories(path, access_of_entries(layout::name_of(path)));
}

Result<void> RootTree::make_local_directory(const NodePtr& directory, const std::string& path) {
  const bool is_virtual =
      directory->content.with([](const Content& content) { return content.backing == Backing::kVirtual; });
  if (!is_virtual) return {};
  INDUCTORFS_TRY(make_view_directories(path));
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
