// SPDX-License-Identifier: Apache-2.0
#include "fake_file_system.h"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <stdexcept>

namespace inductorfs::testing {
namespace {

using vfs::Found;
using vfs::NodeId;

constexpr std::chrono::seconds kPatience{20};

auto patience() { return std::chrono::steady_clock::now() + kPatience; }
uint64_t number(NodeId node) { return static_cast<uint64_t>(node); }

vfs::Timestamp now() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return {time.tv_sec, time.tv_nsec};
}

}  // namespace

FakeFileSystem::FakeFileSystem() {
  state_.with([](State& state) {
    Node& root = state.nodes[1];
    root.attributes.inode_number = 1;
    root.attributes.mode = S_IFDIR | 0777;
    root.attributes.links = 2;
    touch(root);
  });
}

void FakeFileSystem::touch(Node& node) {
  node.attributes.modified = node.attributes.changed = now();
  if (S_ISREG(node.attributes.mode)) node.attributes.size = node.bytes.size();
  node.attributes.blocks = (node.attributes.size + 511) / 512;
}

FakeFileSystem::Node* FakeFileSystem::node_at(State& state, NodeId node) {
  const auto at = state.nodes.find(number(node));
  return at == state.nodes.end() ? nullptr : &at->second;
}

std::pair<std::string, uint64_t>* FakeFileSystem::item_at(Node& directory, std::string_view name) {
  for (auto& item : directory.items) {
    if (item.second != 0 && item.first == name) return &item;
  }
  return nullptr;
}

Found FakeFileSystem::found(State& state, uint64_t id) {
  Node& node = state.nodes.at(id);
  ++node.references;
  return {NodeId{id}, node.attributes, true};
}

vfs::LookupAnswer FakeFileSystem::look(State& state, uint64_t parent, std::string_view name) {
  const auto* item = item_at(state.nodes.at(parent), name);
  if (item == nullptr) return {fail(ErrorCode::kNotFound), state.keep_absences};
  return {found(state, item->second), false};
}

Result<Found> FakeFileSystem::add(State& state, NodeId parent, std::string_view name, mode_t mode,
                                  const vfs::Caller& caller) {
  Node* directory = node_at(state, parent);
  if (directory == nullptr) return fail(ErrorCode::kNotFound);
  if (item_at(*directory, name) != nullptr) return fail(ErrorCode::kExists);
  state.caller = caller;
  const uint64_t id = state.next++;
  directory->items.emplace_back(std::string(name), id);
  touch(*directory);
  Node& node = state.nodes[id];
  node.parent = number(parent);
  node.attributes.inode_number = 1000 + id;
  node.attributes.mode = mode;
  node.attributes.links = S_ISDIR(mode) ? 2 : 1;
  node.attributes.uid = caller.uid;
  node.attributes.gid = caller.gid;
  node.attributes.accessed = now();
  touch(node);
  return found(state, id);
}

// ---- for tests

NodeId FakeFileSystem::add_file(const std::string& name, const std::string& bytes) {
  return state_.with([&](State& state) {
    const auto made = add(state, vfs::kRootNode, name, S_IFREG | 0644, {});
    if (!made) throw std::logic_error("add_file " + name);
    Node& node = state.nodes.at(number(made->node));
    node.references = 0;
    node.bytes = bytes;
    touch(node);
    return made->node;
  });
}

void FakeFileSystem::set_bytes(NodeId node, const std::string& bytes) {
  state_.with([&](State& state) {
    state.nodes.at(number(node)).bytes = bytes;
    touch(state.nodes.at(number(node)));
  });
}

std::string FakeFileSystem::bytes_of(NodeId node) const {
  return state_.with([&](State& state) { return state.nodes.at(number(node)).bytes; });
}

mode_t FakeFileSystem::mode_of(NodeId node) const {
  return state_.with([&](State& state) { return state.nodes.at(number(node)).attributes.mode; });
}

void FakeFileSystem::set_mode(NodeId node, mode_t mode) {
  state_.with([&](State& state) { state.nodes.at(number(node)).attributes.mode = mode; });
}

NodeId FakeFileSystem::node_of(const std::string& name) const {
  return state_.with([&](State& state) {
    const auto* item = item_at(state.nodes.at(1), name);
    return NodeId{item == nullptr ? 0 : item->second};
  });
}

uint64_t FakeFileSystem::references(NodeId node) const {
  return state_.with([&](State& state) { return state.nodes.at(number(node)).references; });
}

