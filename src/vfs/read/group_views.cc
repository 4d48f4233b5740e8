// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/group_views.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "inductorfs/base/clock.h"
#include "inductorfs/layout/layout.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/parcel_files.h"
#include "vfs/tree/parcel_mark.h"
#include "vfs/tree/view_files.h"

namespace inductorfs::vfs {

std::string GroupViews::seen_by(pid_t thread, const std::string& path) const {
  const std::string shown = shown_path(path);
  return options_.where_seen ? options_.where_seen(thread, shown) : path_in_mount(shown);
}

std::string GroupViews::path_in_mount(std::string_view path) const {
  return join(options_.mountpoint, shown_path(path));
}

void GroupViews::mark_view(const std::string& place, const std::vector<std::string>& names,
                           const std::string& key_directory, pid_t writer) const {
  if (!options_.where_seen) return;
  for (const auto& name : names) {
    if (!layout::is_group_file(name)) continue;
    const auto text = disk_.read_file(join(place, name), kGroupFileLimit);
    const auto named = text ? layout::group_directory(*text, last_component(key_directory)) : Result<std::string>("");
    const std::string seen = seen_by(writer, key_directory);
    // One that names another directory of the mount was moved here, or copied. A relative path is right for processes
    // in one working directory, so that everybody is shown an absolute one.
    const bool elsewhere =
        named && named->starts_with('/') && *named != seen && !named->starts_with(seen_by(writer, {}) + "/");
    if (elsewhere) set_mark(disk_, join(place, name), kSeenMark, seen);
  }
}

void GroupViews::meet(const NodePtr& key_directory, const std::string& path, const Caller& caller) {
  const bool kept = key_directory->key->groups.with([](const GroupNames& names) { return names.kept; });
  if (!kept || !options_.where_seen) return;
  const std::string seen = seen_by(caller.pid, path);
  if (seen.empty() || are_kept_for(key_directory, path, seen)) return;
  if (key_directory->key->groups.with([](GroupNames& names) { return names.meet_another(); }))
    forget_groups(key_directory, true);
}

bool GroupViews::are_kept_for(const NodePtr& key_directory, const std::string& path, const std::string& seen) {
  const std::string known = key_directory->key->groups.with([](const GroupNames& names) { return names.kept_for; });
  if (!known.empty()) return known == seen;
  // They were named by requests, or an earlier worker let the kernel keep them.
  for (const auto& [name, child] : nodes_.children(key_directory)) {
    if (layout::is_group_file(name) && child->is_regular() && directory_of(child, last_component(path)) != seen)
      return false;
  }
  key_directory->key->groups.with([&](GroupNames& names) { names.kept_for = seen; });
  return true;
}

void GroupViews::forget_groups(const NodePtr& key_directory, bool waits) {
  counters_.get("triton.views_met").add();
  std::vector<NodePtr> groups;
  for (const auto& [name, child] : nodes_.children(key_directory)) {
    if (!layout::is_group_file(name)) continue;
    notifier_.wish_forgotten(key_directory->id, name);
    groups.push_back(child);
  }
  if (waits)
    (void)tree_.wait_until_forgotten(groups, Deadline::after(options_.forget_wait));  // else a miss, see the header
}

LookupAnswer GroupViews::for_view(const Site& site, LookupAnswer answer) {
  const NodePtr node = answer.found ? nodes_.find(answer.found->node) : nullptr;
  if (!node || !node->is_regular() || !options_.where_seen) return answer;
  if (site.as_it_is) {
    answer.found->keep = false;
    return answer;
  }
  const std::string shown = directory_of(node, last_component(parent_path(site.path)));
  if (shown.empty() || shown == site.seen) {
    if (answer.found->keep) answer.found->keep = may_keep(site);
    return answer;
  }
  if (site.parent->key->groups.with([](GroupNames& names) { return names.meet_another(); }))
    forget_groups(site.parent, false);  // this name is not kept, or the kernel would not have asked
  auto other = other_view(site, node, answer.found->attributes);
  if (!other) {
    answer.found->keep = false;
    return answer;
  }
  tree_.forget(node->id, 1);
  return {*other, false};
}

/// Says whether the kernel may keep this group file, and notes for which view it does.
bool GroupViews::may_keep(const Site& site) {
  const bool kept = site.parent->key->groups.with([](const GroupNames& names) { return names.kept; });
  const bool fits = !kept || are_kept_for(site.parent, parent_path(site.path), site.seen);
  bool others_are_kept = false;
  const bool keep = site.parent->key->groups.with([&](GroupNames& names) {
    if (!names.several && !fits) others_are_kept = names.meet_another();
    if (names.several) return false;
    names.kept = true;
    names.kept_for = site.seen;
    return true;
  });
  if (others_are_kept) forget_groups(site.parent, false);
  return keep;
}

void GroupViews::kept_before(const Node& group_file) {
  for (const auto& [parent, name] : group_file.names) {
    const NodePtr directory = nodes_.find(parent);
    if (!directory || !directory->key || !layout::is_group_file(name)) continue;
    directory->key->groups.with([](GroupNames& names) { names.keep_unseen(); });
  }
}

Result<std::string> GroupViews::text_of(const NodePtr& node) {
  return moves_.read([&](const Moves&) {
    return node->content.with([&](const Content& content) -> Result<std::string> {
      if (content.rendered) return *content.rendered;
      INDUCTORFS_TRY_ASSIGN(const auto place, tree_.location(*node, content));
      INDUCTORFS_TRY_ASSIGN(const auto file, disk_.open_file(place, false));
      return read_file(AT_FDCWD, proc_path(file.get()), kGroupFileLimit);
    });
  });
}

/// The directory that a group file's text names, as its reader must see it; empty when that cannot be told.
std::string GroupViews::directory_of(const NodePtr& node, const std::string& key) {
  std::string known = moves_.read([&](const Moves&) {
    return node->content.with([&](const Content& content) -> std::string {
      if (content.rendered) return content.group_directory;
      const auto place = tree_.location(*node, content);
      return place ? mark_of(disk_, *place, kSeenMark).value_or("") : "";
    });
  });
  if (!known.empty()) return known;
  const auto text = text_of(node);
  return text ? layout::group_directory(*text, key).value_or("") : "";
}

Result<Found> GroupViews::other_view(const Site& site, const NodePtr& node, const Attributes& attributes) {
  INDUCTORFS_TRY_ASSIGN(const auto shown, text_of(node));
  INDUCTORFS_TRY_ASSIGN(const auto canonical, layout::canonical_group(shown, last_component(parent_path(site.path))));
  INDUCTORFS_TRY_ASSIGN(auto text, layout::render_group(canonical, site.seen));
  return view_with(site, node, canonical, std::move(text), attributes);
}

LookupAnswer GroupViews::for_index(const Site& site, LookupAnswer answer) {
  const NodePtr node = answer.found ? nodes_.find(answer.found->node) : nullptr;
  if (!node || !node->is_regular()) return answer;
  const bool is_clusters = moves_.read([&](const Moves&) {
    const auto mark = parcel_mark_of(disk_, LocalTree::view(site.path));
    return mark ? mark->fetched : is_changed_parcel(disk_, LocalTree::view(site.path));
  });
  if (!is_clusters) return answer;  // as its writer made it
  answer.found->keep = false;
  const auto text = text_of(node);
  auto shown = text && !site.seen.empty() ? shown_index(site.path, *text, site.seen) : text;
  if (!shown || *shown == *text) return answer;
  answer.found = view_with(site, node, *text, std::move(*shown), answer.found->attributes);
  tree_.forget(node->id, 1);
  return answer;
}

/// Finds or makes the node that has this text, with one reference of the kernel.
Found GroupViews::view_with(const Site& site, const NodePtr& node, const std::string& canonical, std::string text,
                            const Attributes& attributes) {
  const Key key{site.parent->id, site.name, site.seen};
  NodePtr view = known_.with([&](const auto& views) {
    const auto found = views.find(key);
    return found == views.end() ? nullptr : found->second.lock();
  });
  const bool is_same = view && view->content.with([&](const Content& content) {
    return content.backing == Backing::kShared && content.view_of == node && content.rendered &&
           *content.rendered == text;
  });
  if (!is_same || !nodes_.count_known(view)) {
    view = new_view(site, node, canonical, std::move(text), attributes);
    known_.with([&](auto& views) {
      if (views.size() >= kMostRemembered) std::erase_if(views, [](const auto& one) { return one.second.expired(); });
      if (views.size() < kMostRemembered) views.insert_or_assign(key, view);
    });
  }
  counters_.get("triton.other_views").add();
  return Found{view->id, view->content.with([](const Content& content) { return content.attributes; }), false};
}

/// Makes the node, with one reference of the kernel. It needs no blob, so nothing in the store is pinned for it.
NodePtr GroupViews::new_view(const Site& site, const NodePtr& node, const std::string& canonical, std::string text,
                             const Attributes& attributes) {
  constexpr int64_t kSecond = 1'000'000'000;
  codec::Entry entry = node->content.with([](const Content& content) { return content.entry; });
  if (entry.path.empty()) {  // a local file
    entry.path = site.entry.path;
    entry.digest = codec::digest_of(canonical);
    entry.size = canonical.size();
    entry.mode = attributes.mode & 07777;
    entry.mtime_ns = attributes.modified.seconds * kSecond + attributes.modified.nanoseconds;
    entry.origin = options_.origin;
  }
  NodePtr view = tree_.new_node(S_IFREG, inode_number_of(join(site.seen, site.name)), site);
  node->pins.fetch_add(1);  // whoever removes or renames the file finds it by its name
  nodes_.note_content(*view, NodeJournal::group(view->id, entry, site.seen, text));
  view->content.with([&](Content& content) {
    content.backing = Backing::kShared;
    content.view_of = node;
    content.entry = std::move(entry);
    content.group_directory = site.seen;
    content.attributes = attributes;
    content.attributes.inode_number = view->inode_number;
    content.attributes.links = 1;
    content.attributes.size = text.size();
    content.attributes.blocks = (text.size() + 511) / 512;
    content.attributes_valid = true;
    content.rendered = std::make_shared<const std::string>(std::move(text));
  });
  nodes_.add_unnamed(view, 1);
  return view;
}

}  // namespace inductorfs::vfs
