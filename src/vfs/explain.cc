// SPDX-License-Identifier: Apache-2.0
#include "vfs/explain.h"

#include <sys/stat.h>

#include <algorithm>

#include "inductorfs/base/fd.h"
#include "vfs/read/branches.h"
#include "vfs/read/lookup.h"
#include "vfs/read/root_scopes.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/parcel_mark.h"
#include "vfs/tree/paths.h"
#include "vfs/write/key_sets.h"

namespace inductorfs::vfs {
namespace {

constexpr size_t kWaitingLookedThrough = 10'000;
constexpr size_t kReportedPaths = 5;
constexpr size_t kReportedRoots = 64;
constexpr size_t kReportedUsers = 20;

/// The directory that the cluster's names of Triton's sets lie in. No lookup finds it, unless a job made it.
bool is_any_device(const std::string& path) {
  return last_component(path) == layout::kAnyDevice &&
         layout::name_of(path).path == "triton/" + std::string(layout::kAnyDevice);
}
constexpr const char* kAnyDeviceName = "a name in the cluster only; programs ask for a device's, as triton/0";

/// Of a local file of a shared family that fits this host and has no seal.
std::string why_not_sealed(const LocalTree& tree, const SealQueue& queue, const InPlace& in_place,
                           const Refusals& refusals, const std::string& path) {
  if (const std::string why = in_place.why_waits(path); !why.empty()) {
    return "written in place on this host, and " + why +
           ": it is published when nobody has it open for writing and nothing was written to it for --quiet-time";
  }
  const auto waiting = queue.waiting_paths(kWaitingLookedThrough);
  const std::string shown = shown_path(path);
  const std::string directory = shown.substr(0, shown.rfind('/'));
  for (const auto& known : waiting) {
    if (known == shown || known == directory) return "written on this host, and about to be published";
  }
  if (mark_of(tree, LocalTree::view(path), kChangedMark)) {
    return "changed in place on this host after it was published or fetched, so it stays here";
  }
  if (const std::string why = refusals.why_refused(path); !why.empty()) {
    return "written on this host, and refused when it was complete, so it stays here: " + why;
  }
  if (is_changed_parcel(tree, LocalTree::view(path))) {
    return "made or unpacked on this host, and a file of it was changed since, so it stays here as it is; remove it to "
           "get the cluster's again";
  }
  if (form_of(path) == layout::Form::kDirectory) {
    return "it stays on this host: " + std::string(Marks::kDirectoryNoSign);
  }
  if (in_place.is_on()) {
    return "written in place on this host; either its compiler's directory is still beside it, or the kernel does not "
           "tell whether somebody has it open for writing, so it stays here; copy it by rsync -a, which renames";
  }
  return "it stays on this host: " + std::string(Marks::kNoSign);
}

/// Without its bytes.
std::optional<OwnFile> newest_below(const LocalTree& tree, const std::string& directory, int depth,
                                    const std::string& name) {
  std::optional<OwnFile> newest;
  if (depth == 0) {
    const std::string path = join(directory, name);
    const auto status = tree.stat(LocalTree::view(path));
    if (!status || !*status || !S_ISREG((*status)->st_mode)) return newest;
    return OwnFile{path, {}, modified_ns(**status)};
  }
  for (const auto& item : tree.list(LocalTree::view(directory)).value_or(std::vector<LocalTree::Item>{})) {
    if (item.type != S_IFDIR) continue;
    auto found = newest_below(tree, join(directory, item.name), depth - 1, name);
    if (found && (!newest || found->mtime_ns > newest->mtime_ns)) newest = std::move(found);
  }
  return newest;
}

}  // namespace

Explanation Explainer::explain(std::string_view asked) {
  Explanation result;
  result.path = branches_.resolve(std::string(asked));
  // The directory of a key has the facts that count for the key.
  const bool is_key = layout::is_candidate_directory(result.path);
  const bool is_set = layout::is_triton_key_directory(result.path);
  const auto asked_key = layout::key_asked_by(result.path);
  const auto classified = layout::classify(result.path);
  const layout::Family family = is_set      ? layout::Family::kTritonKernel
                                : asked_key ? asked_key->family
                                            : classified.family;
  const auto& rule = layout::rule_of(family);
  // A set of one architecture has a scope of its own on a host with unequal devices.
  const auto scope = scopes_.scope_of(
      result.path, family,
      is_set ? marks_.architecture_of_set(LocalTree::view(result.path)) : marks_.architecture_of(result.path));
  result.canonical = classified.canonical;
  result.family = std::string(rule.name);
  result.rule = std::string(rule.why) + " (" + std::string(rule.source) + ")";
  result.scope = scope.id;
  result.scope_text = scope.text;
  result.why_private = scope.why_private;
  explain_place(result);
  if (is_key && lookup_.is_empty_key(result.path)) {
    result.visible = false;
    result.why = "an empty directory: the artefacts of this key have gone";
  }
  if (!result.visible) result.absent = lookup_.why_absent(layout::name_of(result.path));
  if (result.where == "directory" && family == layout::Family::kOther) {
    result.rule = "a directory, whose files have families of their own: explain one of them";
    result.why_private.clear();
  }
  if (const auto state = catalog_.publish_state(result.canonical)) {
    switch (state->state) {
      case catalog::PublishState::kQueued:
        result.publish = "queued" + (state->why.empty() ? std::string() : ": " + state->why);
        break;
      case catalog::PublishState::kPublished:
        result.publish = "published";
        break;
      case catalog::PublishState::kKeptLocal:
        result.publish = "kept local: " + state->why;
        break;
      case catalog::PublishState::kRefused:
        result.publish = "refused: " + state->why;
        break;
    }
  }
  result.path = std::string(asked);
  return result;
}

/// Says whether a lookup finds the directory because the cluster has entries below it.
bool Explainer::shows_directory(const std::string& path) const {
  const auto name = layout::name_of(path);
  return !is_any_device(path) && known_roots_.will_list_cluster(name) && catalog_.has_directory(name);
}

/// Returns the first directory above the path that a lookup does not find; empty when it finds all of them.
std::string Explainer::missing_above(const std::string& path) const {
  for (size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
    std::string above = path.substr(0, end);
    if (nodes_.find(above)) continue;
    const auto status = moves_.read([&](const Moves&) { return disk_.stat(LocalTree::view(above)); });
    if (!(status && *status) && !shows_directory(above)) return above;
  }
  return {};
}

/// Of what is not on the disk. A node that a program has looked up is found as long as the kernel knows it.
void Explainer::explain_without_entry(Explanation& result) const {
  const NodePtr looked_up = nodes_.find(result.path);
  const std::string above = missing_above(result.path);
  const bool has_entries = shows_directory(result.path) && above.empty();
  result.visible = has_entries || looked_up;
  result.where = "nowhere";
  if (result.visible && (!looked_up || looked_up->is_directory())) {
    result.where = "directory";
    result.why = has_entries ? "entries of the cluster lie below it"
                             : "a program has looked it up, and nothing of the cluster lies below it any more";
  } else if (looked_up) {
    const codec::Entry entry = looked_up->content.with([](const Content& content) { return content.entry; });
    result.where = "store";
    result.digest = entry.digest.to_hex();
    result.origin = entry.origin;
    result.why = "published by " + entry.origin + ", and looked up by a program before its entry went";
  } else if (const std::string unfit = catalog_.why_unfit(layout::name_of(result.path)); !unfit.empty()) {
    result.why = "the cluster has an entry that this host cannot use, and does not show: " + unfit +
                 "; it is looked at again when the host changes, or at the next mount";
  } else if (is_any_device(result.path) || is_any_device(above)) {
    result.why = kAnyDeviceName;
  } else {
    result.why = result.scope.empty() ? "no file here, and " + result.why_private
                                      : "no file here, and the cluster has no such entry in this scope";
  }
}

void Explainer::explain_place(Explanation& result) {
  const auto status = moves_.read([&](const Moves&) { return disk_.stat(LocalTree::view(result.path)); });
  const NodePtr directory = nodes_.find(result.path.substr(0, result.path.rfind('/')));
  const auto known = directory ? sets_.entry_of(*directory, result.path) : catalog_.find(layout::name_of(result.path));
  if (status && *status) return explain_local(result, S_ISDIR((*status)->st_mode), known);
  if (!known) return explain_without_entry(result);
  explain_entry(result, *known);
}

void Explainer::explain_local(Explanation& result, bool is_directory, const std::optional<catalog::KnownEntry>& known) {
  result.visible = true;
  const bool is_parcel = form_of(result.path) != layout::Form::kFile;
  const auto parcel = is_parcel ? parcel_mark_of(disk_, LocalTree::view(result.path)) : std::nullopt;
  if (parcel && parcel->fetched && known) {
    result.where = "store";
    result.digest = parcel->digest.to_hex();
    result.origin = known->entry.origin;
    result.why = "published by " + known->entry.origin + ", and unpacked on this host";
    return;
  }
  if (is_directory && !is_parcel) {
    result.where = "directory";
    result.why = "made on this host";
    return;
  }
  // Whatever has the name by now: the open(2) of a FIFO would wait for a writer that never comes.
  const auto file = disk_.open_file(LocalTree::view(result.path), false);
  const auto seal = parcel ? std::optional(parcel->digest.to_hex())
                    : file ? seal_of(file->get()).value_or(std::nullopt)
                           : std::nullopt;
  const std::string kind = is_directory ? "local directory" : "local file";
  result.where = seal ? "sealed " + kind : kind;
  result.digest = seal.value_or("");
  result.origin = options_.origin;
  const bool is_shared = layout::rule_of(layout::classify(result.path).family).shared;
  const Provenance marks = is_shared ? origin_.provenance_of(result.path) : Provenance{};
  result.made_for = marks.scopes;
  if (marks.is_private()) {
    result.why = "written on this host, and stays here: " + marks.why_private;
  } else if (!marks.unjudged.empty()) {
    result.why = "written on this host; its writer's packages are being compared with this host's";
  } else if (seal) {
    result.why = "written on this host, and sealed";
  } else if (is_shared && !result.scope.empty()) {
    result.why = why_not_sealed(disk_, seal_queue_, in_place_, refusals_, result.path);
  } else if (is_shared && marks_.is_in_no_environment(result.path)) {
    result.why = Marks::kNoEnvironment;
  } else if (layout::classify(result.path).family == layout::Family::kParcelMember) {
    result.why =
        "it has no entry of its own: it comes and goes with the directory or the index that it belongs to; "
        "explain that one";
  } else {
    result.why = "written on this host, and private";
  }
}

void Explainer::explain_entry(Explanation& result, const catalog::KnownEntry& known) {
  // On a host with unequal devices it is the entry that says for which of them it is.
  if (result.scope.empty()) {
    result.scope = known.scope;
    result.why_private.clear();
  }
  result.digest = known.entry.digest.to_hex();
  result.origin = known.entry.origin;
  result.where = store_.find(known.entry.digest) ? "store" : "cluster";
  if (const std::string above = missing_above(result.path); !above.empty()) {
    result.visible = false;
    result.why = "published by " + known.entry.origin + ", and not found here, because there is no directory " +
                 shown_path(above) + "; it " +
                 (is_any_device(above) ? "is " + std::string(kAnyDeviceName)
                                       : "shows the cluster's names when a job makes it or uses it as its cache");
    return;
  }
  const std::string refusal = parcels_.why_not_unpacked(result.path, known.entry.digest);
  result.visible = refusal.empty();
  if (!result.visible) {
    result.why =
        "published by " + known.entry.origin + ", and not unpacked on this host when it was last asked for: " + refusal;
    return;
  }
  result.why = result.where == "store" ? "published by " + known.entry.origin + ", and its bytes are on this host"
                                       : "published by " + known.entry.origin + "; fetched and verified at first use";
}

std::optional<OwnFile> Explainer::newest_own(const std::string& directory, int depth, const std::string& name,
                                             uint64_t limit) {
  auto newest = newest_below(disk_, directory, depth, name);
  if (newest) newest->bytes = disk_.read_file(LocalTree::view(newest->path), limit).value_or("");
  return newest;
}

bool Explainer::lets_in(std::string_view path, uid_t user, std::span<const gid_t> groups) const {
  for (size_t end = 0; end != std::string_view::npos; end = path.find('/', end + 1)) {
    const std::string above(path.substr(0, end));
    const auto status = disk_.stat(LocalTree::view(above));
    if (!status || !*status || !S_ISDIR((*status)->st_mode)) return !status || !*status || !S_ISLNK((*status)->st_mode);
    if (!above.empty() && layout::is_common_directory(above)) continue;  // as the root is
    const bool in_group = std::ranges::find(groups, (*status)->st_gid) != groups.end();
    const mode_t enters = (*status)->st_uid == user ? S_IXUSR : in_group ? S_IXGRP : S_IXOTH;
    if (((*status)->st_mode & enters) == 0) return false;
  }
  return true;
}

FileSystemStatus Explainer::status() const {
  FileSystemStatus result;
  result.nodes = tree_.nodes().size();
  result.unsealed = seal_queue_.waiting() + in_place_.waiting();
  result.in_place = in_place_.reasons(kReportedPaths);
  result.still_written = seal_queue_.still_written(kReportedPaths);
  result.pending_sets = key_sets_.pending();
  result.refused = refusals_.lines();
  result.foreign = marks_.foreign();
  result.foreign_reasons = marks_.reasons();
  result.users = disk_.charges().report(kReportedUsers);
  result.users_known = disk_.charges().all_counted();
  result.user_bytes = disk_.charges().limits().bytes;
  result.user_files = disk_.charges().limits().files;
  const auto roots = known_roots_.paths();
  result.roots = roots.size();
  for (const auto& path : roots) {
    if (result.first_roots.size() == kReportedRoots) break;
    const auto owner = known_roots_.owner_of(path);
    if (!owner) continue;
    const auto environment = environment_in(path);
    result.first_roots.push_back({shown_path(path), *owner, scopes_.shared_with(path),
                                  environment.empty() ? std::string() : host_.environment_text(environment)});
  }
  return result;
}

}  // namespace inductorfs::vfs