void FakeFileSystem::forbid_kept_absences() {
  state_.with([](State& state) { state.keep_absences = false; });
}
void FakeFileSystem::block_lookup(const std::string& name) {
  state_.with([&](State& state) { state.waits[name] = Wait::kBlock; });
}
void FakeFileSystem::defer_lookup(const std::string& name) {
  state_.with([&](State& state) { state.waits[name] = Wait::kDefer; });
}
void FakeFileSystem::drop_lookup(const std::string& name) {
  state_.with([&](State& state) { state.waits[name] = Wait::kDrop; });
}
void FakeFileSystem::throw_at(const std::string& name) {
  state_.with([&](State& state) { state.waits[name] = Wait::kThrow; });
}

void FakeFileSystem::release(const std::string& name) {
  auto deferred = state_.notify_with([&](State& state) {
    state.waits.erase(name);
    return std::exchange(state.deferred[name], {});
  });
  for (const auto& answer : deferred) answer();
}

size_t FakeFileSystem::waiting(const std::string& name) const {
  return state_.with([&](State& state) { return state.waiting[name]; });
}

bool FakeFileSystem::wait_until_waiting(const std::string& name, size_t count) {
  const auto enough = [&](State& state) { return state.waiting[name] >= count; };
  return state_.wait_until(patience(), enough, enough);
}

vfs::Caller FakeFileSystem::last_caller() const {
  return state_.with([](State& state) { return state.caller; });
}

// ---- names

void FakeFileSystem::lookup(NodeId parent, std::string_view name, const vfs::Caller& caller, vfs::LookupDone done) {
  const std::string kept(name);
  const auto wait = state_.notify_with([&](State& state) -> std::optional<Wait> {
    state.caller = caller;
    const auto at = state.waits.find(kept);
    if (at == state.waits.end()) return std::nullopt;
    if (at->second == Wait::kThrow) throw std::runtime_error("as the test wished");
    ++state.waiting[kept];
    if (at->second == Wait::kDefer) {
      state.deferred[kept].emplace_back([this, parent, kept, done] {
        done(state_.notify_with([&](State& later) {
          --later.waiting[kept];
          return look(later, number(parent), kept);
        }));
      });
    }
    return at->second;
  });
  if (wait && *wait != Wait::kBlock) return;
  const auto released = [&](State& state) { return !wait || state.waits.find(kept) == state.waits.end(); };
  done(state_.wait_until(patience(), released, [&](State& state) {
    if (wait) --state.waiting[kept];
    return look(state, number(parent), kept);
  }));
}

void FakeFileSystem::forget(NodeId node, uint64_t count) {
  state_.with([&](State& state) {
    if (Node* known = node_at(state, node)) known->references -= std::min(known->references, count);
  });
}

Result<Found> FakeFileSystem::create(NodeId parent, std::string_view name, mode_t mode, const vfs::Caller& caller) {
  return state_.with([&](State& state) { return add(state, parent, name, S_IFREG | (mode & 07777), caller); });
}

Result<Found> FakeFileSystem::make_node(NodeId parent, std::string_view name, mode_t mode, dev_t device,
                                        const vfs::Caller& caller) {
  return state_.with([&](State& state) {
    auto made = add(state, parent, name, mode, caller);
    if (made) state.nodes.at(number(made->node)).attributes.device = made->attributes.device = device;
    return made;
  });
}

Result<Found> FakeFileSystem::make_directory(NodeId parent, std::string_view name, mode_t mode,
                                             const vfs::Caller& caller) {
  return state_.with([&](State& state) { return add(state, parent, name, S_IFDIR | (mode & 07777), caller); });
}

Result<Found> FakeFileSystem::make_symlink(NodeId parent, std::string_view name, const std::string& target,
                                           const vfs::Caller& caller) {
  return state_.with([&](State& state) {
    auto made = add(state, parent, name, S_IFLNK | 0777, caller);
    if (!made) return made;
    Node& node = state.nodes.at(number(made->node));
    node.bytes = target;
    node.attributes.size = target.size();
    made->attributes = node.attributes;
    return made;
  });
}

