// SPDX-License-Identifier: Apache-2.0
#include "vfs/model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

namespace inductorfs::testing {
namespace {

constexpr size_t kLogged = 2000;
constexpr uint64_t kAllReferences = 1'000'000'000;
constexpr int kVerifyAllEvery = 40;
constexpr size_t kUniqueBytes = 12;  ///< of new_bytes()

std::string parent_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

vfs::Caller caller() { return {::getuid(), ::getgid(), own_pid()}; }

std::shared_ptr<ModelFile> make_file(std::string bytes, mode_t mode) {
  return std::make_shared<ModelFile>(ModelFile{std::move(bytes), mode});
}

}  // namespace

ModelRun::ModelRun(uint32_t seed, size_t hosts, Writers writers) : seed_(seed), writers_(writers), random_(seed) {
  HostOptions options;
  if (writers != Writers::kEveryone) options.writers = std::make_shared<FakeWriters>();
  if (writers == Writers::kAnother) options.writers->set_others(fingerprint::Match::kDiffers);
  for (size_t i = 0; i < hosts; ++i) {
    hosts_.emplace_back();
    hosts_.back().host = std::make_unique<Host>(cluster_, options);
  }
  directories_ = {"p", "p/q", "p/q/r", "s"};
  files_ = {"e", "p/a", "p/b", "p/q/c", "p/q/r/d", "s/f", "s/x.lock"};
  for (const char* stem : {"one", "two"}) {
    const std::string path = in_code_directory(code_name(stem));
    for (const char* suffix : {".py", ".main.cpp"}) {
      files_.push_back(path + suffix);
      shared_.insert(path + suffix);
    }
    directories_.push_back(parent_path(path));
  }
  const std::string quiet = directories_.back() + "/" + std::string(64, 'b') + ".best_config";
  files_.push_back(quiet);
  shared_.insert(quiet);
}

bool ModelRun::run(int steps) {
  for (const int end = step_ + steps; step_ < end && !failed_; ++step_) {
    at_ = &hosts_[pick(hosts_.size())];
    step();
    if (!failed_ && step_ % kVerifyAllEvery == 0) {
      for (auto& host : hosts_) {
        at_ = &host;
        if (!verify_all()) break;
      }
    }
  }
  return !failed_;
}

void ModelRun::step() {
  const std::string& path = pick_file();
  switch (pick(20)) {
    case 0:
    case 1:
    case 2:
      return write_new(path);
    case 3:
      return create_in_place(path);
    case 4:
    case 5:
      return change_bytes(path);
    case 6:
      return change_mode(path);
    case 7:
    case 8:
      return rename(path, pick_file());
    case 9:
      return exchange(path, pick_file());
    case 10:
      return rename_directory();
    case 11:
      return link(path, pick_file());
    case 12:
      return make_symlink(path);
    case 13:
      return unlink(path);
    case 14:
      return make_directory();
    case 15:
      return remove_directory();
    case 16:
      return open_handle(path);
    case 17:
      return use_handle();
    case 18:
      return forget(path);
    default:
      switch (pick(12)) {
        case 0:
          return restart();
        case 1:
        case 2:
        case 3:
          return take_over();
        default:
          return void(verify(path));
      }
  }
}

std::string ModelRun::new_bytes() {
  // Valid in all families of the run: a JSON object.
  return "{\"n\": " + std::to_string(++counter_) + ", \"pad\": \"" + std::string(pick(4) == 0 ? 5000 : 5, 'x') + "\"}";
}

void ModelRun::say(const std::string& what) {
  std::string text = what;
  for (const auto& path : shared_) {
    // Names of 51 letters hide what happened.
    const std::string brief = path.substr(0, 3) + ".." + path.substr(path.find('.') + 1);
    for (size_t at = 0; (at = text.find(path, at)) != std::string::npos;) text.replace(at, path.size(), brief);
  }
  log_.push_back(std::to_string(step_) + " host " + std::to_string(at_ - hosts_.data()) + ": " + text);
  if (log_.size() > kLogged) log_.pop_front();
}

bool ModelRun::expect(bool held, const std::string& what) {
  if (held || failed_) return held;
  failed_ = true;
  std::string text;
  for (const auto& line : log_) text += "  " + line + "\n";
  ADD_FAILURE() << "seed " << seed_ << ", step " << step_ << ", host " << (at_ - hosts_.data()) << ": " << what << "\n"
                << text;
  return false;
}

bool ModelRun::parent_is_there(const std::string& path) {
  const std::string parent = parent_path(path);
  return parent.empty() || at_->own.contains(parent);
}

void ModelRun::own_parents(const std::string& path) {
  for (std::string up = parent_path(path); !up.empty(); up = parent_path(up)) {
    at_->own[up].type = Item::Type::kDirectory;
  }
}

void ModelRun::set_own(const std::string& path, std::shared_ptr<ModelFile> file) {
  if (is_shared(path)) publish(path, file->bytes);
  at_->own[path] = Item{Item::Type::kFile, std::move(file), {}};
  own_parents(path);
}

void ModelRun::own_changed(const std::shared_ptr<ModelFile>& file) {
  for (const auto& [path, item] : at_->own) {
    if (item.file == file && is_shared(path)) publish(path, file->bytes);
  }
}

void ModelRun::publish(const std::string& path, const std::string& bytes) {
  published_[path].insert(bytes);
  // Bytes that come back by a rename or an exchange are published anew. A host hides an entry as it was when it deleted
  // it (Catalog::hide), so that what it buried before something else stood there may show again.
  for (auto& host : hosts_) {
    if (&host != at_ && host.dead[path].contains(bytes)) host.revived[path].insert(bytes);
  }
}

void ModelRun::bury(const std::string& path, const std::string& bytes) {
  if (!is_shared(path)) return;
  at_->dead[path].insert(bytes);
  at_->revived[path].erase(bytes);
}

bool ModelRun::may_be(const std::string& path, const std::string& bytes) {
  if (!is_shared(path) || !published_[path].contains(bytes)) return false;
  return !at_->dead[path].contains(bytes) || at_->revived[path].contains(bytes);
}

void ModelRun::write_new(const std::string& path) {
  const auto known = at_->own.find(path);
  if (known != at_->own.end() && known->second.type != Item::Type::kFile) return;
  const mode_t mode = pick(2) == 0 ? 0644 : 0755;
  const std::string bytes = new_bytes();
  say("publish " + path + " " + bytes.substr(0, 12));
  // What it replaces is gone for good on this host.
  if (known != at_->own.end()) bury(path, known->second.file->bytes);
  const auto done = at_->host->publish_file(path, bytes, mode);
  if (!expect(done.has_value(), "publish " + path + ": " + (done ? "" : done.error().to_string()))) return;
  set_own(path, make_file(bytes, mode));
  verify(path);
}

void ModelRun::create_in_place(const std::string& path) {
  if (!parent_is_there(path) || at_->own.contains(path)) return;
  const std::string bytes = new_bytes();
  say("create " + path + " " + bytes.substr(0, 12));
  if (is_shared(path) && at_->host->exists(path)) return;  // open(O_CREAT|O_EXCL) fails in the kernel
  const auto done = at_->host->create(path, bytes, 0600);
  if (!expect(done.has_value(), "create " + path + ": " + (done ? "" : done.error().to_string()))) return;
  set_own(path, make_file(bytes, 0600));
  if (is_shared(path)) published_[path].insert("");  // sealed between the create and the write
  verify(path);
}

void ModelRun::change_bytes(const std::string& path) {
  const auto known = at_->own.find(path);
  const auto found = at_->host->look_up(path);
  if (known == at_->own.end()) {
    if (!found || !is_shared(path)) return void(verify(path));
    // Not what a host appends to its own files: that may arrive here, and would look like this append.
    const std::string suffix(1 + pick(3), '\n');
    say("append to what arrived as " + path);
    // One node for both, as with an open file: another version may arrive at any time.
    auto& files = at_->host->data();
    std::string before(found->attributes.size, '\0');
    const auto got = files.read(found->node, before.data(), before.size(), 0);
    if (!got || *got != before.size() || !files.write(found->node, suffix, before.size(), caller())) return;
    const auto file = make_file(before + suffix, found->attributes.mode & 07777);
    // Who had it open sees the same file, whatever has its name by now.
    for (auto& open : at_->open) {
      if (open.node == found->node) open.file = file;
    }
    const auto after = at_->host->read(path);
    if (after && *after == file->bytes) {
      bury(path, before);
      return set_own(path, file);
    }
    return void(verify(path));  // another one arrived in between; the write went to the deleted one
  }
  if (known->second.type != Item::Type::kFile) return;
  const auto file = known->second.file;
  bury(path, file->bytes);
  if (pick(2) == 0) {
    // Not below what makes the bytes this run's only ones: what one host has deleted, another may not make again.
    const size_t size = std::min(kUniqueBytes, file->bytes.size()) + pick(file->bytes.size() + 10);
    say("truncate " + path + " to " + std::to_string(size));
    expect(at_->host->truncate(path, size).has_value(), "truncate " + path);
    file->bytes.resize(size);
  } else {
    say("append to " + path);
    expect(at_->host->append(path, " ").has_value(), "append to " + path);
    file->bytes += " ";
  }
  own_changed(file);
  verify(path);
}

void ModelRun::change_mode(const std::string& path) {
  const auto known = at_->own.find(path);
  if (known == at_->own.end() || known->second.type != Item::Type::kFile) return;
  const auto found = at_->host->look_up(path);
  if (!expect(found.has_value(), "chmod: no " + path)) return;
  vfs::AttributeChange change;
  change.mode = pick(2) == 0 ? 0444 : 0640;
  say("chmod " + path);
  auto& file = *known->second.file;
  file.mode = *change.mode;
  file.mode_is_chosen = file.mode_is_chosen || is_shared(path) || has_more_names(known->second.file);
  expect(at_->host->attributes().set_attributes(found->node, change, caller()).has_value(), "chmod " + path);
  verify(path);
}

void ModelRun::rename(const std::string& from, const std::string& to) {
  const auto source = at_->own.find(from);
  const auto target = at_->own.find(to);
  if (from == to || !parent_is_there(to)) return;
  if (source == at_->own.end()) return void(verify(from));
  if (source->second.type == Item::Type::kDirectory) return;
  if (target != at_->own.end() && target->second.type == Item::Type::kDirectory) return;
  const bool no_replace = pick(4) == 0;
  say((no_replace ? "rename noreplace " : "rename ") + from + " " + to);
  const bool there = at_->host->exists(to);
  const auto done =
      at_->host->rename(from, to, 0, no_replace ? vfs::RenameMode::kNoReplace : vfs::RenameMode::kReplace);
  if (no_replace && (there || (!done && is_shared(to)))) {
    expect(!done && done.error().code() == ErrorCode::kExists, "rename noreplace over " + to);
    return void(verify(from) && verify(to));
  }
  if (!expect(done.has_value(), "rename " + from + " " + to + ": " + (done ? "" : done.error().to_string()))) return;
  const bool same = target != at_->own.end() && source->second.file && target->second.file == source->second.file;
  if (!same) {
    const Item moved = source->second;
    if (moved.file) bury(from, moved.file->bytes);
    if (target != at_->own.end() && target->second.file) bury(to, target->second.file->bytes);
    at_->own.erase(from);
    at_->own[to] = moved;
    if (moved.file) own_changed(moved.file);
  }
  verify(from);
  verify(to);
}

void ModelRun::exchange(const std::string& a, const std::string& b) {
  const auto first = at_->own.find(a);
  const auto second = at_->own.find(b);
  if (a == b || first == at_->own.end() || second == at_->own.end()) return;
  if (first->second.type != Item::Type::kFile || second->second.type != Item::Type::kFile) return;
  say("exchange " + a + " " + b);
  bury(a, first->second.file->bytes);
  bury(b, second->second.file->bytes);
  const auto done = at_->host->rename(a, b, 0, vfs::RenameMode::kExchange);
  if (!expect(done.has_value(), "exchange " + a + " " + b)) return;
  std::swap(first->second, second->second);
  own_changed(first->second.file);
  own_changed(second->second.file);
  verify(a);
  verify(b);
}

void ModelRun::rename_directory() {
  // Within the private part: a directory that shows entries of the cluster cannot be moved.
  const std::string from = pick(2) == 0 ? "p/q" : "s";
  const std::string to = from == "s" ? "p/q" : "s";
  if (!at_->own.contains(from) || !parent_is_there(to)) return;
  say("rename directory " + from + " " + to);
  const auto done = at_->host->rename(from, to);
  const auto below = [&](const std::string& directory) {
    const auto next = at_->own.upper_bound(directory + "/");
    return next != at_->own.end() && next->first.starts_with(directory + "/");
  };
  if (at_->own.contains(to) && below(to)) {
    expect(!done && done.error().code() == ErrorCode::kNotEmpty, "rename over a directory that is not empty");
    return;
  }
  if (!expect(done.has_value(), "rename directory: " + (done ? "" : done.error().to_string()))) return;
  std::map<std::string, Item> moved;
  for (auto it = at_->own.begin(); it != at_->own.end();) {
    if (it->first != from && !it->first.starts_with(from + "/")) {
      ++it;
      continue;
    }
    moved[to + it->first.substr(from.size())] = it->second;
    it = at_->own.erase(it);
  }
  for (auto& [path, item] : moved) at_->own[path] = item;
  verify_listing(to);
}

void ModelRun::link(const std::string& from, const std::string& to) {
  const auto source = at_->own.find(from);
  if (source == at_->own.end() || source->second.type != Item::Type::kFile || !parent_is_there(to)) return;
  if (at_->own.contains(to) || (is_shared(to) && at_->host->exists(to))) return;
  const auto node = at_->host->look_up(from);
  const std::string directory = parent_path(to);
  const auto parent = directory.empty() ? vfs::kRootNode : at_->host->look_up(directory)->node;
  say("link " + from + " " + to);
  if (!expect(node.has_value(), "link: no " + from)) return;
  const auto done = at_->host->names().link(node->node, parent, base_name(to), caller());
  if (!expect(done.has_value(), "link " + from + " " + to + ": " + (done ? "" : done.error().to_string()))) return;
  at_->own[to] = source->second;
  own_changed(source->second.file);
  expect(done->node == node->node, "two links are one inode");
  verify(to);
}

void ModelRun::make_symlink(const std::string& path) {
  if (is_shared(path) || at_->own.contains(path) || !parent_is_there(path)) return;
  const std::string directory = parent_path(path);
  const auto parent = directory.empty() ? vfs::kRootNode : at_->host->look_up(directory)->node;
  say("symlink " + path);
  const auto done = at_->host->names().make_symlink(parent, base_name(path), "target of " + path, caller());
  if (!expect(done.has_value(), "symlink " + path)) return;
  at_->own[path] = Item{Item::Type::kLink, nullptr, "target of " + path};
}

void ModelRun::unlink(const std::string& path) {
  const auto known = at_->own.find(path);
  if (known == at_->own.end()) {
    const auto bytes = at_->host->read(path);
    if (!bytes) return void(verify(path));
    say("unlink what arrived as " + path);
    if (at_->host->unlink(path)) bury(path, *bytes);
    return void(verify(path));
  }
  if (known->second.type == Item::Type::kDirectory) return;
  say("unlink " + path);
  if (known->second.file) bury(path, known->second.file->bytes);
  const auto done = at_->host->unlink(path);
  if (!expect(done.has_value(), "unlink " + path + ": " + (done ? "" : done.error().to_string()))) return;
  at_->own.erase(known);
  verify(path);
}

void ModelRun::make_directory() {
  const std::string& path = directories_[pick(directories_.size())];
  if (!parent_is_there(path) || at_->own.contains(path) || at_->host->exists(path)) return;
  say("mkdir " + path);
  if (!expect(at_->host->make_directory(path).has_value(), "mkdir " + path)) return;
  at_->own[path].type = Item::Type::kDirectory;
}

void ModelRun::remove_directory() {
  const std::string& path = directories_[pick(directories_.size())];
  if (!at_->own.contains(path)) return;
  say("rmdir " + path);
  const auto next = at_->own.upper_bound(path + "/");
  const bool empty = next == at_->own.end() || !next->first.starts_with(path + "/");
  const auto done = at_->host->remove_directory(path);
  if (!empty)
    return void(
        expect(!done && done.error().code() == ErrorCode::kNotEmpty, "rmdir of " + path + ", which is not empty"));
  const bool may_show_entries = path.size() == 2;
  if (!done && may_show_entries && done.error().code() == ErrorCode::kNotEmpty) {
    const auto names = at_->host->list(path);
    return void(expect(names && !names->empty(), "ENOTEMPTY of " + path + ", which lists nothing"));
  }
  if (!expect(done.has_value(), "rmdir " + path + ": " + (done ? "" : done.error().to_string()))) return;
  at_->own.erase(path);
}

void ModelRun::open_handle(const std::string& path) {
  const auto found = at_->host->look_up(path);
  if (!found || !S_ISREG(found->attributes.mode)) return void(verify(path));
  if (at_->open.size() > 6) at_->open.erase(at_->open.begin());
  say("open " + path);
  const auto known = at_->own.find(path);
  if (known != at_->own.end()) return at_->open.push_back({found->node, known->second.file});
  std::string bytes(found->attributes.size, '\0');
  const auto got = at_->host->data().read(found->node, bytes.data(), bytes.size(), 0);
  if (!expect(got && *got == bytes.size(), "read of what was looked up: " + path)) return;
  if (!expect(may_be(path, bytes), path + " has bytes that nobody published: " + bytes.substr(0, 20))) return;
  // Read only through this handle: a write would make the name this host's own.
  at_->open.push_back({found->node, std::make_shared<ModelFile>(ModelFile{bytes, 0})});
}

void ModelRun::use_handle() {
  if (at_->open.empty()) return;
  auto& [node, file] = at_->open[pick(at_->open.size())];
  const bool arrived = file->mode == 0;
  if (!arrived && pick(2) == 0) {
    say("write through a handle");
    for (const auto& [path, item] : at_->own) {
      if (item.file == file) bury(path, file->bytes);
    }
    if (!expect(at_->host->data().write(node, "W", 0, caller()).has_value(), "write through a handle")) return;
    if (file->bytes.empty()) file->bytes.resize(1);
    file->bytes[0] = 'W';
    own_changed(file);
  }
  std::string bytes(file->bytes.size() + 1, '\0');
  const auto got = at_->host->data().read(node, bytes.data(), bytes.size(), 0);
  if (!expect(got.has_value(), "read through a handle: " + (got ? "" : got.error().to_string()))) return;
  bytes.resize(*got);
  expect(bytes == file->bytes,
         "a handle shows other bytes: " + bytes.substr(0, 20) + " for " + file->bytes.substr(0, 20));
}

void ModelRun::forget(const std::string& path) {
  std::vector<vfs::NodeId> nodes;
  std::string prefix;
  for (size_t at = 0; at != std::string::npos;) {
    at = path.find('/', at == 0 ? 0 : at + 1);
    prefix = path.substr(0, at);
    const auto found = at_->host->look_up(prefix);
    if (!found) break;
    nodes.push_back(found->node);
  }
  say("forget " + path);
  const auto is_open = [&](vfs::NodeId node) {
    for (const auto& open : at_->open) {
      if (open.node == node) return true;
    }
    return false;
  };
  // The kernel keeps a directory whose children it knows, so the leaf goes first.
  const size_t keep = pick(nodes.size() + 1);
  for (size_t i = nodes.size(); i > keep; --i) {
    if (!is_open(nodes[i - 1])) at_->host->names().forget(nodes[i - 1], kAllReferences);
  }
  verify(path);
}

void ModelRun::take_over() {
  say("take over");
  at_->host->take_over();
  verify_all();
}

void ModelRun::restart() {
  say("restart");
  at_->open.clear();
  at_->host->restart();
  verify_all();
}

}  // namespace inductorfs::testing
