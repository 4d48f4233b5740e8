// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "inductorfs/base/log.h"
#include "vfs/entry_mode.h"
#include "vfs/overlay.h"

namespace inductorfs::vfs {
namespace {

constexpr size_t kNameLimit = 255;
constexpr size_t kPrefetchEntries = 1024;
/// Artefacts of one start-up are made by one writer within minutes (a cold start of the largest graphs takes that
/// long).
constexpr int64_t kCompanionNanoseconds = 10LL * 60 * 1'000'000'000;
constexpr uint64_t kCompanionBytes = 256ULL << 20;
constexpr size_t kCompanionsRemembered = 64;
constexpr uint64_t kGroupFileLimit = 1 << 20;

/// st_ino of what has no local file: never equal to one of the local disk's, which do not have the highest bit.
uint64_t inode_number_of(std::string_view canonical) { return std::hash<std::string_view>{}(canonical) | (1ULL << 63); }

Attributes attributes_of_entry(const codec::Entry& entry, uint64_t size, const FileSystemOptions& options) {
  Attributes result;
  result.mode = S_IFREG | mode_of(entry);
  result.uid = options.owner_uid;
  result.gid = options.owner_gid;
  result.size = size;
  result.blocks = (size + 511) / 512;
  constexpr int64_t kSecond = 1'000'000'000;
  result.modified = {entry.mtime_ns / kSecond, entry.mtime_ns % kSecond};
  result.accessed = result.changed = result.modified;
  return result;
}

void absent(const LookupDone& done, bool keep) { done({fail(ErrorCode::kNotFound), keep}); }

/// Of a file that was not known: whether its bytes may be the store's, too. One without a seal may be, when who took it
/// into the store was killed then, or does it just now: `status` may be older than that. So a writer asks the disk.
SealState seal_state_of(const LocalTree& tree, const std::string& path, const struct stat& status) {
  if (!tree.keeps_seals() || (status.st_nlink <= 1 && !layout::rule_of(layout::classify(path).family).shared)) {
    return SealState::kOpen;
  }
  const auto file = tree.open_file(LocalTree::view(path), false);
  return file && tree.seal_of(file->get()) ? SealState::kSealed : SealState::kAskDisk;
}

/// A rename has moved the file on the disk, and its node not yet: another node for it would take its place.
bool is_being_renamed(const NodeTable& nodes, const LocalTree& tree, const std::string& path) {
  const auto status = tree.stat(LocalTree::view(path));
  if (!status || !*status || !S_ISREG((*status)->st_mode) || (*status)->st_nlink > 1) return false;
  const NodePtr known = nodes.find_local((*status)->st_ino);
  return known && nodes.links_of(known) > 0;
}

}  // namespace

bool kernel_may_keep(std::string_view path) {
  return !path.starts_with("triton/") || layout::classify(path).family != layout::Family::kTemporary;
}

Result<NodePtr> Overlay::live(NodeId id) const {
  NodePtr node = nodes_.find(id);
  if (!node) return fail(ErrorCode::kNotFound);
  return node;
}

Result<Site> Overlay::site(NodeId parent, std::string_view name) const {
  if (name.size() > kNameLimit)
    return fail(ErrorCode::kNameTooLong, "a name of " + std::to_string(name.size()) + " bytes");
  auto directory = live(parent);
  if (!directory) return fail(std::move(directory).error());
  if (!(*directory)->is_directory()) return fail(ErrorCode::kNotDirectory);
  auto path = nodes_.path_of(**directory, name);
  if (!path) return fail(ErrorCode::kNotFound);
  Site result{std::move(*directory), std::string(name), std::move(*path), {}};
  result.canonical = layout::canonical_path(result.path);
  return result;
}

void Overlay::lookup(NodeId parent, std::string_view name, const Caller& caller, LookupDone done) {
  const NodePtr directory = nodes_.find(parent);
  if (!directory) return absent(done, false);
  // The hot path: mkdir and O_EXCL of an existing name send a LOOKUP whatever the timeouts, and an
  // answer from memory is all they need.
  if (!directory->key) {
    if (const NodePtr known = nodes_.look_up_child(directory, name)) {
      const bool keep = kernel_may_keep(nodes_.path_of(*known).value_or(""));
      return done({moves_.read([&](const Moves&) { return found(known, keep); }), false});
    }
  }
  auto where = site(parent, name);
  if (!where) return done({fail(std::move(where).error()), false});
  if (directory->key) return lookup_in_key_directory(*where, caller, std::move(done));
  resolve(*where, std::move(done));
}

void Overlay::resolve(const Site& site, LookupDone done) {
  if (auto local = resolve_locally(site, true)) return done({std::move(*local), false});
  if (site.canonical == site.path && site.path == std::string("triton/") + std::string(layout::kAnyDevice)) {
    return absent(done, true);
  }
  if (const auto known = catalog_.find(site.canonical)) return resolve_entry(site, *known, true, std::move(done));
  if (catalog_.has_directory(site.canonical)) {
    prefetch_directory(site.canonical);
    return done({add_virtual(site, 1), false});
  }
  absent(done, true);
}

std::optional<Result<Found>> Overlay::resolve_locally(const Site& site, bool keep) {
  return moves_.read([&](const Moves&) -> std::optional<Result<Found>> {
    auto status = tree_.stat(LocalTree::view(site.path));
    if (!status) return fail(std::move(status).error());
    if (!*status) return std::nullopt;
    auto result = add_local(site, **status, 1);
    if (result) result->keep = keep && kernel_may_keep(site.path);
    if (result && S_ISDIR((*status)->st_mode)) prefetch_directory(site.canonical);
    return result;
  });
}

void Overlay::resolve_entry(const Site& site, const catalog::Known& known, bool keep, LookupDone done) {
  if (is_here(store_, known.entry)) {
    // It may have come under another name, or from this host's own files.
    if (const auto fits = fetcher_.judge_present(known.entry); fits != FetchOutcome::kHere) {
      return fetched(site, known, fits, done);
    }
    auto result = add_shared(site, known.entry, 1);
    if (result) result->keep = keep;
    return done({std::move(result), false});
  }
  prefetch_companions(known.entry);
  fetcher_.fetch({known.entry}, [this, site, known, done = std::move(done)](const std::vector<FetchOutcome>& got) {
    fetched(site, known, got.front(), done);
  });
}

void Overlay::fetched(const Site& site, const catalog::Known& known, FetchOutcome outcome, const LookupDone& done) {
  switch (outcome) {
    case FetchOutcome::kHere:
      break;
    case FetchOutcome::kLost:
      counters_.get("lookup.lost").add();
      catalog_.report_lost(known);
      if (site.parent->key) sets_.drop(site.parent);
      return absent(done, false);
    case FetchOutcome::kNotNow:
      counters_.get("lookup.not_now").add();
      return absent(done, false);
    case FetchOutcome::kUnfit:
      if (site.parent->key) sets_.drop(site.parent);
      return absent(done, false);  // hidden by now (hide_unfit); the next one may fit
  }
  counters_.get("lookup.first_touch").add();
  done({add_shared(site, known.entry, 1), false});
}

NodePtr Overlay::new_node(mode_t type, uint64_t inode_number, const Site& site) {
  auto node = std::make_shared<Node>(nodes_.next_id(), type, inode_number);
  make_key_directory(*node, site.path);
  return node;
}

void Overlay::make_key_directory(Node& node, const std::string& path) {
  // Staging directories too (triton/<device>/tmp.<uuid>): the bundler renames them to key directories.
  if (node.type != S_IFDIR || !path.starts_with("triton/") || std::count(path.begin(), path.end(), '/') != 2) return;
  node.key = std::make_unique<KeyDirectory>();
  const auto names = local_set(path);
  if (std::any_of(names.begin(), names.end(), [](const auto& name) { return layout::is_group_file(name); })) {
    node.key->state.with([](KeyState& state) { state.committed = KeyState::Committed::kLocal; });
  }
}

Result<Found> Overlay::found(const NodePtr& node, bool keep) {
  auto current = node->content.with([&](Content& content) { return attributes(*node, content); });
  if (!current) {
    forget(node->id, 1);
    return fail(std::move(current).error());
  }
  return Found{node->id, *current, keep};
}

Result<Found> Overlay::add_local(const Site& site, const struct stat& status, uint64_t references) {
  // A second link of a file that is known is the same inode. (A link to the store's blob is no second name.)
  const NodeTable::LocalFile file{status.st_ino, status.st_nlink > 1};
  const NodePtr same = S_ISREG(status.st_mode) && file.has_more_names ? nodes_.find_local(status.st_ino) : nullptr;
  if (same) {
    const NodePtr linked = nodes_.add(site.parent, site.name, same, references, file);
    named_again(linked);
    return found(linked, true);
  }
  NodePtr node = new_node(status.st_mode & S_IFMT, status.st_ino, site);
  const SealState sealed = node->is_regular() ? seal_state_of(tree_, site.path, status) : SealState::kOpen;
  node->content.with([&](Content& content) {
    content.backing = Backing::kLocal;
    content.sealed = sealed;
    content.attributes = attributes_of(status);
    if (sealed == SealState::kSealed) content.attributes.links = 1;
    content.attributes_valid = true;
  });
  const auto local = node->is_regular() ? std::optional(file) : std::nullopt;
  const NodePtr winner = nodes_.add(site.parent, site.name, node, references, local);
  if (winner != node) named_again(winner);
  return found(winner, true);
}

/// The text of a group file for this mount; nothing for every other file.
Result<std::shared_ptr<const std::string>> Overlay::rendered_group(const std::string& path, const codec::Entry& entry) {
  using Text = std::shared_ptr<const std::string>;
  const size_t slash = path.rfind('/');
  if (layout::classify(path).family != layout::Family::kTritonKernel || slash == std::string::npos ||
      !layout::is_group_file(path.substr(slash + 1))) {
    return Text();
  }
  auto blob = store_.open_blob(entry.digest);
  if (!blob) return fail(std::move(blob).error());
  auto canonical = read_file(AT_FDCWD, proc_path(blob->get()), kGroupFileLimit);
  if (!canonical) return fail(std::move(canonical).error());
  auto text = layout::render_group(*canonical, options_.mountpoint + "/" + path.substr(0, slash));
  if (!text) return fail(std::move(text).error());
  return Text(std::make_shared<const std::string>(std::move(*text)));
}

void Overlay::set_entry_attributes(const Node& node, Content& content) const {
  content.attributes =
      attributes_of_entry(content.entry, content.rendered ? content.rendered->size() : content.entry.size, options_);
  content.attributes.inode_number = node.inode_number;
  content.attributes_valid = true;
}

void Overlay::set_virtual_attributes(const Node& node, Content& content) const {
  Attributes& attributes = content.attributes;
  attributes.inode_number = node.inode_number;
  attributes.mode = S_IFDIR | (options_.root_mode & 07777);
  attributes.uid = options_.owner_uid;
  attributes.gid = options_.owner_gid;
  attributes.size = 4096;
  content.attributes_valid = true;
}

Result<Found> Overlay::add_shared(const Site& site, const codec::Entry& entry, uint64_t references) {
  auto rendered = rendered_group(site.path, entry);
  if (!rendered) return fail(std::move(rendered).error());
  NodePtr node = new_node(S_IFREG, inode_number_of(site.path), site);
  node->content.with([&](Content& content) {
    content.backing = Backing::kShared;
    content.entry = entry;
    content.rendered = *rendered;
    set_entry_attributes(*node, content);
  });
  nodes_.note_content(*node, NodeJournal::shared(node->id, entry));
  pins_.with([&](Pins& pins) { pins.shared[entry.digest].push_back(node->id); });
  const NodePtr winner = nodes_.add(site.parent, site.name, node, references);
  if (winner != node) let_go({node});
  // A change that the catalog told between our look and the node's entry into the table would have found no node to
  // take away: look again, now that it would find it.
  const auto now = sets_.entry_of(*site.parent, site.path);
  // The blob too: it was found before the pin that keeps it, and may have been evicted in between.
  const bool gone = !now || now->entry.digest != entry.digest || !store_.find(entry.digest);
  if (winner == node && gone) {
    (void)nodes_.detach(site.parent, site.name);
    let_go(nodes_.forget(node->id, references));
    return fail(ErrorCode::kNotFound);
  }
  catalog_.note_use(entry.digest);
  return found(winner, true);
}

Result<Found> Overlay::add_virtual(const Site& site, uint64_t references) {
  NodePtr node = new_node(S_IFDIR, inode_number_of(site.path), site);
  node->content.with([&](Content& content) {
    content.backing = Backing::kVirtual;
    set_virtual_attributes(*node, content);
  });
  nodes_.note_content(*node, NodeJournal::virtual_directory(node->id));
  return found(nodes_.add(site.parent, site.name, node, references), true);
}

void Overlay::prefetch_directory(const std::string& canonical) {
  if (options_.prefetch_bytes == 0) return;
  std::vector<codec::Entry> wanted;
  uint64_t bytes = 0;
  for (auto& known : catalog_.entries_in(canonical)) {
    bytes += known.entry.size;
    if (bytes > options_.prefetch_bytes || wanted.size() >= kPrefetchEntries) break;
    wanted.push_back(std::move(known.entry));
  }
  if (!wanted.empty()) fetcher_.prefetch(wanted);
}

void Overlay::prefetch_companions(const codec::Entry& entry) {
  if (options_.prefetch_bytes == 0) return;
  const bool fresh = companions_.with([&](std::vector<std::pair<std::string, int64_t>>& windows) {
    const auto covers = [&](const auto& window) {
      return window.first == entry.origin && std::abs(window.second - entry.mtime_ns) < kCompanionNanoseconds / 2;
    };
    if (std::any_of(windows.begin(), windows.end(), covers)) return false;
    if (windows.size() >= kCompanionsRemembered) windows.erase(windows.begin());
    windows.emplace_back(entry.origin, entry.mtime_ns);
    return true;
  });
  if (!fresh) return;
  std::vector<codec::Entry> wanted;
  uint64_t bytes = 0;
  constexpr size_t kNewest = 20'000;
  for (auto& known : catalog_.newest(kNewest)) {
    if (known.entry.origin != entry.origin) continue;
    if (std::abs(known.entry.mtime_ns - entry.mtime_ns) > kCompanionNanoseconds) continue;
    bytes += known.entry.size;
    if (bytes > std::min(kCompanionBytes, options_.prefetch_bytes) || wanted.size() >= kPrefetchEntries) break;
    wanted.push_back(std::move(known.entry));
  }
  if (!wanted.empty()) fetcher_.prefetch(wanted);
}

void Overlay::forget(NodeId node, uint64_t count) { let_go(nodes_.forget(node, count)); }

void Overlay::let_go(const std::vector<NodePtr>& gone) {
  const auto end = [this](const Node& node, const Content& content) {
    if (content.backing == Backing::kShared) {
      pins_.with([&](Pins& pins) { pins.unshare(content.entry.digest, node.id); });
    } else if (content.elsewhere.starts_with("orphans/")) {
      (void)tree_.unlink(content.elsewhere);  // what stays is removed at the next start
      orphans_.notify_with([](Orphans& orphans) { orphans.one_is_gone(); });
    }
  };
  for (const NodePtr& node : gone) {
    descriptors_.drop(node->id);
    sets_.forget(*node);
    node->content.with([&](const Content& content) { end(*node, content); });
  }
}

void Pins::unshare(const codec::Digest& digest, NodeId node) {
  const auto pin = shared.find(digest);
  if (pin == shared.end()) return;
  if (const auto one = std::find(pin->second.begin(), pin->second.end(), node); one != pin->second.end())
    pin->second.erase(one);
  if (pin->second.empty()) shared.erase(pin);
}

Result<NodePtr> Overlay::pin_path(std::string_view path) {
  NodePtr node = root_;
  node->pins.fetch_add(1);
  while (!path.empty()) {
    const size_t slash = path.find('/');
    auto next_site = site(node->id, path.substr(0, slash));
    Result<Found> next = fail(ErrorCode::kNotFound);
    if (next_site) {
      if (const NodePtr known = nodes_.look_up_child(node, next_site->name)) {
        next = found(known, true);
      } else if (is_being_renamed(nodes_, tree_, next_site->path)) {
        next = fail(ErrorCode::kBusy, next_site->path);
      } else if (auto local = resolve_locally(*next_site, true)) {
        next = std::move(*local);
      }
    }
    NodePtr child = next ? nodes_.find(next->node) : nullptr;
    if (child) {
      // The pin takes the place of the kernel's reference that the resolution counted.
      child->pins.fetch_add(1);
      forget(child->id, 1);
    }
    unpin(node);
    if (!child) return fail(next ? Error(ErrorCode::kNotFound) : next.error());
    node = std::move(child);
    path = slash == std::string_view::npos ? std::string_view{} : path.substr(slash + 1);
  }
  return node;
}

void Overlay::unpin(const NodePtr& node) {
  node->pins.fetch_sub(1);
  let_go(nodes_.release(node));
}

}  // namespace inductorfs::vfs