Result<Found> FakeFileSystem::link(NodeId node, NodeId new_parent, std::string_view new_name, const vfs::Caller&) {
  return state_.with([&](State& state) -> Result<Found> {
    Node* known = node_at(state, node);
    Node* directory = node_at(state, new_parent);
    if (known == nullptr || directory == nullptr) return fail(ErrorCode::kNotFound);
    if (item_at(*directory, new_name) != nullptr) return fail(ErrorCode::kExists);
    directory->items.emplace_back(std::string(new_name), number(node));
    ++known->attributes.links;
    touch(*directory);
    return found(state, number(node));
  });
}

Result<void> FakeFileSystem::unlink(NodeId parent, std::string_view name, const vfs::Caller&) {
  return state_.with([&](State& state) -> Result<void> {
    Node& directory = state.nodes.at(number(parent));
    auto* item = item_at(directory, name);
    if (item == nullptr) return fail(ErrorCode::kNotFound);
    Node& node = state.nodes.at(item->second);
    if (S_ISDIR(node.attributes.mode)) return fail(ErrorCode::kIsDirectory);
    --node.attributes.links;
    item->second = 0;
    touch(directory);
    return {};
  });
}

Result<void> FakeFileSystem::remove_directory(NodeId parent, std::string_view name, const vfs::Caller&) {
  return state_.with([&](State& state) -> Result<void> {
    Node& directory = state.nodes.at(number(parent));
    auto* item = item_at(directory, name);
    if (item == nullptr) return fail(ErrorCode::kNotFound);
    const Node& node = state.nodes.at(item->second);
    if (!S_ISDIR(node.attributes.mode)) return fail(ErrorCode::kNotDirectory);
    for (const auto& child : node.items) {
      if (child.second != 0) return fail(ErrorCode::kNotEmpty);
    }
    item->second = 0;
    touch(directory);
    return {};
  });
}

Result<void> FakeFileSystem::rename(NodeId parent, std::string_view name, NodeId new_parent, std::string_view new_name,
                                    vfs::RenameMode mode, const vfs::Caller&) {
  return state_.with([&](State& state) -> Result<void> {
    Node& from = state.nodes.at(number(parent));
    Node& to = state.nodes.at(number(new_parent));
    auto* old_item = item_at(from, name);
    auto* new_item = item_at(to, new_name);
    if (old_item == nullptr) return fail(ErrorCode::kNotFound);
    if (mode == vfs::RenameMode::kNoReplace && new_item != nullptr) return fail(ErrorCode::kExists);
    if (mode == vfs::RenameMode::kExchange) {
      if (new_item == nullptr) return fail(ErrorCode::kNotFound);
      std::swap(old_item->second, new_item->second);
    } else {
      const uint64_t moved = std::exchange(old_item->second, 0);
      if (new_item != nullptr) {
        --state.nodes.at(new_item->second).attributes.links;
        new_item->second = moved;
      } else {
        to.items.emplace_back(std::string(new_name), moved);
      }
      state.nodes.at(moved).parent = number(new_parent);
    }
    touch(from);
    touch(to);
    return {};
  });
}

Result<std::string> FakeFileSystem::read_link(NodeId node, const vfs::Caller& /*caller*/) { return bytes_of(node); }

Result<void> FakeFileSystem::read_directory(NodeId directory, uint64_t cookie, const vfs::Caller&,
                                            const std::function<bool(const vfs::DirectoryItem&)>& take) {
  return state_.with([&](State& state) -> Result<void> {
    const Node& node = state.nodes.at(number(directory));
    if (cookie < 1 && !take({".", node.attributes.inode_number, S_IFDIR, 1})) return {};
    if (cookie < 2 && !take({"..", state.nodes.at(node.parent).attributes.inode_number, S_IFDIR, 2})) return {};
    for (uint64_t at = cookie < 2 ? 0 : cookie - 2; at < node.items.size(); ++at) {
      const auto& [name, id] = node.items[at];
      if (id == 0) continue;
      const vfs::Attributes& attributes = state.nodes.at(id).attributes;
      if (!take({name, attributes.inode_number, attributes.mode & S_IFMT, at + 3})) return {};
    }
    return {};
  });
}

// ---- attributes

Result<vfs::Attributes> FakeFileSystem::get_attributes(NodeId node) {
  return state_.with([&](State& state) -> Result<vfs::Attributes> {
    const Node* known = node_at(state, node);
    if (known == nullptr) return fail(ErrorCode::kNotFound);
    return known->attributes;
  });
}

