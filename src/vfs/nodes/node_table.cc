// SPDX-License-Identifier: Apache-2.0
#include "vfs/nodes/node_table.h"

#include <algorithm>

namespace inductorfs::vfs {
namespace {

uint64_t raw(NodeId id) { return static_cast<uint64_t>(id); }

void erase_name(Node& node, NodeId parent, std::string_view name) {
  std::erase_if(node.names, [&](const auto& link) { return link.first == parent && link.second == name; });
}

}  // namespace

NodeTable::NodeTable(NodePtr root, const takeover::Region* region) : root_(std::move(root)), journal_(region) {
  state_.write([&](State& state) { state.nodes.emplace(raw(kRootNode), root_); });
}

void NodeTable::restore(const LeftNodes& records, const std::vector<NodePtr>& nodes) {
  state_.write([&](State& state) {
    state.last_id = std::max(state.last_id, records.last_id);
    for (const NodePtr& node : nodes) {
      state.nodes.emplace(raw(node->id), node);
      state.last_id = std::max(state.last_id, raw(node->id));
    }
    for (const auto& [key, id] : records.names) {
      const NodePtr parent = at(state, NodeId{key.first});
      const NodePtr node = at(state, NodeId{id});
      if (!parent || !node) continue;
      parent->children.insert_or_assign(key.second, node->id);
      node->names.emplace_back(parent->id, key.second);
    }
    journal_.set_last_id(state.last_id);
    compact(state);
  });
}

/// All changes but those of look_up_child: noted in one step, and the log is shortened after any of them.
template <typename Change>
auto NodeTable::change(Change&& make) {
  return state_.write([&](State& state) {
    struct Shorten {
      NodeTable& table;
      State& state;
      ~Shorten() {
        if (table.journal_.wants_snapshot(state.nodes.size())) table.compact(state);
      }
    } const after_the_batch{*this, state};
    NodeJournal::Batch batch(journal_);
    return make(state, batch);
  });
}

void NodeTable::compact(State& state) {
  std::vector<NodePtr> nodes;
  nodes.reserve(state.nodes.size());
  for (const auto& [id, node] : state.nodes) {
    if (node != root_) nodes.push_back(node);
  }
  journal_.snapshot(nodes);
}

void NodeTable::enter(State& state, NodeJournal::Batch& batch, const NodePtr& node) const {
  if (state.nodes.emplace(raw(node->id), node).second) batch.node(*node);
}

void NodeTable::note_content(const Node& node, std::string record) {
  change([&](State& state, NodeJournal::Batch& batch) {
    const NodePtr known = at(state, node.id);
    auto& noted = const_cast<Node&>(node);
    noted.content_record = record;
    if (!known) return;  // goes into the journal with the node
    batch.raw(std::move(record));
  });
}

void NodeTable::note_key(const Node& node, std::string record) {
  change([&](State& state, NodeJournal::Batch& batch) {
    auto& noted = const_cast<Node&>(node);
    noted.key_record = record;
    if (!at(state, node.id)) return;  // as above
    batch.raw(std::move(record));
  });
}

NodePtr NodeTable::at(const State& state, NodeId id) {
  const auto found = state.nodes.find(raw(id));
  return found == state.nodes.end() ? nullptr : found->second;
}

NodePtr NodeTable::find(NodeId id) const {
  return state_.read([&](const State& state) { return at(state, id); });
}

NodePtr NodeTable::child(const NodePtr& parent, std::string_view name) const {
  return state_.read([&](const State& state) -> NodePtr {
    const auto found = parent->children.find(name);
    return found == parent->children.end() ? nullptr : at(state, found->second);
  });
}

NodePtr NodeTable::look_up_child(const NodePtr& parent, std::string_view name) {
  bool log_is_long = false;
  // forget() takes the exclusive lock, so a node seen here cannot leave before it is counted.
  NodePtr node = state_.read([&](const State& state) -> NodePtr {
    const auto found = parent->children.find(name);
    if (found == parent->children.end()) return nullptr;
    NodePtr known = at(state, found->second);
    if (!known) return known;
    known->lookups.fetch_add(1, std::memory_order_relaxed);
    {
      NodeJournal::Batch batch(journal_);
      batch.count(known->id, 1);
    }
    log_is_long = journal_.wants_snapshot(state.nodes.size());
    return known;
  });
  // The kernel asks for a name that it knows at each mkdir(2) of it, and may not forget it for as long as the mount
  // lives.
  if (log_is_long) change([](State&, NodeJournal::Batch&) {});
  return node;
}

std::optional<std::string> NodeTable::path_of(const Node& node) const {
  return state_.read([&](const State& state) -> std::optional<std::string> {
    std::vector<const std::string*> components;
    const Node* current = &node;
    NodePtr keep;
    while (current->id != kRootNode) {
      if (current->names.empty()) return std::nullopt;
      components.push_back(&current->names.front().second);
      keep = at(state, current->names.front().first);
      if (!keep) return std::nullopt;
      current = keep.get();
    }
    std::string path;
    for (auto it = components.rbegin(); it != components.rend(); ++it) {
      if (!path.empty()) path += '/';
      path += **it;
    }
    return path;
  });
}

std::optional<std::string> NodeTable::path_of(const Node& parent, std::string_view name) const {
  auto path = path_of(parent);
  if (!path) return std::nullopt;
  if (!path->empty()) *path += '/';
  path->append(name);
  return path;
}

std::vector<std::pair<NodeId, std::string>> NodeTable::names_of(const NodePtr& node) const {
  return state_.read([&](const State&) { return node->names; });
}

size_t NodeTable::links_of(const NodePtr& node) const {
  return state_.read([&](const State&) { return node->names.size(); });
}

NodePtr NodeTable::add(const NodePtr& parent, std::string_view name, NodePtr node, uint64_t references,
                       const std::optional<LocalFile>& file) {
  return change([&](State& state, NodeJournal::Batch& batch) {
    const auto found = parent->children.find(name);
    if (found != parent->children.end()) {
      if (NodePtr known = at(state, found->second)) {
        known->lookups.fetch_add(references, std::memory_order_relaxed);
        batch.count(known->id, references);
        return known;
      }
      parent->children.erase(found);
    }
    if (file && file->has_more_names) {
      const auto local = state.local.find(file->inode_number);
      const NodePtr same = local == state.local.end() ? nullptr : local->second.lock();
      if (same && at(state, same->id)) node = same;
    }
    enter(state, batch, node);
    if (file) {
      state.local[file->inode_number] = node;
      node->local_inode = file->inode_number;
      batch.local_inode(node->id, file->inode_number);
    }
    node->names.emplace_back(parent->id, std::string(name));
    parent->children.emplace(std::string(name), node->id);
    node->lookups.fetch_add(references, std::memory_order_relaxed);
    batch.name(parent->id, name, node->id);
    batch.count(node->id, references);
    return node;
  });
}

NodePtr NodeTable::add_unnamed(NodePtr node, uint64_t references, std::optional<uint64_t> inode_number) {
  return change([&](State& state, NodeJournal::Batch& batch) {
    if (const auto local = inode_number ? state.local.find(*inode_number) : state.local.end();
        local != state.local.end()) {
      const NodePtr same = local->second.lock();
      if (same && at(state, same->id)) node = same;
    }
    enter(state, batch, node);
    if (inode_number) {
      state.local[*inode_number] = node;
      node->local_inode = *inode_number;
      batch.local_inode(node->id, *inode_number);
    }
    node->lookups.fetch_add(references, std::memory_order_relaxed);
    batch.count(node->id, references);
    return node;
  });
}

bool NodeTable::count_known(const NodePtr& node) {
  return change([&](State& state, NodeJournal::Batch& batch) {
    if (at(state, node->id) != node) return false;
    node->lookups.fetch_add(1, std::memory_order_relaxed);
    batch.count(node->id, 1);
    return true;
  });
}

NodePtr NodeTable::detach(const NodePtr& parent, std::string_view name, const NodePtr& only) {
  return change([&](State& state, NodeJournal::Batch& batch) -> NodePtr {
    const auto found = parent->children.find(name);
    if (found == parent->children.end() || (only && found->second != only->id)) return nullptr;
    NodePtr node = at(state, found->second);
    parent->children.erase(found);
    if (node) erase_name(*node, parent->id, name);
    batch.no_name(parent->id, name);
    return node;
  });
}

NodePtr NodeTable::move(const NodePtr& parent, std::string_view name, const NodePtr& new_parent,
                        std::string_view new_name) {
  return change([&](State& state, NodeJournal::Batch& batch) -> NodePtr {
    NodePtr replaced;
    batch.no_name(parent->id, name);
    batch.no_name(new_parent->id, new_name);
    if (const auto target = new_parent->children.find(new_name); target != new_parent->children.end()) {
      replaced = at(state, target->second);
      new_parent->children.erase(target);
      if (replaced) erase_name(*replaced, new_parent->id, new_name);
    }
    const auto source = parent->children.find(name);
    if (source != parent->children.end()) {
      const NodePtr node = at(state, source->second);
      parent->children.erase(source);
      if (node) {
        erase_name(*node, parent->id, name);
        node->names.emplace_back(new_parent->id, std::string(new_name));
        new_parent->children.emplace(std::string(new_name), node->id);
        batch.name(new_parent->id, new_name, node->id);
      }
    }
    return replaced;
  });
}

void NodeTable::exchange(const NodePtr& a_parent, std::string_view a, const NodePtr& b_parent, std::string_view b) {
  change([&](State& state, NodeJournal::Batch& batch) {
    const auto take = [&](const NodePtr& parent, std::string_view name) -> NodePtr {
      const auto found = parent->children.find(name);
      if (found == parent->children.end()) return nullptr;
      NodePtr node = at(state, found->second);
      parent->children.erase(found);
      batch.no_name(parent->id, name);
      if (node) erase_name(*node, parent->id, name);
      return node;
    };
    const auto put = [&](const NodePtr& parent, std::string_view name, const NodePtr& node) {
      if (!node) return;
      batch.name(parent->id, name, node->id);
      node->names.emplace_back(parent->id, std::string(name));
      parent->children.emplace(std::string(name), node->id);
    };
    const NodePtr first = take(a_parent, a);
    const NodePtr second = take(b_parent, b);
    put(b_parent, b, first);
    put(a_parent, a, second);
  });
}

void NodeTable::let_go(State& state, NodeJournal::Batch& batch, const NodePtr& node, std::vector<NodePtr>& gone) {
  if (node->id == kRootNode || node->lookups.load() != 0 || node->pins.load() != 0 || !node->children.empty()) return;
  if (state.nodes.erase(raw(node->id)) == 0) return;
  gone.push_back(node);
  batch.gone(node->id);
  // A copy has another inode than the file whose place it took.
  for (const uint64_t inode_number : {node->inode_number, node->local_inode}) {
    const auto local = state.local.find(inode_number);
    if (local == state.local.end()) continue;
    if (const NodePtr known = local->second.lock(); !known || known == node) state.local.erase(local);
  }
  for (const auto& [parent_id, name] : node->names) {
    const NodePtr parent = at(state, parent_id);
    if (!parent) continue;
    parent->children.erase(name);
    batch.no_name(parent_id, name);
    let_go(state, batch, parent, gone);
  }
}

std::vector<NodePtr> NodeTable::forget(NodeId id, uint64_t count) {
  return change([&](State& state, NodeJournal::Batch& batch) {
    std::vector<NodePtr> gone;
    const NodePtr node = at(state, id);
    if (!node || id == kRootNode) return gone;
    const uint64_t held = node->lookups.load();
    node->lookups.store(held > count ? held - count : 0);
    batch.forget(id, count);
    let_go(state, batch, node, gone);
    return gone;
  });
}

std::vector<NodePtr> NodeTable::release(const NodePtr& node) {
  return change([&](State& state, NodeJournal::Batch& batch) {
    std::vector<NodePtr> gone;
    let_go(state, batch, node, gone);
    return gone;
  });
}

NodeId NodeTable::next_id() {
  return state_.write([this](State& state) {
    journal_.set_last_id(++state.last_id);
    return NodeId{state.last_id};
  });
}

size_t NodeTable::size() const {
  return state_.read([](const State& state) { return state.nodes.size(); });
}

NodeTable::Walk NodeTable::walk(std::string_view path) const {
  return state_.read([&](const State& state) {
    Walk result{root_, {}, nullptr, {}};
    while (!path.empty()) {
      const size_t slash = path.find('/');
      const std::string_view component = path.substr(0, slash);
      const auto found = result.node->children.find(component);
      NodePtr next = found == result.node->children.end() ? nullptr : at(state, found->second);
      if (!next) {
        result.missing = std::string(component);
        return result;
      }
      result.parent = result.node;
      result.name = std::string(component);
      result.node = std::move(next);
      path = slash == std::string_view::npos ? std::string_view{} : path.substr(slash + 1);
    }
    return result;
  });
}

NodePtr NodeTable::find(std::string_view path) const {
  auto walked = walk(path);
  return walked.missing.empty() ? std::move(walked.node) : nullptr;
}

std::vector<std::pair<std::string, NodePtr>> NodeTable::children(const NodePtr& parent) const {
  return state_.read([&](const State& state) {
    std::vector<std::pair<std::string, NodePtr>> result;
    result.reserve(parent->children.size());
    for (const auto& [name, id] : parent->children) {
      if (NodePtr node = at(state, id)) result.emplace_back(name, std::move(node));
    }
    return result;
  });
}

NodePtr NodeTable::find_local(uint64_t inode_number) const {
  return state_.read([&](const State& state) -> NodePtr {
    const auto found = state.local.find(inode_number);
    return found == state.local.end() ? nullptr : found->second.lock();
  });
}

void NodeTable::remember_local(uint64_t inode_number, const NodePtr& node) {
  change([&](State& state, NodeJournal::Batch& batch) {
    state.local[inode_number] = node;
    node->local_inode = inode_number;
    if (!at(state, node->id)) return;  // goes into the journal with the node
    batch.local_inode(node->id, inode_number);
  });
}

void NodeTable::set_shown(const NodePtr& directory, std::vector<std::string> names) {
  state_.write([&](State&) { directory->shown = std::move(names); });
}

std::vector<std::string> NodeTable::shown(const NodePtr& directory) const {
  return state_.read([&](const State&) { return directory->shown; });
}

}  // namespace inductorfs::vfs
