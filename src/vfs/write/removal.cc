// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/removal.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/layout/layout.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/tree/paths.h"

namespace inductorfs::vfs {

void Removal::hide_entry(const std::string& path) {
  const auto entry = layout::name_of(path);
  if (!layout::rule_of(layout::classify(entry.path).family).shared) return;
  if (catalog_.find(entry)) counters_.get("view.hidden").add();
  sets_.take_listed(path);
  // Without an entry too: what is on its way to the cluster must not come back from there.
  queueing_.with([&](const Queueing&) { catalog_.hide(entry); });
  sets_.hide(path, known_roots_.local_paths_of(entry));
}

void Removal::hide_moved(const std::string& from, const std::string& to) {
  const auto entry = layout::name_of(from);
  if (entry == layout::name_of(to)) return;
  const auto status = disk_.stat(LocalTree::view(to));
  if (!status || !*status) return;
  if (!S_ISDIR((*status)->st_mode)) return hide_entry(from);
  hide_moved(from, to, open_moving(to));
}

void Removal::forget_root(const std::string& path) { catalog_.forget_hidden(path); }

Fd Removal::open_moving(const std::string& path) const {
  auto directory = disk_.open_directory(LocalTree::view(path));
  return directory ? std::move(*directory) : Fd();
}

void Removal::hide_moved(const std::string& from, const std::string& to, const Fd& directory) {
  // With a root goes what was deleted in it.
  forget_root(from);
  if (!layout::is_in_a_root(from)) return;
  if (layout::name_of(from) == layout::name_of(to)) return;
  if (form_of(from) == layout::Form::kDirectory) return hide_entry(from);
  if (!directory) return;
  hide_below(from, directory, "");
}

void Removal::hide_below(const std::string& from, const Fd& directory, const std::string& below) {
  const std::string was = below.empty() ? from : join(from, below);
  if (layout::canonical_path(was).size() > codec::kPathLimit) return;  // nothing there is of a shared family
  for (const auto& item : list_below(directory, below).value_or(std::vector<LocalTree::Item>{})) {
    takeover::note_progress();
    const bool is_parcel = form_of(join(was, item.name)) == layout::Form::kDirectory;
    if (item.type == S_IFDIR && !is_parcel) {
      hide_below(from, directory, below.empty() ? item.name : join(below, item.name));
    } else {
      hide_entry(join(was, item.name));
    }
  }
}

Result<void> Removal::keep_orphan(const Site& site, const NodePtr& node) {
  const bool referred = node && nodes_.links_of(node) <= 1 && (node->lookups.load() != 0 || node->pins.load() != 0);
  if (!referred || !node->is_regular()) return {};
  // A second name, so that who has the file open reads it to the end; the first one goes in the next step.
  (void)disk_.unlink(LocalTree::orphan(node->id));  // of a node with this number in an earlier life
  return disk_.link(LocalTree::view(site.path), LocalTree::orphan(node->id));
}

void Removal::keep_no_orphan(const NodePtr& node) {
  if (node) (void)disk_.unlink(LocalTree::orphan(node->id));  // what stays is removed at the next start
}

void Removal::orphaned(const Node& node, Content& content, bool has_file) {
  const bool last_name = nodes_.path_of(node) == std::nullopt;
  content.attributes_valid = content.attributes_valid && content.backing == Backing::kShared;
  const bool kept = last_name && has_file && node.is_regular() && content.backing == Backing::kLocal;
  if (kept) tree_.become_orphan(node, content, LocalTree::orphan(node.id));
  if (last_name) content.attributes.links = 0;
}

Result<void> Removal::remove_first_name(const std::string& view_path, const NodePtr& node, Content* content,
                                        Result<void> kept) {
  // A disk that is full to its last inode has no room for a second name: the first one becomes it.
  bool moves = !kept && kept.error().code() == ErrorCode::kNoSpace;
  if (!kept && !moves) return kept;
  fail_point("name.unlinking");
  if (moves) {
    auto moved = disk_.rename(view_path, LocalTree::orphan(node->id));
    if (!moved && moved.error().code() != ErrorCode::kNoSpace) return moved;
    // Under a quota that counts names too (btrfs) nothing but unlink(2) is left, and refusing it would leave no way
    // back. Who has the file open reads it as long as its descriptor is kept.
    moves = moved.has_value();
    if (!moves && content != nullptr) (void)tree_.descriptor(*node, *content, false);  // without one nobody reads on
  }
  if (!moves) {
    if (auto gone = disk_.unlink(view_path, true); !gone) {
      keep_no_orphan(node);
      return gone;
    }
  }
  fail_point("name.unlinked");
  return {};
}

Result<void> Removal::take_name_away(const Site& site, const NodePtr& node, Content* content) {
  const std::string view_path = LocalTree::view(site.path);
  INDUCTORFS_TRY_ASSIGN(const auto status, disk_.stat(view_path));
  if (!status && !node && !catalog_.find(site.entry)) {
    if (!takeover::begun_effect()) return fail(ErrorCode::kNotFound);
  } else {
    auto kept = status ? keep_orphan(site, node) : Result<void>{};
    takeover::begin_effect();
    if (status) INDUCTORFS_TRY(remove_first_name(view_path, node, content, std::move(kept)));
  }
  (void)nodes_.detach(site.parent, site.name);
  if (content != nullptr) orphaned(*node, *content, status.has_value());
  // Whoever asks for a key that has nothing any more is to be noticed (Lookup::is_empty_key).
  const std::string directory = parent_path(site.path);
  if (!layout::is_candidate_directory(directory)) return {};
  const auto walked = nodes_.walk(directory);
  if (walked.missing.empty() && walked.parent) notifier_.wish_forgotten(walked.parent->id, walked.name);
  return {};
}

bool Removal::directory_is_empty(const NodePtr& directory, const std::string& path) const {
  return !tree_.has_something(path) && shown_.in(directory, path).empty();
}

}  // namespace inductorfs::vfs