Result<vfs::Attributes> FakeFileSystem::set_attributes(NodeId node, const vfs::AttributeChange& change,
                                                       const vfs::Caller&) {
  return state_.with([&](State& state) -> Result<vfs::Attributes> {
    Node* known = node_at(state, node);
    if (known == nullptr) return fail(ErrorCode::kNotFound);
    vfs::Attributes& attributes = known->attributes;
    if (change.size) {
      known->bytes.resize(*change.size);
      touch(*known);
    }
    if (change.mode) attributes.mode = (attributes.mode & S_IFMT) | (*change.mode & 07777);
    attributes.uid = change.uid.value_or(attributes.uid);
    attributes.gid = change.gid.value_or(attributes.gid);
    attributes.accessed = change.accessed_now ? now() : change.accessed.value_or(attributes.accessed);
    attributes.modified = change.modified_now ? now() : change.modified.value_or(attributes.modified);
    attributes.changed = now();
    return attributes;
  });
}

Result<std::string> FakeFileSystem::get_xattr(NodeId node, const std::string& name) {
  return state_.with([&](State& state) -> Result<std::string> {
    const auto& xattrs = state.nodes.at(number(node)).xattrs;
    const auto at = xattrs.find(name);
    if (at == xattrs.end()) return fail(ErrorCode::kNoData);
    return at->second;
  });
}

Result<std::vector<std::string>> FakeFileSystem::list_xattrs(NodeId node) {
  return state_.with([&](State& state) -> Result<std::vector<std::string>> {
    std::vector<std::string> names;
    for (const auto& [name, value] : state.nodes.at(number(node)).xattrs) names.push_back(name);
    return names;
  });
}

Result<void> FakeFileSystem::set_xattr(NodeId node, const std::string& name, std::string_view value, int flags) {
  return state_.with([&](State& state) -> Result<void> {
    auto& xattrs = state.nodes.at(number(node)).xattrs;
    const bool there = xattrs.contains(name);
    if ((flags & XATTR_CREATE) != 0 && there) return fail(ErrorCode::kExists);
    if ((flags & XATTR_REPLACE) != 0 && !there) return fail(ErrorCode::kNoData);
    xattrs[name] = std::string(value);
    return {};
  });
}

Result<void> FakeFileSystem::remove_xattr(NodeId node, const std::string& name) {
  return state_.with([&](State& state) -> Result<void> {
    if (state.nodes.at(number(node)).xattrs.erase(name) == 0) return fail(ErrorCode::kNoData);
    return {};
  });
}

Result<struct statvfs> FakeFileSystem::statistics() {
  struct statvfs out {};
  out.f_bsize = out.f_frsize = 4096;
  out.f_blocks = 1000;
  out.f_bfree = out.f_bavail = 500;
  out.f_namemax = 255;
  return out;
}

// ---- data

Result<size_t> FakeFileSystem::read(NodeId node, char* out, size_t size, uint64_t offset) {
  return state_.with([&](State& state) -> Result<size_t> {
    const std::string& bytes = state.nodes.at(number(node)).bytes;
    if (offset >= bytes.size()) return 0;
    return bytes.copy(out, size, offset);
  });
}

Result<void> FakeFileSystem::write(NodeId node, std::string_view bytes, uint64_t offset, const vfs::Caller& caller) {
  return state_.with([&](State& state) -> Result<void> {
    state.caller = caller;
    Node& known = state.nodes.at(number(node));
    if (known.bytes.size() < offset + bytes.size()) known.bytes.resize(offset + bytes.size());
    known.bytes.replace(offset, bytes.size(), bytes);
    touch(known);
    return {};
  });
}

Result<void> FakeFileSystem::allocate(NodeId node, int mode, uint64_t offset, uint64_t length, const vfs::Caller&) {
  if (mode != 0) return fail(ErrorCode::kNotSupported);
  return state_.with([&](State& state) -> Result<void> {
    Node& known = state.nodes.at(number(node));
    if (known.bytes.size() < offset + length) known.bytes.resize(offset + length);
    touch(known);
    return {};
  });
}

Result<size_t> FakeFileSystem::copy_range(NodeId from, uint64_t from_offset, NodeId to, uint64_t to_offset,
                                          size_t length, const vfs::Caller& caller) {
  const std::string source = bytes_of(from);
  if (from_offset >= source.size()) return 0;
  const std::string part = source.substr(from_offset, length);
  if (auto written = write(to, part, to_offset, caller); !written) return fail(written.error());
  return part.size();
}

Result<void> FakeFileSystem::sync_file(NodeId, bool) { return {}; }

}  // namespace inductorfs::testing
