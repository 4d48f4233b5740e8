// SPDX-License-Identifier: Apache-2.0
#include "vfs/origin/origin.h"

#include <sys/stat.h>

#include "inductorfs/layout/layout.h"
#include "vfs/disk/makers.h"
#include "vfs/read/group_views.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/parcel_mark.h"
#include "vfs/tree/shown_attributes.h"
#include "vfs/tree/view_files.h"

/// Who wrote what stands under a final name: looked at when the name is given, and judged before anything leaves the
/// host.
namespace inductorfs::vfs {
namespace {

constexpr auto kKernel = layout::Family::kTritonKernel;
constexpr mode_t kMayWrite = S_IWGRP | S_IWOTH;
constexpr mode_t kMayReach = S_IXGRP | S_IXOTH;

bool is_shared(layout::Family family) { return layout::rule_of(family).shared; }

/// The family by which a writer of this file is judged: a file that an index names is published with it.
layout::Family judged_as(const std::string& path) {
  const auto family = layout::classify(path).family;
  if (family != layout::Family::kParcelMember) return family;
  const auto parcels = parcels_of_member(path);
  const bool of_index = !parcels.empty() && form_of(parcels.front()) == layout::Form::kIndex;
  return of_index ? layout::classify(parcels.front()).family : family;
}

}  // namespace

Provenance Origin::provenance(const Content& content, const std::string& place) const {
  return content.provenance ? *content.provenance : marks_.read(place);
}

bool Origin::change_provenance(const NodePtr& node, const std::function<void(Provenance&)>& change) {
  return moves_.read([&](const Moves&) {
    return node->content.with([&](Content& content) {
      if (content.backing != Backing::kLocal) return false;
      const auto place = tree_.location(*node, content);
      if (!place) return false;
      const Provenance before = provenance(content, *place);
      Provenance now = before;
      change(now);
      if (now == before) return false;
      marks_.write(*place, before, now);
      content.provenance = std::make_shared<const Provenance>(now);
      content.attributes_valid = false;
      return now.is_private() && !before.is_private();
    });
  });
}

void Origin::saw_writer(const NodePtr& node, const std::string& path, pid_t writer, bool anew) {
  if (!node->is_regular() && form_of(path) != layout::Form::kDirectory) return;
  member_changed(path);
  const auto family = judged_as(path);
  if (!is_shared(family)) return;
  if (form_of(path) != layout::Form::kFile) {
    moves_.read([&](const Moves&) {
      if (nodes_.walk(path).node == node) forget_parcel_mark(disk_, LocalTree::view(path));
    });
  }
  if (family == layout::classify(path).family) made(path, writer);
  const WriterVerdict verdict = marks_.glance(path, family, marks_.architecture_of(path), writer);
  node->content.with([&](Content& content) { content.last_writer = writer; });
  const bool stays = change_provenance(node, [&](Provenance& now) {
    if (anew) now = {};
    if (verdict.says_nothing()) {
      now.scopes.clear();
      now.unjudged.clear();
    } else {
      now.add(verdict);
    }
  });
  if (stays) marks_.stays_here(path, verdict.judgement.why, 1);
}

void Origin::saw_writer_in_place(const NodePtr& node, pid_t writer, bool anew) {
  const auto path = nodes_.path_of(*node);
  if (!path) return;
  member_changed(*path);
  if (!is_shared(judged_as(*path))) return;
  if (seals_after_build(*path)) {
    // A linker at work: who started it is looked at when the build directory goes.
    const bool known = moves_.read([&](const Moves&) {
      return node->content.with([&](const Content& content) {
        const auto place = tree_.location(*node, content);
        return place && provenance(content, *place).is_known();
      });
    });
    if (!known) return;
  }
  saw_writer(node, *path, writer, anew);
}

Result<void> Origin::note_writer(const Node& node, Content& content, int file, const Caller& caller) {
  if (caller.pid != kWriteBack) {
    if (content.last_user == caller.uid) return {};
    INDUCTORFS_TRY(note_maker(file, caller.uid));
    content.last_user = caller.uid;
    return {};
  }
  INDUCTORFS_TRY_ASSIGN(const auto shown, shown_attributes_.of(node, content));
  INDUCTORFS_TRY_ASSIGN(const auto makers, makers_of(file));
  const mode_t open = (shown.mode | makers.once_open) & kMayWrite;
  const auto path = open != 0 ? nodes_.path_of(node) : std::nullopt;
  const auto root = path ? known_roots_.access_of(layout::name_of(*path)) : std::nullopt;
  if (!root) return {};
  const mode_t reach = reach_of(*path);
  if ((reach & S_IXOTH) != 0) return note_writers(file, open, shown.gid);
  return (reach & S_IXGRP) != 0 ? note_writers(file, S_IWGRP, root->gid) : Result<void>();
}

/// Who but the owner reaches it, or once did.
mode_t Origin::reach_of(const std::string& path) const {
  const auto root = known_roots_.access_of(layout::name_of(path));
  mode_t reach = root ? root->mode : S_IXOTH;
  for (std::string above = path;; above = parent_path(above)) {
    const auto makers = makers_of(disk_, LocalTree::view(above));
    reach |= makers ? makers->once_open : kMayReach;
    if (above.empty()) return reach & kMayReach;
  }
}

Result<void> Origin::note_open(const std::string& place, const std::string& path, bool all) const {
  INDUCTORFS_TRY_ASSIGN(const auto status, disk_.stat(place));
  const bool directory = status && S_ISDIR(status->st_mode);
  if (!status || (!directory && !S_ISREG(status->st_mode))) return {};
  if (directory && !tree_.has_something(path)) return {};  // nothing there can have been mapped
  INDUCTORFS_TRY_ASSIGN(const auto file, directory ? disk_.open_directory(place) : disk_.open_file(place, false));
  if (all && !directory) INDUCTORFS_TRY(note_owner(file.get()));
  if (all) return vfs::note_open(file.get(), S_IWOTH | S_IXOTH);
  const mode_t own = status->st_mode & (directory ? kMayReach : kMayWrite);
  // Who reaches a file that nobody else may write to does not matter.
  if (!directory && own == 0) return {};
  // Which group it was is not noted.
  const mode_t reach = (own & kMayReach) | reach_of(path);
  return vfs::note_open(file.get(), own | reach | ((reach & S_IXGRP) != 0 ? S_IXOTH : 0));
}

Result<void> Origin::note_namer(const std::string& place, const Caller& caller) const {
  INDUCTORFS_TRY_ASSIGN(const auto status, disk_.stat(place));
  if (caller.uid == 0 || !status || status->st_uid == caller.uid) return {};
  const bool directory = S_ISDIR(status->st_mode);
  if (!directory && !S_ISREG(status->st_mode)) return {};
  INDUCTORFS_TRY_ASSIGN(const auto file, directory ? disk_.open_directory(place) : disk_.open_file(place, false));
  return note_maker(file.get(), caller.uid);
}

Result<void> Origin::note_left(const std::string& path, const Caller& caller) const {
  const std::string directory = parent_path(path);
  return layout::is_common_directory(directory) ? Result<void>() : note_namer(LocalTree::view(directory), caller);
}

void Origin::member_changed(const std::string& path) {
  for (const std::string& parcel : parcels_of_member(path)) {
    moves_.read([&](const Moves&) { end_parcel_mark(disk_, LocalTree::view(parcel)); });
  }
}

void Origin::saw_writer_of_set(const NodePtr& directory, const std::string& path, pid_t writer) {
  const auto names = local_set(disk_, path);
  made_set(path, names, writer);
  const WriterVerdict verdict = marks_.glance(path, kKernel, marks_.architecture_of_set(LocalTree::view(path)), writer);
  Provenance set;
  moves_.read([&](const Moves&) {
    const auto now = nodes_.path_of(*directory);  // it may have moved
    if (!now) return;
    mark_set(LocalTree::view(*now), names, set, verdict);
    views_.mark_view(LocalTree::view(*now), names, *now, writer);
    for (const auto& name : names) {
      // What was remembered of a file in the staging directory is not true any more.
      const NodePtr node = nodes_.child(directory, name);
      if (node) node->content.with([](Content& content) { content.provenance.reset(); });
    }
  });
  if (directory->key) directory->key->state.with([&](KeyState& state) { state.provenance = set; });
  if (set.is_private()) marks_.stays_here(path, set.why_private, names.size());
}

void Origin::made(const std::string& path, pid_t writer) const {
  leases_.made(path);
  if (const auto& used = options_.used) {
    used({UseKind::kMade, writer, shown_path(path), path, std::string(environment_in(path)), {}, 0, {}});
  }
}

void Origin::made_set(const std::string& path, const std::vector<std::string>& names, pid_t writer) const {
  for (const std::string& name : names) {
    if (layout::is_group_file(name)) return made(join(path, name), writer);
  }
}

void Origin::mark_set(const std::string& place, const std::vector<std::string>& names, Provenance& set,
                      const WriterVerdict& verdict) const {
  set = {};
  if (verdict.says_nothing()) return;
  set.add(verdict);
  for (const auto& name : names) {
    const Provenance before = marks_.read(join(place, name));
    Provenance now = before;
    now.add(verdict);
    marks_.write(join(place, name), before, now);
    if (now.is_private() && !set.is_private()) set.make_private(now.why_private);
  }
}

/// Judges the writers that wait for it. Never waits for a judgement.
Standing Origin::judge_writers(const NodePtr& node, const std::string& path, const std::string& scope) {
  const auto waiting = node->content.with([](const Content& content) {
    return content.provenance ? content.provenance->unjudged
                              : std::vector<std::shared_ptr<const fingerprint::Writer>>{};
  });
  if (waiting.empty()) return Standing::kMatches;
  const auto judged = marks_.judge(path, judged_as(path), waiting);
  if (!judged) return Standing::kUnjudged;
  const std::string& why = *judged;
  bool more = false;
  const bool stays = change_provenance(node, [&](Provenance& now) {
    more = now.unjudged.size() > waiting.size();  // one that wrote while the others were judged
    if (more || now.is_private()) return;
    now.unjudged.clear();
    if (!why.empty()) return now.make_private(why);
    if (now.scopes.empty()) now.add_scope(scope);  // it was not known when they wrote
  });
  if (stays) marks_.stays_here(path, why, 1);
  return more ? Standing::kChanged : Standing::kMatches;
}

void Origin::cannot_judge(const NodePtr& node, const std::string& path, const std::string& why) {
  const bool stays = change_provenance(node, [&](Provenance& now) {
    if (!now.unjudged.empty() && now.scopes.empty()) now.make_private(why);
  });
  if (stays) marks_.stays_here(path, why, 1);
}

void Origin::cannot_judge_set(const NodePtr& directory, const std::string& path, const std::string& why) {
  if (!directory->key) return;
  const bool stays = directory->key->state.with([&](KeyState& state) {
    if (state.provenance.unjudged.empty() || !state.provenance.scopes.empty()) return false;
    state.provenance.make_private(why);
    return true;
  });
  if (stays) keep_set_private(path, why);
}

Result<Standing> Origin::standing(const NodePtr& node, const std::string& path, const std::string& scope) {
  if (const auto judged = judge_writers(node, path, scope); judged != Standing::kMatches) return judged;
  // The node's, whatever has the path by now: a rename may come in between.
  Provenance now;
  INDUCTORFS_TRY_ASSIGN(std::string why, marks_.why_not_shared(path));
  const bool stays = change_provenance(node, [&](Provenance& known) {
    if (!known.is_known() && why.empty()) why = Marks::kWriterLost;
    if (!why.empty()) known.make_private(why);
    now = known;
  });
  if (stays) marks_.stays_here(path, why, 1);
  return now.is_for(scope) ? Standing::kMatches : Standing::kStays;  // stays: Stale::host_changed() may take it away
}

Result<Standing> Origin::standing_of_set(const NodePtr& directory, const std::string& path,
                                         const layout::Scope& scope) {
  Provenance set;
  if (directory->key) set = directory->key->state.with([](const KeyState& state) { return state.provenance; });
  if (scope.id.empty()) {
    if (!set.is_private()) marks_.has_no_scope(path, local_set(disk_, path).size());  // else it is counted already
    return Standing::kStays;
  }
  const auto any = scopes_.scope_of(path, kKernel).id;
  const auto fits = [&](const Provenance& found) { return found.is_for(scope.id) || found.is_for(any); };
  if (!set.unjudged.empty()) {
    if (!set.scopes.empty() && !fits(set)) return Standing::kStays;
    const auto why = marks_.judge(path, kKernel, set.unjudged);
    if (!why) return Standing::kUnjudged;
    if (!why->empty()) {
      set.make_private(*why);
      keep_set_private(path, *why);
    } else {
      set.unjudged.clear();
      if (set.scopes.empty()) set.add_scope(scope.id);  // as in judge_writers()
      change_set(path, [&](Provenance& now) { now.add_scope(scope.id); });
    }
    directory->key->state.with([&](KeyState& state) { state.provenance = set; });
  }
  for (const auto& name : local_set(disk_, path)) {
    const std::string file = join(path, name);
    if (const NodePtr node = nodes_.find(file)) {
      if (const auto judged = judge_writers(node, file, scope.id); judged != Standing::kMatches) return judged;
    }
    const auto named = moves_.read([&](const Moves&) { return disk_.stat(LocalTree::view(file)); });
    // The set, or this file of it, has another name by now. Where the disk fails, sealing it says so.
    if (named && !*named) return Standing::kStays;
    INDUCTORFS_TRY_ASSIGN(const auto why, marks_.why_not_shared(file));
    if (!why.empty()) {
      if (!provenance_of(file).is_private()) keep_set_private(path, why);
      return Standing::kStays;
    }
    Provenance member = provenance_of(file);
    if (!member.is_known()) member = set;  // where the disk keeps no marks
    if (!member.is_known() && marks_.everyone_fits()) {
      member.add_scope(scope.id);
      change_set(path, [&](Provenance& now) { now.add_scope(scope.id); });
    }
    if (!member.is_known()) {
      keep_set_private(path, std::string(Marks::kWriterLost));
      return Standing::kStays;
    }
    if (!fits(member)) return Standing::kStays;
  }
  return Standing::kMatches;
}

Provenance Origin::provenance_of(const std::string& path) const {
  return moves_.read([&](const Moves&) {
    const NodePtr node = nodes_.find(path);
    if (!node) return marks_.read(LocalTree::view(path));
    return node->content.with([&](const Content& content) { return provenance(content, LocalTree::view(path)); });
  });
}

void Origin::change_set(const std::string& path, const std::function<void(Provenance&)>& change) {
  for (const auto& name : local_set(disk_, path)) {
    auto node = lookup_.pin_path(join(path, name));
    if (!node) continue;
    (void)change_provenance(*node, change);  // the caller says it of the set as a whole
    tree_.unpin(*node);
  }
}

void Origin::keep_set_private(const std::string& path, const std::string& why) {
  change_set(path, [&](Provenance& now) { now.make_private(why); });
  marks_.stays_here(path, why, local_set(disk_, path).size());
}

}  // namespace inductorfs::vfs
