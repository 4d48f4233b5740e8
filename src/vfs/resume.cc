// SPDX-License-Identifier: Apache-2.0
#include "vfs/resume.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/log.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/overlay.h"

/// Taking a mount over from a worker that was killed, or that made room for a newer one. The kernel and the processes
/// go on with the nodes that they know; what the earlier worker was in the middle of is finished by its requests, which
/// come again (takeover::RequestSlots), and by what is looked after here.
namespace inductorfs::vfs {
namespace {

template <typename T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// "pending/<node>-<process>-<start>/<name>".
struct PendingPlace {
  NodeId directory{};
  std::string name;
};
std::optional<PendingPlace> pending_place(std::string_view place) {
  constexpr std::string_view kPrefix = "pending/";
  if (!place.starts_with(kPrefix)) return std::nullopt;
  place.remove_prefix(kPrefix.size());
  const size_t dash = place.find('-');
  const size_t slash = place.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) return std::nullopt;
  const auto id = number_in<uint64_t>(place.substr(0, dash));
  if (!id) return std::nullopt;
  return PendingPlace{NodeId{*id}, std::string(place.substr(slash + 1))};
}

}  // namespace

Result<void> Resume::take_over() {
  const NodeRecords records = overlay_.nodes_.left_over();
  std::vector<NodePtr> nodes;
  nodes.reserve(records.nodes.size());
  for (const auto& [id, record] : records.nodes) nodes.push_back(node_of(record));
  overlay_.nodes_.restore(records, nodes);
  fail_point("takeover.nodes_restored");
  // By path, so only now.
  for (const NodePtr& node : nodes) {
    if (const auto path = overlay_.nodes_.path_of(*node)) overlay_.make_key_directory(*node, *path);
    restore_content(node, records.nodes.at(static_cast<uint64_t>(node->id)));
  }
  std::vector<NodePtr> lost;
  for (const NodePtr& node : nodes) {
    if (node->is_regular() && !find_place(node)) lost.push_back(node);
  }
  // By these the requests that come again find what they moved.
  for (const NodePtr& node : lost) {
    if (node->local_inode != 0 && !overlay_.nodes_.find_local(node->local_inode))
      overlay_.nodes_.remember_local(node->local_inode, node);
  }
  // Background threads of the earlier worker held them, not the kernel.
  for (const NodePtr& node : nodes) overlay_.let_go(overlay_.nodes_.release(node));
  fail_point("takeover.files_found");
  restore_pending();
  fail_point("takeover.sets_restored");
  sweep_orphans();
  fail_point("takeover.orphans_swept");
  overlay_.recover_stale();
  overlay_.resuming_.with([](Resuming& resuming) { resuming = Resuming::kRequests; });
  overlay_.counters_.get("view.resumed_nodes").add(nodes.size());
  return {};
}

NodePtr Resume::node_of(const NodeRecord& record) {
  auto node = std::make_shared<Node>(NodeId{record.id}, record.type, record.inode_number);
  node->lookups = record.lookups;
  node->local_inode = record.local_inode;
  if (record.backing == Backing::kShared) node->content_record = NodeJournal::shared(node->id, record.entry);
  if (record.backing == Backing::kVirtual) node->content_record = NodeJournal::virtual_directory(node->id);
  if (!record.elsewhere.empty()) node->content_record = NodeJournal::local(node->id, record.elsewhere);
  if (!record.cluster_set.empty()) node->key_record = NodeJournal::cluster_set(node->id, record.cluster_set);
  return node;
}

void Resume::restore_content(const NodePtr& node, const NodeRecord& record) {
  const auto path = overlay_.nodes_.path_of(*node);
  node->content.with([&](Content& content) {
    content.backing = record.backing;
    if (record.backing == Backing::kShared) {
      content.entry = record.entry;
      // Its bytes stay those that the kernel keeps pages of, whatever the catalog says of the name by now.
      content.rendered = overlay_.rendered_group(path.value_or(record.entry.path), record.entry).value_or(nullptr);
      overlay_.set_entry_attributes(*node, content);
      if (!path) content.attributes.links = 0;
      overlay_.pins_.with([&](Pins& pins) { pins.shared[record.entry.digest].push_back(node->id); });
    } else if (record.backing == Backing::kVirtual) {
      overlay_.set_virtual_attributes(*node, content);
    } else {
      content.elsewhere = record.elsewhere;
      if (record.elsewhere.starts_with("orphans/")) overlay_.orphans_.with([](Orphans& orphans) { ++orphans.left; });
      if (node->is_regular()) content.sealed = SealState::kAskDisk;
    }
  });
  if (node->key && !record.cluster_set.empty()) overlay_.sets_.restore(*node, record.cluster_set);
}

