// SPDX-License-Identifier: Apache-2.0
#include "vfs/nodes/node_journal.h"

#include <algorithm>

#include "inductorfs/base/encoding.h"

namespace inductorfs::vfs {
namespace {

/// The first byte of a record.
enum class Kind : uint8_t {
  kNode = 1,
  kName,
  kNoName,
  kCount,
  kForget,
  kGone,
  kLocalInode,
  kShared,
  kLocal,
  kVirtual,
  kClusterSet = 12,  // 11 was one of names alone
  kGroup,
};

/// What a node of ordinary names takes in the log, for the decision on a snapshot.
constexpr size_t kBytesPerNode = 256;

uint64_t raw(NodeId id) { return static_cast<uint64_t>(id); }

std::string begin(Kind kind, NodeId id) {
  std::string record(1, static_cast<char>(kind));
  append_integer(record, raw(id));
  return record;
}

std::string text_of(std::string_view bytes) { return std::string(bytes); }

void read_shared(ByteReader& reader, LeftNode& node) {
  const auto path = reader.bytes(reader.integer<uint16_t>());
  auto entry = codec::decode_entry(path, reader.bytes(reader.left()));
  if (!entry) return;  // the node stays what it was: its bytes are then asked for by its path
  node.backing = Backing::kShared;
  node.entry = std::move(*entry);
}

void read_group(ByteReader& reader, LeftNode& node) {
  node.group_directory = text_of(reader.bytes(reader.integer<uint16_t>()));
  node.group_text = text_of(reader.bytes(reader.integer<uint32_t>()));
  read_shared(reader, node);
}

void read_cluster_set(ByteReader& reader, LeftNode& node) {
  node.cluster_set.clear();
  while (!reader.failed() && reader.left() > 0) {
    const std::string name = text_of(reader.bytes(reader.integer<uint16_t>()));
    catalog::KnownEntry known;
    known.scope = text_of(reader.bytes(reader.integer<uint16_t>()));
    const auto path = reader.bytes(reader.integer<uint16_t>());
    auto entry = codec::decode_entry(path, reader.bytes(reader.integer<uint32_t>()));
    if (!entry) return node.cluster_set.clear();  // half of one is none: it is taken from the cluster again
    known.entry = std::move(*entry);
    node.cluster_set.emplace(name, std::move(known));
  }
}

void read_change(Kind kind, ByteReader& reader, LeftNode& node) {
  switch (kind) {
    case Kind::kCount:
      node.lookups += reader.integer<uint64_t>();
      break;
    case Kind::kForget:
      node.lookups -= std::min(node.lookups, reader.integer<uint64_t>());
      break;
    case Kind::kLocalInode:
      node.local_inode = reader.integer<uint64_t>();
      break;
    case Kind::kShared:
      read_shared(reader, node);
      break;
    case Kind::kLocal:
      node.backing = Backing::kLocal;
      node.elsewhere = text_of(reader.bytes(reader.left()));
      break;
    case Kind::kVirtual:
      node.backing = Backing::kVirtual;
      break;
    case Kind::kGroup:
      read_group(reader, node);
      break;
    case Kind::kClusterSet:
      read_cluster_set(reader, node);
      break;
    case Kind::kNode:
    case Kind::kName:
    case Kind::kNoName:
    case Kind::kGone:
      break;
  }
}

void read_record(std::string_view record, LeftNodes& all) {
  ByteReader reader(record);
  const auto kind = static_cast<Kind>(reader.integer<uint8_t>());
  const auto id = reader.integer<uint64_t>();
  if (kind == Kind::kName) {
    const auto parent = reader.integer<uint64_t>();
    all.names[{parent, text_of(reader.bytes(reader.left()))}] = id;
  } else if (kind == Kind::kNoName) {
    all.names.erase({id, text_of(reader.bytes(reader.left()))});
  } else if (kind == Kind::kNode) {
    LeftNode& node = all.nodes[id];
    node.id = id;
    node.type = static_cast<mode_t>(reader.integer<uint32_t>());
    node.inode_number = reader.integer<uint64_t>();
  } else if (kind == Kind::kGone) {
    all.nodes.erase(id);
  } else if (const auto node = all.nodes.find(id); node != all.nodes.end()) {
    read_change(kind, reader, node->second);
  }
}

}  // namespace

NodeJournal::Batch::~Batch() {
  if (!records_.empty()) journal_.append(records_);
}

void NodeJournal::Batch::node(const Node& node) {
  if (!journal_.kept()) return;
  std::string record = begin(Kind::kNode, node.id);
  append_integer(record, static_cast<uint32_t>(node.type));
  append_integer(record, node.inode_number);
  raw(std::move(record));
  if (!node.content_record.empty()) raw(node.content_record);
  if (!node.key_record.empty()) raw(node.key_record);
  if (node.local_inode != 0) local_inode(node.id, node.local_inode);
}

void NodeJournal::Batch::name(NodeId parent, std::string_view name, NodeId node) {
  if (!journal_.kept()) return;
  std::string record = begin(Kind::kName, node);
  append_integer(record, vfs::raw(parent));
  record.append(name);
  raw(std::move(record));
}

void NodeJournal::Batch::no_name(NodeId parent, std::string_view name) {
  if (!journal_.kept()) return;
  raw(begin(Kind::kNoName, parent).append(name));
}

void NodeJournal::Batch::count(NodeId node, uint64_t references) {
  if (!journal_.kept() || references == 0) return;
  std::string record = begin(Kind::kCount, node);
  append_integer(record, references);
  raw(std::move(record));
}

void NodeJournal::Batch::forget(NodeId node, uint64_t references) {
  if (!journal_.kept()) return;
  std::string record = begin(Kind::kForget, node);
  append_integer(record, references);
  raw(std::move(record));
}

void NodeJournal::Batch::gone(NodeId node) {
  if (journal_.kept()) raw(begin(Kind::kGone, node));
}

void NodeJournal::Batch::local_inode(NodeId node, uint64_t number) {
  if (!journal_.kept()) return;
  std::string record = begin(Kind::kLocalInode, node);
  append_integer(record, number);
  raw(std::move(record));
}

void NodeJournal::Batch::raw(std::string record) {
  if (journal_.kept()) records_.push_back(std::move(record));
}

NodeJournal::NodeJournal(const takeover::Region* region)
    : log_(region == nullptr ? nullptr : std::make_unique<takeover::NodeLog>(*region)) {}

void NodeJournal::set_last_id(uint64_t id) {
  if (log_) log_->set_last_id(id);
}

bool NodeJournal::wants_snapshot(size_t nodes) const { return log_ && log_->wants_snapshot(nodes * kBytesPerNode); }

void NodeJournal::append(const std::vector<std::string>& records) {
  const std::vector<std::string_view> views(records.begin(), records.end());
  log_->append(views);
}

void NodeJournal::snapshot(const std::vector<NodePtr>& nodes) {
  if (!log_) return;
  log_->snapshot([&](const std::function<void(std::string_view)>& add) {
    for (const NodePtr& node : nodes) {
      Batch batch(*this);
      batch.node(*node);
      batch.count(node->id, node->lookups.load());
      for (const auto& [parent, name] : node->names) batch.name(parent, name, node->id);
      for (const auto& record : batch.take()) add(record);
    }
  });
}

LeftNodes NodeJournal::read() const {
  LeftNodes all;
  if (!log_) return all;
  log_->read([&](std::string_view record) { read_record(record, all); });
  all.last_id = log_->last_id();
  // A name of what has gone: its record may lie before the one that says so.
  std::erase_if(all.names, [&](const auto& item) { return !all.nodes.contains(item.second); });
  return all;
}

std::string NodeJournal::shared(NodeId node, const codec::Entry& entry) {
  std::string record = begin(Kind::kShared, node);
  append_integer(record, static_cast<uint16_t>(entry.path.size()));
  return record.append(entry.path).append(codec::encode_entry(entry));
}

std::string NodeJournal::group(NodeId node, const codec::Entry& entry, std::string_view directory,
                               std::string_view text) {
  std::string record = begin(Kind::kGroup, node);
  append_integer(record, static_cast<uint16_t>(directory.size()));
  record.append(directory);
  append_integer(record, static_cast<uint32_t>(text.size()));
  record.append(text);
  append_integer(record, static_cast<uint16_t>(entry.path.size()));
  return record.append(entry.path).append(codec::encode_entry(entry));
}

std::string NodeJournal::local(NodeId node, std::string_view elsewhere) {
  return begin(Kind::kLocal, node).append(elsewhere);
}

std::string NodeJournal::virtual_directory(NodeId node) { return begin(Kind::kVirtual, node); }

std::string NodeJournal::cluster_set(NodeId node, const std::map<std::string, catalog::KnownEntry>& set) {
  std::string record = begin(Kind::kClusterSet, node);
  for (const auto& [name, known] : set) {
    for (const std::string* text : {&name, &known.scope, &known.entry.path}) {
      append_integer(record, static_cast<uint16_t>(text->size()));
      record.append(*text);
    }
    const std::string entry = codec::encode_entry(known.entry);
    append_integer(record, static_cast<uint32_t>(entry.size()));
    record.append(entry);
  }
  return record;
}

}  // namespace inductorfs::vfs
