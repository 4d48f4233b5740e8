// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>

#include "vfs/read/lookup.h"
#include "vfs/tree/paths.h"
#include "vfs/tree/shown_attributes.h"

/// Lookups in Triton key directories: whose files one shows (see KeyState).

namespace inductorfs::vfs {

void Lookup::lookup_in_key_directory(const Site& site, const Caller& caller, LookupDone done) {
  if (auto own = own_pending_file(site, caller)) return done({*own, false});
  if (!site.seen.empty()) {
    done = [this, site, done = std::move(done)](LookupAnswer answer) {
      done(views_.for_view(site, std::move(answer)));
    };
  }
  const auto [committed, has_pending] = site.parent->key->state.with(
      [](const KeyState& state) { return std::make_pair(state.committed, !state.writers.empty()); });
  // A set that is committed later takes the place of what has its names now, and the kernel is not told of each.
  const bool keep = !has_pending && committed != KeyState::Committed::kNone;
  if (const NodePtr known = nodes_.look_up_child(site.parent, site.name))
    return done({found(known, keep), false, use_of(*known)});
  if (auto local = resolve_locally(site, keep)) return done({std::move(*local), false});
  if (committed == KeyState::Committed::kLocal) {
    // A set that leaves the view in this moment leaves no absence behind.
    const bool still = site.parent->key->state.with(
        [](const KeyState& state) { return state.committed == KeyState::Committed::kLocal; });
    return answer_absent(done, keep && still);
  }

  if (committed == KeyState::Committed::kCluster) {
    const auto shown = sets_.entry_of(*site.parent, site.path);
    return shown ? show_entry(site, *shown, keep, std::move(done)) : answer_absent(done, keep);
  }
  const auto set = sets_.offered(*site.parent, {parent_path(site.entry.path), site.entry.root});
  // A set may be committed at any moment, without the kernel being told of each name.
  if (set.empty()) {
    if (auto put = pending_file_for_all(site)) return done({*put, false});
    return answer_absent(done, false, why_absent(site.entry));
  }
  show_cluster_set(site, set, std::move(done));
}

std::optional<Found> Lookup::own_pending_file(const Site& site, const Caller& caller) {
  const bool has_pending = site.parent->key->state.with([](const KeyState& state) { return !state.writers.empty(); });
  if (!has_pending) return std::nullopt;
  const SetOwner looking = set_owner_of(caller.pid);
  const auto is_on_disk = [&](const Moves&) {
    return disk_.stat(LocalTree::view(site.path)).value_or(std::nullopt).has_value();
  };
  const bool is_committed =
      !looking.is_known() && (moves_.read(is_on_disk) || sets_.entry_of(*site.parent, site.path).has_value());
  const std::string directory = site.parent->key->state.with([&](const KeyState& state) {
    const auto* set = state.shown_to(looking, site.name, is_committed);
    return set == nullptr ? std::string() : set->place;
  });
  return directory.empty() ? std::nullopt : pending_file(site, join(directory, site.name));
}

std::optional<Found> Lookup::pending_file_for_all(const Site& site) {
  if (layout::is_group_file(site.name)) return std::nullopt;
  const std::string directory = site.parent->key->state.with([](const KeyState& state) {
    const auto* set = state.shown_to_all();
    return set == nullptr ? std::string() : set->place;
  });
  return directory.empty() ? std::nullopt : pending_file(site, join(directory, site.name));
}

std::optional<Found> Lookup::pending_file(const Site& site, const std::string& place) {
  const auto status = disk_.stat(place);
  if (!status || !*status) return std::nullopt;
  NodePtr node = nodes_.find_local((*status)->st_ino);
  if (!node) {
    node = tree_.new_node(S_IFREG, (*status)->st_ino, site);
    node->content.with([&](Content& content) {
      content.elsewhere = place;
      nodes_.note_content(*node, NodeJournal::local(node->id, place));
      content.attributes = attributes_of(**status);
      content.attributes_valid = (*status)->st_nlink == 1;  // as in add_local()
    });
  }
  node = nodes_.add_unnamed(node, 1, (*status)->st_ino);  // another thread may have made one meanwhile
  auto result = found(node, false);
  if (!result) return std::nullopt;
  return *result;
}

void Lookup::show_cluster_set(const Site& site, const std::vector<catalog::KnownEntry>& set, LookupDone done) {
  std::vector<codec::Entry> entries;
  entries.reserve(set.size());
  for (const auto& known : set) entries.push_back(known.entry);
  // The whole set or nothing: a reader that has seen the group file takes a missing child for an error
  // (triton/compiler/compiler.py: CompiledKernel.__init__).
  fetcher_.fetch(entries, [this, site, set, done = std::move(done)](const std::vector<FetchOutcome>& got) {
    const bool lost = std::find(got.begin(), got.end(), FetchOutcome::kLost) != got.end();
    const bool here = std::all_of(got.begin(), got.end(), [](auto outcome) { return outcome == FetchOutcome::kHere; });
    if (lost) {
      // One lost child makes the set useless: all of it goes, so that the cluster takes the next writer's.
      for (const auto& known : set) catalog_.report_lost(known);
    }
    if (here) sets_.put_aside(*site.parent, set);
    if (!here || !sets_.take(site.parent, set)) {
      counters_.get(lost ? "lookup.lost" : "lookup.not_now").add();
      // All that is here, and was not taken, is no whole set, or a program has made another one meanwhile.
      const auto first = std::ranges::find_if(got, [](auto outcome) { return outcome != FetchOutcome::kHere; });
      if (!lost && first == got.end()) return answer_absent(done, false, UseKind::kUnfit);
      return answer_absent(done, false, lost ? UseKind::kLost : use_of(*first));
    }
    counters_.get("lookup.first_touch").add();
    const bool keep = site.parent->key->state.with([](const KeyState& state) { return state.writers.empty(); });
    if (auto local = resolve_locally(site, keep)) return done({std::move(*local), false});
    const auto shown = sets_.entry_of(*site.parent, site.path);
    if (!shown) return answer_absent(done, false);
    auto result = add_if_still(site, [&] { return add_shared(site, shown->entry, 1); });
    if (result) result->keep = keep;
    done({std::move(result), false, UseKind::kFetched, shown->entry.digest});
  });
}

}  // namespace inductorfs::vfs