/// Its name is another than the one that its seal may have been looked for under.
void Resume::ask_for_seal(const NodePtr& node) {
  node->content.with([&](Content& content) {
    if (content.backing != Backing::kLocal || !node->is_regular()) return;
    content.sealed = SealState::kAskDisk;
    content.attributes_valid = false;
  });
}

/// The inode number of the node's file, if that is what lies there; 0: it is not.
uint64_t Resume::inode_at(const std::string& place, const Node& node) const {
  const auto status = overlay_.tree_.stat(place);
  if (!status || !*status || !S_ISREG((*status)->st_mode)) return 0;
  const auto is_it = [&] {
    if (node.local_inode == 0 || (*status)->st_ino == node.local_inode) return true;
    // A copy took its place, and the worker was killed before it could note that (LocalTree::unshare).
    return overlay_.tree_.mark_of(place, LocalTree::kChangedName) == std::to_string(node.local_inode);
  };
  return is_it() ? (*status)->st_ino : 0;
}

/// Where a local file is noted to be and is, and its inode number; of its names the first one that the disk knows it
/// by. Number 0: at none of them.
std::pair<std::string, uint64_t> Resume::noted_place(const NodePtr& node) const {
  const std::string elsewhere = node->content.with([](const Content& content) { return content.elsewhere; });
  if (!elsewhere.empty()) return {elsewhere, inode_at(elsewhere, *node)};
  for (const auto& [parent_id, name] : overlay_.nodes_.names_of(node)) {
    const NodePtr parent = overlay_.nodes_.find(parent_id);
    const auto path = parent ? overlay_.nodes_.path_of(*parent, name) : std::nullopt;
    if (!path) continue;
    // Of most files all that is asked of the disk.
    if (const uint64_t inode = inode_at(LocalTree::view(*path), *node); inode != 0)
      return {LocalTree::view(*path), inode};
  }
  return {};
}

/// Where a local file really is: the earlier worker may have been killed between a step on the disk and its note.
bool Resume::find_place(const NodePtr& node) {
  const auto backing = node->content.with([](const Content& content) { return content.backing; });
  if (backing != Backing::kLocal) return true;
  if (const auto [place, inode] = noted_place(node); inode != 0) {
    lose_names(node, place);
    overlay_.nodes_.remember_local(inode, node);
    return true;
  }
  const std::string orphan = LocalTree::orphan(node->id);
  const auto pending = node->content.with([](const Content& content) { return pending_place(content.elsewhere); });
  const NodePtr directory = pending ? overlay_.nodes_.find(pending->directory) : nullptr;
  const auto above = directory ? overlay_.nodes_.path_of(*directory) : std::nullopt;
  if (above && inode_at(LocalTree::view(join(*above, pending->name)), *node) != 0) {
    // In the middle of a set that was committed.
    node->content.with([&](Content& content) { overlay_.become(node, content, Backing::kLocal, {}); });
    (void)overlay_.nodes_.detach(directory, pending->name);
    (void)overlay_.nodes_.add(directory, pending->name, node, 0);
    overlay_.nodes_.remember_local(node->local_inode, node);
    return true;
  }
  if (inode_at(orphan, *node) != 0) {
    lose_names(node, {});
    node->content.with([&](Content& content) { overlay_.become_orphan(*node, content, orphan); });
    overlay_.nodes_.remember_local(node->local_inode, node);
    return true;
  }
  // Its request comes again and knows where it is, or it is gone.
  lose_names(node, {});
  return false;
}

