// SPDX-License-Identifier: Apache-2.0
#include "vfs/recover/takeover.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/number.h"
#include "vfs/tree/parcel_mark.h"
#include "vfs/tree/shown_attributes.h"
#include "vfs/tree/view_files.h"

namespace inductorfs::vfs {

Result<void> Takeover::run() {
  const LeftNodes records = nodes_.left_over();
  std::vector<NodePtr> nodes;
  nodes.reserve(records.nodes.size());
  for (const auto& [id, record] : records.nodes) nodes.push_back(node_of(record));
  nodes_.restore(records, nodes);
  fail_point("takeover.nodes_restored");
  // By path, so only now.
  for (const NodePtr& node : nodes) {
    const auto path = nodes_.path_of(*node);
    if (path) tree_.make_key_directory(*node, *path);
    // The roots that the earlier worker had admitted, and no more of them.
    if (path && node->is_directory()) {
      const auto entry = layout::name_of(*path);
      if (known_roots_.admit(entry)) scopes_.resume(entry.root);
    }
    restore_content(node, records.nodes.at(static_cast<uint64_t>(node->id)));
  }
  for (const NodePtr& node : nodes) views_.kept_before(*node);
  std::vector<NodePtr> lost;
  for (const NodePtr& node : nodes) {
    if (node->is_regular() && !places_.find_place(node)) lost.push_back(node);
  }
  // By these the requests that come again find what they moved.
  for (const NodePtr& node : lost) {
    if (node->local_inode != 0 && !nodes_.find_local(node->local_inode)) nodes_.remember_local(node->local_inode, node);
  }
  // Background threads of the earlier worker held them, not the kernel.
  for (const NodePtr& node : nodes) tree_.let_go(nodes_.release(node));
  fail_point("takeover.files_found");
  restore_pending();
  fail_point("takeover.sets_restored");
  sweep_orphans();
  fail_point("takeover.orphans_swept");
  stale_.recover_stale();
  phase_.with([](Resuming& resuming) { resuming = Resuming::kRequests; });
  counters_.get("view.resumed_nodes").add(nodes.size());
  return {};
}

NodePtr Takeover::node_of(const LeftNode& record) {
  auto node = std::make_shared<Node>(NodeId{record.id}, record.type, record.inode_number);
  node->lookups = record.lookups;
  node->local_inode = record.local_inode;
  if (record.backing == Backing::kShared) {
    node->content_record = record.group_directory.empty()
                               ? NodeJournal::shared(node->id, record.entry)
                               : NodeJournal::group(node->id, record.entry, record.group_directory, record.group_text);
  }
  if (record.backing == Backing::kVirtual) node->content_record = NodeJournal::virtual_directory(node->id);
  if (!record.elsewhere.empty()) node->content_record = NodeJournal::local(node->id, record.elsewhere);
  if (!record.cluster_set.empty()) node->key_record = NodeJournal::cluster_set(node->id, record.cluster_set);
  return node;
}

void Takeover::restore_content(const NodePtr& node, const LeftNode& record) {
  const auto path = nodes_.path_of(*node);
  const auto name = path ? layout::name_of(*path) : layout::Name();
  node->content.with([&](Content& content) {
    content.backing = record.backing;
    if (record.backing == Backing::kShared) {
      content.entry = record.entry;
      // Its bytes stay those that the kernel keeps pages of, whatever the catalog says of the name by now.
      restore_group(content, record, path.value_or(record.entry.path));
      shown_attributes_.set_of_entry(*node, content, name);
      if (!path) content.attributes.links = 0;
      // A node of another view has all its bytes in memory.
      if (record.group_text.empty())
        pins_.with([&](Pins& pins) { pins.shared[record.entry.digest].push_back(node->id); });
    } else if (record.backing == Backing::kVirtual) {
      shown_attributes_.set_of_virtual(*node, content, name);
    } else {
      content.elsewhere = record.elsewhere;
      if (LocalTree::is_orphan(record.elsewhere)) orphans_.with([](Orphans& orphans) { ++orphans.left; });
    }
  });
  if (node->key && !record.cluster_set.empty()) sets_.restore(*node, record.cluster_set);
}

/// Renders a group file as it was: the kernel may have pages of it.
void Takeover::restore_group(Content& content, const LeftNode& record, const std::string& path) {
  if (record.group_directory.empty()) return;  // no group file
  content.group_directory = record.group_directory;
  content.rendered = record.group_text.empty()
                         ? lookup_.rendered_group(path, record.entry, content.group_directory).value_or(nullptr)
                         : std::make_shared<const std::string>(record.group_text);
}

void Takeover::restore_pending() {
  for (const auto& item : disk_.list(LocalTree::kPendingFolder).value_or(std::vector<LocalTree::Item>{})) {
    const size_t dash = item.name.find('-');
    const auto id = number_in<uint64_t>(std::string_view(item.name).substr(0, dash));
    const NodePtr directory = id && dash != std::string::npos ? nodes_.find(NodeId{*id}) : nullptr;
    const std::string place = LocalTree::in_folder(LocalTree::kPendingFolder, item.name);
    const bool taken =
        directory && directory->key && restore_set(directory, std::string_view(item.name).substr(dash + 1), place);
    if (!taken) key_sets_.recover(place, false);
  }
}

/// The writer of a set, from the end of its directory's name; nothing when it is nobody's any more.
std::optional<SetOwner> Takeover::owner_of_set(std::string_view text) const {
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto process = number_in<pid_t>(text.substr(0, dash));
  const auto start = number_in<uint64_t>(text.substr(dash + 1));
  return process && start ? std::optional(SetOwner{*process, *start}) : std::nullopt;
}

/// False: there is nothing in it for anybody.
bool Takeover::restore_set(const NodePtr& directory, std::string_view owner, const std::string& place) {
  const auto path = nodes_.path_of(*directory);
  const auto writer = owner_of_set(owner);
  if (!path || !writer) return false;
  KeyState::WriterSet set = key_sets_.set_at(place);
  if (set.files.empty()) return false;
  // A commit that was cut: its group file had not moved yet (KeySets::commit), the request that caused it comes again.
  for (const auto& name : cut_set(disk_, *path)) set.files.try_emplace(name);
  set.complete =
      set.is_of_one_thread() && state_of_set(set.names(), disk_, place, last_component(*path)) == SetState::kWhole;
  // False: one is there already, and this is what a janitor could not remove.
  return key_sets_.restore(directory, *writer, std::move(set));
}

void Takeover::sweep_orphans() {
  for (const auto& item : disk_.list(LocalTree::kOrphanFolder).value_or(std::vector<LocalTree::Item>{})) {
    if (item.type == S_IFDIR) {  // a parcel that was on its way into the view, or out of it
      remove_parcel(disk_, LocalTree::in_folder(LocalTree::kOrphanFolder, item.name));
      continue;
    }
    const auto id = number_in<uint64_t>(item.name);
    const NodePtr node = id ? nodes_.find(NodeId{*id}) : nullptr;
    const std::string place = LocalTree::in_folder(LocalTree::kOrphanFolder, item.name);
    const bool used = node && node->content.with([&](const Content& content) { return content.elsewhere == place; });
    if (node && !used && places_.inode_at(place, *node) != 0 && nodes_.path_of(*node)) {
      // Its file is at a name, and would be counted to have this one, too.
      (void)disk_.unlink(place);  // as below
      continue;
    }
    // What a request began is made again by it; `keep_orphan` of one that comes again replaces what it finds.
    if (!used && !(node && item.name == std::to_string(static_cast<uint64_t>(node->id)))) {
      (void)disk_.unlink(place);  // what stays is removed at the next start
    }
  }
}

}  // namespace inductorfs::vfs
