// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/stale.h"

#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "inductorfs/base/fail_point.h"
#include "vfs/tree/parcel_files.h"
#include "vfs/tree/parcel_mark.h"
#include "vfs/tree/view_files.h"

/// What was made for other facts than this host's leaves the view: the facts may change between two mounts, or under
/// one.
namespace inductorfs::vfs {
/// Of a file of a shared family. What is private belongs to another environment by name and stays.
bool Stale::is_stale(const std::string& path, const std::vector<std::string>& scopes) const {
  const auto walked = nodes_.walk(path);
  const std::string place = LocalTree::view(path);
  const Provenance found =
      walked.missing.empty() && walked.node->is_regular()
          ? walked.node->content.with([&](const Content& c) { return origin_.provenance(c, place); })
          : marks_.read(place);
  if (found.is_private() || !scopes_.is_settled(path)) return false;
  if (found.is_known()) {
    // A file that was shared with everybody is no worse for its user when he shares with fewer.
    return std::none_of(scopes.begin(), scopes.end(), [&](const auto& scope) { return found.is_for(scope); }) &&
           !marks_.is_for_these_facts(path, found);
  }
  // Nobody knows what it was made for: an artefact when it was sealed once, or could not be marked.
  return !seal_on_disk(disk_, path).empty();
}

void Stale::drop_stale_below(const std::string& path) {
  drop_below(path, {[this](const std::vector<std::string>& paths) {
                      const auto scopes = marks_.scopes_now(paths.front());
                      return std::any_of(paths.begin(), paths.end(),
                                         [&](const auto& one) { return is_stale(one, scopes); });
                    },
                    counters_.get("view.stale")});
}

std::optional<uint64_t> Stale::purge(const layout::Selection& selection, const std::function<bool()>& cancelled) {
  Counter& gone = counters_.get("view.purged");
  const uint64_t before = gone.get();
  drop_below("", {[&](const std::vector<std::string>& paths) {
                    return std::any_of(paths.begin(), paths.end(),
                                       [&](const auto& one) { return is_selected(one, selection); });
                  },
                  gone, cancelled});
  if (cancelled()) return std::nullopt;
  return gone.get() - before;
}

void Stale::drop_damaged(const std::set<std::string>& parcels, const std::function<bool()>& cancelled) {
  drop_below("", {[&](const std::vector<std::string>& paths) {
                    return std::any_of(paths.begin(), paths.end(), [&](const auto& one) {
                      return parcels.contains(one) || seal_on_disk(disk_, one) == kDamagedSeal;
                    });
                  },
                  counters_.get("view.damaged"), cancelled, true});
}

/// What is not sealed is not shared: a job may be writing it.
bool Stale::is_selected(const std::string& path, const layout::Selection& selection) const {
  const auto digest = codec::Digest::from_hex(seal_on_disk(disk_, path));
  const std::string place = LocalTree::view(path);
  // What was shared and has changed here since is still what an operator means.
  const bool was_shared = form_of(path) != layout::Form::kFile && is_changed_parcel(disk_, place);
  if (!digest && !was_shared) return false;  // or nobody knows whether it is sealed
  const auto status = disk_.stat(place);
  if (!status || !*status) return false;
  codec::Entry entry;
  entry.path = layout::canonical_path(path);
  if (digest) entry.digest = *digest;
  entry.mtime_ns = modified_ns(**status);
  if (!selection.fits(entry)) return false;
  const Provenance found = marks_.read(place);
  if (found.is_private()) return false;
  if (selection.scopes.empty()) return true;
  std::istringstream ids(found.scopes);
  return std::any_of(std::istream_iterator<std::string>(ids), {},
                     [&](const std::string& id) { return selection.fits_scope(id); });
}

void Stale::drop_below(const std::string& path, const Removing& removing) {
  const auto items = tree_.list_in_view(path);
  if (!items) return;
  std::vector<std::string> kernel;
  const auto is_cancelled = [&] { return removing.cancelled && removing.cancelled(); };
  for (const auto& item : *items) {
    if (is_cancelled()) return;
    const std::string child = path.empty() ? item.name : join(path, item.name);
    if (is_parcel(child, item.type)) {
      drop_parcel(path, item.name, removing);
      continue;
    }
    if (item.type == S_IFDIR) drop_below(child, removing);
    if (item.type != S_IFREG) continue;
    const auto family = layout::classify(child).family;
    if (family == layout::Family::kTritonKernel) {
      kernel.push_back(item.name);
    } else if (removing.private_too || layout::rule_of(family).shared) {
      drop(path, {item.name}, removing);
    }
  }
  if (kernel.empty() || is_cancelled()) return;
  auto set = local_set(disk_, path);
  for (const auto& name : kernel) {
    // What is of no set and not sealed is somebody's own, a dump for instance.
    const bool is_left = std::ranges::find(set, name) == set.end();
    if (is_left && !seal_on_disk(disk_, join(path, name)).empty()) drop(path, {name}, removing);
  }
  if (!set.empty()) drop(path, std::move(set), removing);
}

/// All files of a parcel go together: what the name stands for first, and a directory last.
void Stale::drop_parcel(const std::string& directory, const std::string& name, const Removing& removing) {
  const std::string path = directory.empty() ? name : join(directory, name);
  const bool is_directory = form_of(path) == layout::Form::kDirectory;
  const auto goes = [&] { return removing.goes({path}); };
  if (!moves_.read([&](const Moves&) { return goes(); })) return;
  std::vector<std::string> names;
  if (!is_directory) names.push_back(name);
  for (const auto& item : moves_.read([&](const Moves&) { return files_of(path); })) {
    if (is_directory || item != name) names.push_back(item);
  }
  const Removing judged{
      [&](const std::vector<std::string>&) { return goes(); }, removing.gone, {}, false, is_directory};
  drop(is_directory ? path : directory, std::move(names), judged);
}

/// The files of the parcel at this path, relative to the directory that holds them.
std::vector<std::string> Stale::files_of(const std::string& path) const {
  std::vector<std::string> names;
  const auto files = parcel_files(disk_, path);
  if (!files) return names;
  for (const auto& item : files->items) {
    if (!item.directory) names.push_back(item.path);
  }
  return names;
}

/// All of them when one has to go: the files of a Triton set go together.
void Stale::drop(const std::string& directory, std::vector<std::string> names, const Removing& removing) {
  const auto path_of = [&](const std::string& name) { return directory.empty() ? name : join(directory, name); };
  const auto any_goes = [&] {
    std::vector<std::string> paths;
    for (const auto& name : names) paths.push_back(path_of(name));
    return removing.goes(paths);
  };
  // Most stay, and nobody has to wait for that to be seen.
  if (!moves_.read([&](const Moves&) { return any_goes(); })) return;
  put_groups_first(names);
  std::vector<NodeTable::Walk> gone;
  // Nobody may be on the way to one of these names while it goes.
  moves_.write([&](Moves&) {
    if (!any_goes()) return;
    if (const NodePtr node = nodes_.find(directory); node && node->key) {
      node->key->state.with([](KeyState& state) {
        if (state.committed == KeyState::Committed::kLocal) state.committed = KeyState::Committed::kNone;
        state.provenance = {};
      });
    }
    for (const auto& name : names) {
      const std::string path = path_of(name);
      keep_what_is_queued(path);
      auto walked = nodes_.walk(path);
      if (!walked.missing.empty()) {
        (void)disk_.unlink(LocalTree::view(path));  // one that stays is met again at the next start
      } else if (walked.node->content.with([&](Content& content) {
                   const Site where{walked.parent, walked.name, path, layout::name_of(path), {}};
                   return content.backing == Backing::kLocal && removal_.take_name_away(where, walked.node, &content);
                 })) {
        gone.push_back(std::move(walked));
      }
      fail_point("stale.dropped");
      removing.gone.add();
    }
    if (!removing.directory_too) return;
    auto walked = nodes_.walk(directory);
    const bool removed = tree_.remove_directory(directory).has_value();
    if (!removed || !walked.missing.empty()) return;  // not empty: somebody has put something into it
    gone.push_back(std::move(walked));
  });
  for (const auto& walked : gone) {
    tree_.let_go(nodes_.release(walked.node));
    notifier_.forget_name(walked.parent->id, walked.name);
  }
  if (const NodePtr node = nodes_.find(directory)) {
    changed_names_in(node);
    if (node->key) {
      // Absences that were kept while the local set stood: the cluster's may have these names.
      for (const auto& known : catalog_.entries_in(layout::name_of(directory))) {
        notifier_.forget_name(node->id, known.entry.path.substr(known.entry.path.rfind('/') + 1));
      }
    }
    notifier_.forget_content(node->id);
  }
}

/// A sealed file that is still on its way to the cluster: its blob must outlive its name, over restarts too.
void Stale::keep_what_is_queued(const std::string& path) {
  const auto digest = codec::Digest::from_hex(seal_on_disk(disk_, path));
  if (!digest) return;
  const std::string canonical = layout::canonical_path(path);
  const auto state = catalog_.publish_state(canonical);
  if (!state || state->state != catalog::PublishState::kQueued) {
    return pins_.with([&](Pins& pins) { pins.sealed_paths.erase(*digest); });
  }
  pins_.with([&](Pins& pins) { pins.sealed_paths[*digest] = path; });
  const std::string kept = LocalTree::stale(digest->to_hex());
  (void)disk_.unlink(kept);  // of the same bytes
  // Should this fail, the blob is pinned until the daemon ends.
  const auto linked = disk_.link(LocalTree::view(path), kept);
  fail_point("stale.linked");
  if (linked) set_mark(disk_, kept, kEntryMark, canonical);
  fail_point("stale.kept");
}

void Stale::recover_stale() {
  for (const auto& item : disk_.list(LocalTree::kStaleFolder).value_or(std::vector<LocalTree::Item>{})) {
    const std::string kept = LocalTree::stale(item.name);
    const auto digest = codec::Digest::from_hex(item.name);
    const auto canonical = mark_of(disk_, kept, kEntryMark);
    const auto state = canonical ? catalog_.publish_state(*canonical) : std::nullopt;
    if (digest && state && state->state == catalog::PublishState::kQueued) {
      pins_.with([&](Pins& pins) { pins.sealed_paths[*digest] = *canonical; });
    } else {
      (void)disk_.unlink(kept);  // what stays is met again at the next start
    }
  }
}

bool Stale::recover_provenance(const std::string& path) {
  const std::string place = LocalTree::view(path);
  if (is_stale(path, marks_.scopes_now(path))) {
    keep_what_is_queued(path);
    remove_from_view(disk_, path);  // it is a cache; what stays is met again
    fail_point("stale.removed");
    counters_.get("view.stale").add();
    return false;
  }
  const Provenance found = marks_.read(place);
  if (found.is_private()) marks_.still_here(path, found.why_private);
  if (found.is_known()) return !found.is_private();
  const auto scope = scopes_.scope_of(path, layout::classify(path).family);
  if (scope.id.empty() && marks_.is_in_no_environment(path))
    marks_.still_here(path, std::string(Marks::kNoEnvironment));
  if (scope.id.empty() || mark_of(disk_, place, kChangedMark)) return false;
  Provenance now;
  if (marks_.everyone_fits()) {
    now.add_scope(scope.id);
  } else {
    now.make_private(Marks::kWriterLost);
    marks_.stays_here(path, now.why_private, 1);
  }
  marks_.write(place, found, now);
  return !now.is_private();
}

bool Stale::recover_set(const std::string& path, std::vector<std::string> names) {
  const auto scopes = marks_.scopes_now(join(path, names.front()));
  const auto stale = [&](const auto& name) { return is_stale(join(path, name), scopes); };
  if (std::any_of(names.begin(), names.end(), stale)) {
    put_groups_first(names);
    for (const auto& name : names) {
      keep_what_is_queued(join(path, name));
      (void)disk_.unlink(LocalTree::view(join(path, name)));  // as in recover_provenance
      counters_.get("view.stale").add();
    }
    return false;
  }
  if (scopes.empty() && marks_.is_in_no_environment(path)) marks_.still_here(path, std::string(Marks::kNoEnvironment));
  if (scopes.empty()) return false;
  bool known = true;
  for (const auto& name : names) {
    const Provenance found = marks_.read(LocalTree::view(join(path, name)));
    if (found.is_private()) {
      marks_.still_here(path, found.why_private);
      return false;
    }
    known = known && found.is_known();
  }
  if (known) return true;
  if (marks_.everyone_fits()) {
    origin_.change_set(path, [&](Provenance& now) { now.add_scope(scopes.front()); });
    return true;
  }
  origin_.keep_set_private(path, std::string(Marks::kWriterLost));
  return false;
}

}  // namespace inductorfs::vfs