/// Takes away the names under which the disk has another file, or all when the file is at no place.
void Resume::lose_names(const NodePtr& node, const std::string& place) {
  for (const auto& [parent_id, name] : overlay_.nodes_.names_of(node)) {
    const NodePtr parent = overlay_.nodes_.find(parent_id);
    const auto path = parent ? overlay_.nodes_.path_of(*parent, name) : std::nullopt;
    if (!path) continue;
    const std::string named = LocalTree::view(*path);
    if (!place.empty() && (named == place || inode_at(named, *node) != 0)) continue;
    (void)overlay_.nodes_.detach(parent, name);
    overlay_.notifier_.forget_name(parent_id, name);
  }
}

void Resume::restore_pending() {
  for (const auto& item : overlay_.tree_.list("pending").value_or(std::vector<LocalTree::Item>{})) {
    const size_t dash = item.name.find('-');
    const auto id = number_in<uint64_t>(std::string_view(item.name).substr(0, dash));
    const NodePtr directory = id && dash != std::string::npos ? overlay_.nodes_.find(NodeId{*id}) : nullptr;
    const std::string place = "pending/" + item.name;
    const bool taken =
        directory && directory->key && restore_set(directory, std::string_view(item.name).substr(dash + 1), place);
    // What stays is met again at the next start.
    if (!taken) (void)remove_tree(overlay_.options_.directory + "/" + place);
  }
}

/// The writer of a set, from the end of its directory's name; nothing when it is nobody's any more.
std::optional<SetOwner> Resume::owner_of_set(std::string_view text, const std::string& place) const {
  const size_t dash = text.find('-');
  const auto process = number_in<pid_t>(text.substr(0, dash));
  if (!process) return std::nullopt;
  if (dash != std::string_view::npos) {
    const auto start = number_in<uint64_t>(text.substr(dash + 1));
    return start ? std::optional(SetOwner{*process, *start}) : std::nullopt;
  }
  // An earlier release noted the number alone. Who has it now and is younger than one of the files did not write them.
  if (*process <= 0) return SetOwner{};
  std::optional<std::chrono::seconds> oldest;
  for (const auto& file : overlay_.tree_.list(place).value_or(std::vector<LocalTree::Item>{})) {
    const auto status = overlay_.tree_.stat(join(place, file.name));
    if (!status || !*status) return std::nullopt;
    const std::chrono::seconds put((*status)->st_ctim.tv_sec);
    oldest = std::min(oldest.value_or(put), put);
  }
  const SetOwner owner = oldest ? set_owner_since(*process, *oldest) : SetOwner{};
  return owner.is_known() ? std::optional(owner) : std::nullopt;
}

/// False: there is nothing in it for anybody.
bool Resume::restore_set(const NodePtr& directory, std::string_view owner, const std::string& place) {
  const auto path = overlay_.nodes_.path_of(*directory);
  const auto writer = owner_of_set(owner, place);
  if (!path || !writer) return false;
  KeyState::WriterSet set;
  set.place = place;
  set.last_change = std::chrono::steady_clock::now();
  for (const auto& file : overlay_.tree_.list(place).value_or(std::vector<LocalTree::Item>{})) {
    const bool disputed = overlay_.tree_.mark_of(join(place, file.name), LocalTree::kDisputedName).has_value();
    set.files[file.name] = {0, disputed};
  }
  if (set.files.empty()) return false;
  // A commit that was cut: its group file had not moved yet (Overlay::commit), the request that caused it comes again.
  if (!overlay_.local_set_is_whole(*path)) {
    for (const auto& name : overlay_.local_set(*path)) set.files.try_emplace(name);
  }
  set.complete =
      set.is_of_one_thread() && set_is_whole(set.names(), overlay_.tree_, place, path->substr(path->rfind('/') + 1));
  // Twice: one is what a janitor could not remove.
  const bool first = directory->key->state.with(
      [&](KeyState& state) { return state.writers.try_emplace(*writer, std::move(set)).second; });
  if (!first) return false;
  directory->pins.fetch_add(1);
  overlay_.contested_.with([&](auto& contested) { contested[static_cast<uint64_t>(directory->id)] = directory; });
  return true;
}

