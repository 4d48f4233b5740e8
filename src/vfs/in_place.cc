// SPDX-License-Identifier: Apache-2.0
#include "vfs/in_place.h"

#include <sys/stat.h>

#include <algorithm>

#include "inductorfs/base/log.h"
#include "vfs/overlay.h"

namespace inductorfs::vfs {
namespace {

constexpr size_t kAskedAtOnce = 256;
/// A kernel that does not tell today will not tell tomorrow; a child that was killed at its deadline may be another
/// matter.
constexpr int kMostUnknown = 3;

std::string parent_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

/// A set of Triton's is complete when its last file is.
bool is_in_set(const std::string& path) { return layout::classify(path).family == layout::Family::kTritonKernel; }

}  // namespace

bool InPlace::is_on() const { return overlay_.options_.who_writes && overlay_.marks_.everyone_fits(); }

void InPlace::add(const NodePtr& node, const std::string& path) {
  if (!is_on() || !node->is_regular()) return;
  const auto& rule = layout::rule_of(layout::classify(path).family);
  if (!rule.shared || rule.seal == layout::SealSign::kQuiet) return;
  const SteadyTime due = std::chrono::steady_clock::now() + overlay_.options_.quiet_time;
  items_.with([&](Items& items) {
    const auto known = items.find(node->id);
    if (known != items.end()) {
      known->second.due = due;
      known->second.path = path;
      return;
    }
    node->pins.fetch_add(1);
    items.emplace(node->id, Item{node, path, due, 0});
  });
}

/// What this host knows without asking the kernel.
InPlace::Next InPlace::next_of(Item& item) const {
  const auto path = overlay_.nodes_.path_of(*item.node);
  if (!path) return Next::kDrop;
  item.path = *path;
  const auto& rule = layout::rule_of(layout::classify(*path).family);
  if (!rule.shared || rule.seal == layout::SealSign::kQuiet) return Next::kDrop;
  const auto state = item.node->content.with([&](Content& content) {
    if (content.backing != Backing::kLocal) return Next::kDrop;
    return content.active_writes > 0 ? Next::kLater : Next::kAsk;
  });
  if (state != Next::kAsk) return state;
  // Only the seal on the disk says that it was queued. The store has the inode earlier, and a worker may have been killed
  // in between.
  if (!overlay_.seal_on_disk(*path).empty()) return Next::kDrop;
  // A copy of what was sealed or came from the cluster is this host's for good (Overlay::make_private).
  if (overlay_.tree_.mark_of(LocalTree::view(*path), LocalTree::kChangedName)) return Next::kDrop;
  if (rule.seal != layout::SealSign::kBuildDirectory) return Next::kAsk;
  const auto siblings = overlay_.tree_.list(LocalTree::view(parent_path(*path)));
  const std::string name = path->substr(path->rfind('/') + 1);
  // The end of its build directory is the sign, and comes never when its compiler was killed: sync must not wait for
  // it.
  return siblings && !is_being_built(parent_path(*path), name, *siblings) ? Next::kAsk : Next::kDrop;
}

void InPlace::look() {
  const SteadyTime now = std::chrono::steady_clock::now();
  auto due = items_.with([&](const Items& items) {
    std::vector<Item> found;
    for (const auto& [id, item] : items) {
      if (item.due <= now && found.size() < kAskedAtOnce) found.push_back(item);
    }
    return found;
  });
  std::vector<Item> asked;
  std::vector<OpenQuestion> questions;
  for (Item& item : due) {
    switch (overlay_.moves_.read([&](const Moves&) { return next_of(item); })) {
      case Next::kDrop:
        finish(item, false);
        break;
      case Next::kLater:
        put_off(item, OpenState::kForWriting);
        break;
      case Next::kAsk:
        questions.push_back({item.path, item.node->inode_number});
        asked.push_back(std::move(item));
        break;
    }
  }
  if (asked.empty()) return;
  auto states = overlay_.options_.who_writes(questions);
  states.resize(asked.size(), OpenState::kUnknown);
  for (size_t i = 0; i < asked.size(); ++i) {
    if (states[i] == OpenState::kNotForWriting) {
      finish(asked[i], true);
    } else {
      put_off(asked[i], states[i]);
    }
  }
}

void InPlace::put_off(const Item& item, OpenState state) {
  const bool given_up = items_.with([&](Items& items) {
    const auto known = items.find(item.node->id);
    if (known == items.end()) return false;
    if (state == OpenState::kUnknown && ++known->second.unknown >= kMostUnknown) return true;
    known->second.due = std::max(known->second.due, std::chrono::steady_clock::now() + overlay_.options_.quiet_time);
    return false;
  });
  if (!given_up) return;
  overlay_.counters_.get("seal.in_place_unknown").add();
  log::write_limited(
      log::Level::kWarning, "seal.in_place_unknown",
      {{"path", item.path}, {"why", "the kernel does not tell whether somebody has it open for writing"}});
  finish(item, false);
}

/// Hands it over before it leaves the list, so that drain() misses nothing in between.
void InPlace::finish(const Item& item, bool complete) {
  const bool still = items_.with([&](const Items& items) {
    const auto known = items.find(item.node->id);
    return known != items.end() && (!complete || known->second.due <= item.due);  // else it was written to since
  });
  if (!still) return;
  hand_over(item, complete);
  items_.notify_with([&](Items& items) { items.erase(item.node->id); });
  overlay_.unpin(item.node);
}

void InPlace::hand_over(const Item& item, bool complete) {
  if (is_in_set(item.path)) {
    const std::string directory = parent_path(item.path);
    const bool last = items_.with([&](const Items& items) {
      return std::none_of(items.begin(), items.end(), [&](const auto& other) {
        return other.first != item.node->id && parent_path(other.second.path) == directory;
      });
    });
    const NodePtr node = overlay_.nodes_.walk(directory).node;
    if (last && node && node->key) overlay_.sealer_.add({node, directory, true});
    return;
  }
  if (!complete) return;
  const bool known = overlay_.provenance_of(item.path).is_known();
  const pid_t writer = item.node->content.with([](const Content& content) { return content.last_writer; });
  if (!known) overlay_.saw_writer(item.node, item.path, writer);
  overlay_.sealer_.add({item.node, item.path, false});
}

bool InPlace::drain(Deadline deadline) {
  const auto none = [](const Items& items) { return items.empty(); };
  return items_.wait_until(deadline.at(), none, none);
}

void InPlace::stop() {
  const auto left = items_.with([](Items& items) { return std::exchange(items, {}); });
  for (const auto& [id, item] : left) overlay_.unpin(item.node);
}

size_t InPlace::waiting() const {
  return items_.with([](const Items& items) { return items.size(); });
}

std::vector<std::string> InPlace::paths(size_t limit) const {
  return items_.with([&](const Items& items) {
    std::vector<std::string> paths;
    for (const auto& [id, item] : items) {
      if (paths.size() < limit) paths.push_back(item.path);
    }
    return paths;
  });
}

bool InPlace::waits(const std::string& path) const {
  return items_.with([&](const Items& items) {
    return std::any_of(items.begin(), items.end(), [&](const auto& item) { return item.second.path == path; });
  });
}

}  // namespace inductorfs::vfs