void Resume::sweep_orphans() {
  for (const auto& item : overlay_.tree_.list("orphans").value_or(std::vector<LocalTree::Item>{})) {
    const auto id = number_in<uint64_t>(item.name);
    const NodePtr node = id ? overlay_.nodes_.find(NodeId{*id}) : nullptr;
    const std::string place = "orphans/" + item.name;
    const bool used = node && node->content.with([&](const Content& content) { return content.elsewhere == place; });
    if (node && !used && inode_at(place, *node) != 0 && overlay_.nodes_.path_of(*node)) {
      // Its file is at a name, and would be counted to have this one, too.
      (void)overlay_.tree_.unlink(place);  // as below
      continue;
    }
    // What a request began is made again by it; `keep_orphan` of one that comes again replaces what it finds.
    if (!used && !(node && item.name == std::to_string(static_cast<uint64_t>(node->id)))) {
      (void)overlay_.tree_.unlink(place);  // what stays is removed at the next start
    }
  }
}

/// The rest of a takeover, while requests are served: which blobs local files are, what is to be sealed, and what the
/// kernel may not have been told.
void Resume::finish(const std::stop_token& stop) {
  refresh_kernel("", overlay_.root_, stop);
  fail_point("takeover.kernel_told");
  look_below("", stop);
  overlay_.resuming_.notify_with([](Resuming& resuming) { resuming = Resuming::kNo; });
  fail_point("takeover.finished");
  log::info("view.resumed", {{"nodes", static_cast<uint64_t>(overlay_.nodes_.size())}});
}

/// The catalog may have changed between the last notice to the kernel and now: an absence that the kernel keeps would
/// stay for ever.
void Resume::refresh_kernel(const std::string& path, const NodePtr& directory, const std::stop_token& stop) {
  for (const auto& child : overlay_.catalog_.list(layout::canonical_path(path))) {
    if (stop.stop_requested()) return;
    if (!overlay_.nodes_.child(directory, child.name)) overlay_.notifier_.forget_name(directory->id, child.name);
  }
  overlay_.notifier_.forget_content(directory->id);
  for (const auto& [name, child] : overlay_.nodes_.children(directory)) {
    const std::string child_path = path.empty() ? name : join(path, name);
    if (child->is_directory()) {
      refresh_kernel(child_path, child, stop);
      continue;
    }
    const bool replaced = child->content.with([&](const Content& content) {
      if (content.backing != Backing::kShared) return false;
      const auto known = overlay_.catalog_.find(layout::canonical_path(child_path));
      return !known || known->entry.digest != content.entry.digest;
    });
    if (replaced) (void)overlay_.apply_remote_change(child_path, layout::canonical_path(child_path));
  }
}

void Resume::look_below(const std::string& path, const std::stop_token& stop) {
  const auto items = overlay_.moves_.read([&](const Moves&) { return overlay_.tree_.list(LocalTree::view(path)); });
  if (!items || stop.stop_requested()) return;
  for (const auto& item : *items) {
    const std::string child = path.empty() ? item.name : join(path, item.name);
    if (item.type == S_IFDIR) look_below(child, stop);
    if (item.type == S_IFREG) look_at_file(path, item.name, *items);
  }
  if (layout::is_triton_key_directory(path)) look_at_set(path);
}

void Resume::look_at_set(const std::string& path) {
  const bool asks = overlay_.in_place_.is_on();
  bool is_open = false;
  for (const auto& name : overlay_.local_set(path)) {
    if (!overlay_.seal_on_disk(join(path, name)).empty()) continue;
    is_open = true;
    if (!asks) break;
    const auto node = overlay_.pin_path(join(path, name));
    if (!node) continue;
    // Somebody may be writing to it, also where files of the set are still to come. The last of them seals the set.
    overlay_.in_place_.add(*node, join(path, name));
    overlay_.unpin(*node);
  }
  if (is_open && !asks && overlay_.local_set_is_whole(path)) overlay_.seal_later(path);
}

void Resume::look_at_file(const std::string& directory, const std::string& name,
                          const std::vector<LocalTree::Item>& siblings) {
  const std::string path = directory.empty() ? name : join(directory, name);
  const auto& rule = layout::rule_of(layout::classify(path).family);
  if (!rule.shared || !overlay_.tree_.keeps_seals()) return;
  const std::string place = LocalTree::view(path);
  const auto file = overlay_.tree_.open_file(place, false);
  if (!file) return;
  if (const auto seal = overlay_.tree_.seal_of(file->get())) {
    const auto digest = codec::Digest::from_hex(*seal);
    if (digest) overlay_.pins_.with([&](Pins& pins) { pins.sealed_paths.try_emplace(*digest, path); });
    return;
  }
  if (overlay_.tree_.is_changed(file->get()) || layout::classify(path).family == layout::Family::kTritonKernel) return;
  // Its compiler is at work: the end of that seals it.
  if (rule.seal == layout::SealSign::kBuildDirectory && is_being_built(directory, name, siblings)) return;
  const Provenance found = overlay_.marks_.read(place);
  if (!found.is_known() && overlay_.marks_.everyone_fits()) {
    Provenance now;
    now.add_scope(overlay_.host_.scope_of(layout::classify(path).family, {}).id);
    overlay_.marks_.write(place, found, now);
  }
  auto node = overlay_.pin_path(path);
  if (!node) return;
  if (overlay_.in_place_.is_on()) {
    overlay_.in_place_.add(*node, path);  // somebody may be writing to it
  } else if (rule.seal == layout::SealSign::kQuiet) {
    overlay_.sealer_.add_quiet({*node, path, false});
  } else {
    overlay_.sealer_.add({*node, path, false});
  }
  overlay_.unpin(*node);
}

void Resume::finish_exchange(const Site& from, const Site& to, const NodePtr& moved) {
  const auto other = overlay_.tree_.stat(LocalTree::view(from.path));
  NodePtr back = other && *other ? overlay_.nodes_.find_local((*other)->st_ino) : nullptr;
  if (!back) back = overlay_.nodes_.child(to.parent, to.name);
  (void)overlay_.nodes_.detach(from.parent, from.name);  // both names go, whatever they named
  (void)overlay_.nodes_.detach(to.parent, to.name);
  (void)overlay_.nodes_.add(to.parent, to.name, moved, 0);
  if (!back || back == moved) return;
  (void)overlay_.nodes_.add(from.parent, from.name, back, 0);
  ask_for_seal(back);
}

/// A rename whose effect an earlier worker had begun: done on the disk already? Then the rest of it.
std::optional<Result<void>> Resume::finish_rename(const Site& from, const Site& to, RenameMode mode) {
  const auto witness = takeover::begun_effect();
  // What goes into a Triton set goes on with the set (put_into_set).
  if (!witness || (to.parent->key && layout::classify(to.path).family == layout::Family::kTritonKernel &&
                   layout::classify(from.path).family == layout::Family::kTemporary)) {
    return std::nullopt;
  }
  const auto there = overlay_.tree_.stat(LocalTree::view(to.path));
  if (!there) return fail(there.error());
  if (!*there || (*there)->st_ino != *witness) return std::nullopt;
  const NodePtr at_source = overlay_.nodes_.child(from.parent, from.name);
  const NodePtr at_target = overlay_.nodes_.child(to.parent, to.name);
  NodePtr moved = overlay_.nodes_.find_local(*witness);
  if (!moved && at_source && at_source->inode_number == *witness) moved = at_source;
  if (mode == RenameMode::kExchange) {
    if (moved && at_target != moved) finish_exchange(from, to, moved);
    overlay_.hide_moved(to.path, from.path);
  } else if (moved && at_target != moved) {
    const NodePtr replaced = at_source == moved ? overlay_.nodes_.move(from.parent, from.name, to.parent, to.name)
                                                : overlay_.nodes_.detach(to.parent, to.name);
    if (at_source != moved) (void)overlay_.nodes_.add(to.parent, to.name, moved, 0);
    if (replaced) {
      if (replaced->is_regular() && find_place(replaced)) ask_for_seal(replaced);  // its name is gone already
      overlay_.let_go(overlay_.nodes_.release(replaced));
    }
  }
  if (moved) {
    moved->content.with([](Content& content) { content.attributes_valid = false; });
    ask_for_seal(moved);
  }
  overlay_.hide_moved(from.path, to.path);
  return Result<void>{};
}

}  // namespace inductorfs::vfs
