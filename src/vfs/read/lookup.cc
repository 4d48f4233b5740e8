// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/lookup.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <utility>

#include "inductorfs/base/log.h"
#include "inductorfs/layout/layout.h"
#include "vfs/read/group_views.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/shown_attributes.h"
#include "vfs/tree/view_files.h"

namespace inductorfs::vfs {
namespace {

/// A rename has moved the file on the disk, and its node not yet: another node for it would take its place.
bool is_being_renamed(const NodeTable& nodes, const LocalTree& tree, const std::string& path) {
  const auto status = tree.stat(LocalTree::view(path));
  if (!status || !*status || !S_ISREG((*status)->st_mode) || (*status)->st_nlink > 1) return false;
  const NodePtr known = nodes.find_local((*status)->st_ino);
  return known && nodes.links_of(known) > 0;
}

/// Says whether the name is one of a compile's: names that programs ask for on the way, and what is private, are not.
bool is_counted(const std::string& path) {
  return layout::key_asked_by(path).has_value() || layout::rule_of(layout::classify(path).family).shared;
}

bool is_absence(const LookupAnswer& answer) {
  return !answer.found && answer.found.error().code() == ErrorCode::kNotFound;
}

/// The name that the cluster has for every device. No job asks for what is there.
bool is_any_device(const Site& site) {
  return site.name == layout::kAnyDevice && site.entry.path == std::string("triton/") + site.name;
}

}  // namespace

void answer_absent(const LookupDone& done, bool keep, UseKind why) { done({fail(ErrorCode::kNotFound), keep, why}); }

void Lookup::lookup(NodeId parent, std::string_view name, const Caller& caller, LookupDone done) {
  const NodePtr directory = nodes_.find(parent);
  if (!directory) return answer_absent(done, false);
  const NodePtr known = directory->key ? nullptr : nodes_.look_up_child(directory, name);
  if (known) return answer_known({directory, std::string(name), {}, {}, {}}, known, caller, std::move(done));
  auto where = tree_.site_now(parent, name);
  if (!where) return done({fail(std::move(where).error()), false});
  const Site site = as_seen(*std::move(where), caller);
  done = telling(site.path, caller, in_view(site, caller, std::move(done)));
  if (!known_roots_.admit(site.entry)) return lookup_without_cluster(site, caller, done);
  if (scopes_.use(site.entry.root)) prefetch_.want_newest();

  if (directory->key && is_kernel_file(site.path)) return lookup_in_key_directory(site, caller, std::move(done));
  if (const NodePtr other = directory->key ? nodes_.look_up_child(directory, site.name) : nullptr) {
    return done({found(other, kernel_may_keep(site.path)), false, use_of(*other)});
  }
  done = leasing(site, caller, std::move(done));
  if (form_of(site.path) != layout::Form::kFile) return lookup_parcel(site, std::move(done));
  if (auto local = resolve_locally(site, true)) return done({std::move(*local), false});
  if (is_any_device(site)) return answer_absent(done, true);
  if (const auto entry = catalog_.find(site.entry)) return show_entry(site, *entry, true, std::move(done));
  if (known_roots_.lists_cluster(site.entry) && catalog_.has_directory(site.entry)) {
    return done({show_directory(site), false, UseKind::kCluster});
  }
  if (auto listed = show_listed(site, *site.parent, "")) return done({std::move(*listed), false});
  answer_not_there(site, done);
}

/// The hot path: mkdir and O_EXCL of an existing name send a LOOKUP whatever the timeouts, and an answer from memory is
/// all they need.
void Lookup::answer_known(Site site, const NodePtr& known, const Caller& caller, LookupDone done) {
  site.path = nodes_.path_of(*known).value_or("");
  if (known->key) views_.meet(known, site.path, caller);
  const auto asked = leases_.is_on() ? leases_.asked(site.path, layout::name_of(site.path), caller) : std::nullopt;
  const bool awaited = asked && !leases_.has_artefact(*asked);
  const bool keep = !awaited && kernel_may_keep(site.path);
  const std::string path = site.path;
  done = telling(path, caller, in_view(std::move(site), caller, std::move(done)));
  done({moves_.read([&](const Moves&) { return found(known, keep); }), false,
        awaited ? UseKind::kAwaited : use_of(*known)});
}

/// A group file names the files beside it by their directory, as the caller sees it.
Site Lookup::as_seen(Site site, const Caller& caller) const {
  if (!site.parent->key || !layout::is_group_file(site.name)) return site;
  site.seen = views_.seen_by(caller.pid, parent_path(site.path));
  site.as_it_is = site.seen.empty();
  if (site.as_it_is) site.seen = views_.path_in_mount(parent_path(site.path));
  return site;
}

/// Of an index.
LookupDone Lookup::in_view(Site site, const Caller& caller, LookupDone done) {
  if (form_of(site.path) != layout::Form::kIndex) return done;
  site.seen = views_.seen_by(caller.pid, parent_path(site.path));
  return [this, site = std::move(site), done = std::move(done)](LookupAnswer answer) {
    done(views_.for_index(site, std::move(answer)));
  };
}

/// Where nobody has compiled this graph yet: has the caller do it, or wait for another process that does.
LookupDone Lookup::leasing(const Site& site, const Caller& caller, LookupDone done) {
  if (leases_.is_above_graphs(site.entry)) {
    return [this, site, done = std::move(done)](LookupAnswer answer) {
      if (is_absence(answer)) answer = {make_directory(site), false};
      done(std::move(answer));
    };
  }
  const auto asked = leases_.asked(site.path, site.entry, caller);
  if (!asked) return done;
  return [this, site, asked, done = std::move(done)](LookupAnswer answer) {
    if (answer.found && !leases_.has_artefact(*asked)) {  // somebody made the directory alone
      answer.use = UseKind::kAwaited;
      answer.found->keep = false;
    }
    if (!is_absence(answer)) return done(std::move(answer));
    answer.keep_absence = false;
    leases_.take(*asked, [this, site, answer = std::move(answer), done](bool by_another) {
      if (!by_another) return done(answer);
      done({make_directory(site), false, UseKind::kAwaited});
    });
  };
}

/// On this host, as a program would.
Result<Found> Lookup::make_directory(const Site& site, bool keep) {
  const auto make = [&](const Moves& moves) {
    return tree_.is_at(moves, site) ? tree_.make_view_directories(site.path) : fail(ErrorCode::kNotFound);
  };
  if (auto made = moves_.read(make); !made) return fail(std::move(made).error());
  auto local = resolve_locally(site, keep);
  return local ? std::move(*local) : Result<Found>(fail(ErrorCode::kNotFound));
}

/// A directory of the cluster. A root below the mountpoint lists those that somebody has looked up: the local disk
/// remembers which, because the kernel forgets them. In the root itself where environments have branches a directory
/// would be everybody's.
Result<Found> Lookup::show_directory(const Site& site) {
  prefetch_.directory(site.entry);
  // A listing that the kernel keeps may lack it.
  if (!site.entry.root.empty()) notifier_.wish_content_forgotten(site.parent->id);
  const bool is_listed_later = !site.entry.root.empty() && parent_path(site.path) == site.entry.root &&
                               host_.learns() == !environment_in(site.path).empty();
  if (is_listed_later) {
    if (auto made = make_directory(site, true)) return made;
  }
  return add_if_still(site, [&] { return add_virtual(site, 1); });
}

void Lookup::open_directory(NodeId directory, const Caller& caller, std::function<void()> done) {
  const NodePtr node = nodes_.find(directory);
  const auto path = node ? nodes_.path_of(*node) : std::nullopt;
  const auto asked = path ? leases_.asked(*path, layout::name_of(*path), caller) : std::nullopt;
  if (!asked) return done();
  leases_.wait(*asked, std::move(done));
}

/// Has the listener told of the answer, where the name is of a family that is shared.
LookupDone Lookup::telling(const std::string& path, const Caller& caller, LookupDone done) const {
  const auto& used = options_.used;
  if (!used || !is_counted(path)) return done;
  return [this, &used, path, thread = caller.pid, begun = std::chrono::steady_clock::now(),
          done = std::move(done)](LookupAnswer answer) {
    if (answer.use == UseKind::kAwaited) return done(std::move(answer));
    const bool is_empty = answer.found && answer.use != UseKind::kFetched && is_empty_key(path);
    const UseKind use = is_empty ? why_absent(layout::name_of(path)) : answer.use;
    if (is_empty) answer.found->keep = false;  // or the next job that asks would not be noticed
    UseNotice notice{use, thread, shown_path(path), path, std::string(environment_in(path)), {}, 0, answer.digest};
    notice.waited = std::chrono::steady_clock::now() - begun;
    // Of the blob: what it shows may be a directory.
    if (answer.found && notice.use == UseKind::kFetched && answer.digest) {
      if (const auto blob = store_.find(*answer.digest)) notice.bytes = blob->size;
    }
    used(std::move(notice));
    done(std::move(answer));
  };
}

UseKind Lookup::use_of(Node& node) {
  return node.content.with(
      [](const Content& content) { return content.backing == Backing::kLocal ? UseKind::kLocal : UseKind::kCluster; });
}

UseKind Lookup::use_of(FetchOutcome outcome) {
  switch (outcome) {
    case FetchOutcome::kHere:
      return UseKind::kFetched;
    case FetchOutcome::kLost:
      return UseKind::kLost;
    case FetchOutcome::kNotNow:
      break;
    case FetchOutcome::kAway:
      return UseKind::kAway;
    case FetchOutcome::kNoRoom:
      return UseKind::kNoRoom;
    case FetchOutcome::kUnfit:
      return UseKind::kUnfit;
  }
  return UseKind::kLate;
}

UseKind Lookup::why_absent(const layout::Name& name) const {
  if (!known_roots_.lists_cluster(name)) return UseKind::kPrivate;
  switch (catalog_.why_absent(name)) {
    case catalog::Absence::kNever:
      break;
    case catalog::Absence::kRemoved:
      return UseKind::kRemoved;
    case catalog::Absence::kFrozen:
      return UseKind::kFrozen;
    case catalog::Absence::kUnread:
      return fetcher_.is_resting() ? UseKind::kAway : UseKind::kUnread;
    case catalog::Absence::kDeleted:
      return UseKind::kDeleted;
    case catalog::Absence::kLost:
      return UseKind::kLost;
    case catalog::Absence::kUnfit:
      return UseKind::kUnfit;
  }
  return fetcher_.is_resting() ? UseKind::kAway : UseKind::kNothing;
}

bool Lookup::is_empty_key(const std::string& path) const {
  if (!layout::is_candidate_directory(path)) return false;
  const layout::Name name = layout::name_of(path);
  if (known_roots_.lists_cluster(name) && catalog_.has_directory(name)) return false;
  const auto names = disk_.list(LocalTree::view(path));
  // torch writes into names that begin with a dot first (codecache.py: write_atomic).
  return names && std::ranges::all_of(*names, [](const auto& item) { return item.name.starts_with('.'); });
}

void Lookup::answer_not_there(const Site& site, const LookupDone& done) const {
  answer_absent(done, known_roots_.lists_cluster(site.entry) && absence_may_be_kept(site.path, site.entry),
                why_absent(site.entry));
}

/// In one root too many.
void Lookup::lookup_without_cluster(const Site& site, const Caller& caller, const LookupDone& done) {
  counters_.get("lookup.too_many_roots").add();
  if (site.parent->key) {
    if (auto own = own_pending_file(site, caller)) return done({*own, false});
  }
  if (const NodePtr known = nodes_.look_up_child(site.parent, site.name)) return done({found(known, false), false});
  // As in lookup_in_key_directory(): another file may take the name, and the kernel is not told.
  if (auto local = resolve_locally(site, !site.parent->key)) return done({std::move(*local), false});
  if (site.parent->key) {
    if (auto put = pending_file_for_all(site)) return done({*put, false});
  }
  answer_absent(done, false, UseKind::kPrivate);
}

/// A directory that the last listing had may be empty by now, because the sets in it went with names elsewhere. Whoever
/// has listed it goes on with it (shutil.rmtree).
std::optional<Result<Found>> Lookup::show_listed(const Site& site, Node& lister, std::string_view made_for) {
  const bool is_listed = lister.listing.with([&](const Listing& listing) {
    const auto at = listing.find(site.name);
    return listing.made_for == made_for && at != listing.by_cookie.end() && at->second.type == S_IFDIR;
  });
  if (!is_listed) return std::nullopt;
  auto result = add_if_still(site, [&] { return add_virtual(site, 1); });
  if (result) result->keep = false;
  return result;
}

std::optional<Result<Found>> Lookup::resolve_locally(const Site& asked, bool keep) {
  return moves_.read([&](const Moves& moves) -> std::optional<Result<Found>> {
    INDUCTORFS_TRY_ASSIGN(const Site site, tree_.site(moves, asked.parent->id, asked.name));
    INDUCTORFS_TRY_ASSIGN(auto status, disk_.stat(LocalTree::view(site.path)));
    if (!status && site.path != asked.path) return fail(ErrorCode::kNotFound);  // what follows is about where it was
    if (!status) return std::nullopt;
    auto result = add_local(site, *status, 1);
    if (result) result->keep = keep && kernel_may_keep(site.path);
    if (result && S_ISDIR(status->st_mode)) prefetch_.directory(site.entry);
    return result;
  });
}

void Lookup::show_entry(const Site& site, const catalog::KnownEntry& known, bool keep, LookupDone done) {
  if (is_here(store_, known.entry)) {
    // It may have come under another name, or from this host's own files.
    if (const auto fits = fetcher_.judge_present(known.entry); fits != FetchOutcome::kHere) {
      return fetched(site, known, fits, done);
    }
    auto result = add_entry(site, known);
    if (result) result->keep = keep;
    const UseKind use = result ? UseKind::kCluster : UseKind::kLate;
    return done({std::move(result), false, use, known.entry.digest});
  }
  fetcher_.fetch({known.entry}, [this, site, known, done = std::move(done)](const std::vector<FetchOutcome>& got) {
    fetched(site, known, got.front(), done);
  });
  prefetch_.beside(site.entry);
}

void Lookup::fetched(const Site& site, const catalog::KnownEntry& known, FetchOutcome outcome, const LookupDone& done) {
  switch (outcome) {
    case FetchOutcome::kHere:
      break;
    case FetchOutcome::kLost:
      counters_.get("lookup.lost").add();
      catalog_.report_lost(known);
      for (const auto& other : sets_.set_at(*site.parent)) catalog_.report_lost(other);
      if (site.parent->key) sets_.drop(site.parent);
      return answer_absent(done, false, use_of(outcome));
    case FetchOutcome::kNotNow:
    case FetchOutcome::kAway:
    case FetchOutcome::kNoRoom:
      counters_.get("lookup.not_now").add();
      return answer_absent(done, false, use_of(outcome));
    case FetchOutcome::kUnfit:
      if (site.parent->key) sets_.drop(site.parent);
      return answer_absent(done, false, use_of(outcome));  // hidden by now (Fit); the next entry may fit
  }
  counters_.get("lookup.first_touch").add();
  auto result = add_entry(site, known);
  const UseKind use = result ? UseKind::kFetched : UseKind::kLate;
  done({std::move(result), false, use, known.entry.digest});
}

/// What was made here comes before the cluster's, and what was unpacked here is the cluster's.
void Lookup::lookup_parcel(const Site& site, LookupDone done) {
  const auto known = catalog_.find(site.entry);
  const bool outdated = parcels_.is_outdated(site.path, known ? &*known : nullptr);
  if (!outdated || !parcels_.hide(site)) {
    const Parcels::Shown shown(parcels_, site.path);
    if (shown) {
      if (auto local = resolve_locally(site, true)) return done({std::move(*local), false});
    }
  }
  if (known) return show_entry(site, *known, true, std::move(done));
  answer_not_there(site, done);
}

Result<Found> Lookup::show_parcel(const Site& site, const catalog::KnownEntry& known) {
  const Parcels::Shown shown(parcels_, site.path);
  if (!shown) return fail(ErrorCode::kNotFound);
  if (auto unpacked = parcels_.unpack(site, known); !unpacked) {
    counters_.get("lookup.not_unpacked").add();
    log::write_limited(log::Level::kWarning, "view.not_unpacked",
                       {{"path", shown_path(site.path)}, {"why", unpacked.error().to_string()}});
    return fail(ErrorCode::kNotFound);
  }
  starts_.note_use(known.entry.digest);
  auto local = resolve_locally(site, true);
  return local ? std::move(*local) : Result<Found>(fail(ErrorCode::kNotFound));
}

Result<Found> Lookup::add_entry(const Site& site, const catalog::KnownEntry& known) {
  if (form_of(site.path) != layout::Form::kFile) return show_parcel(site, known);
  return add_if_still(site, [&] { return add_shared(site, known.entry, 1); });
}

/// What the cluster has is shown under the name that it was found for.
Result<Found> Lookup::add_if_still(const Site& site, const std::function<Result<Found>()>& add) {
  return moves_.read(
      [&](const Moves& moves) { return tree_.is_at(moves, site) ? add() : Result<Found>(fail(ErrorCode::kNotFound)); });
}

Result<Found> Lookup::found(const NodePtr& node, bool keep) {
  auto current = node->content.with([&](Content& content) { return shown_attributes_.of(*node, content); });
  if (!current) {
    tree_.forget(node->id, 1);
    return fail(std::move(current).error());
  }
  return Found{node->id, *current, keep};
}

Result<Found> Lookup::add_local(const Site& site, const struct stat& status, uint64_t references) {
  // A second link of a file that is known is the same inode. (A link to the store's blob is no second name.)
  const NodeTable::LocalFile file{status.st_ino, status.st_nlink > 1};
  const NodePtr same = !S_ISDIR(status.st_mode) && file.has_more_names ? nodes_.find_local(status.st_ino) : nullptr;
  if (same) {
    const NodePtr linked = nodes_.add(site.parent, site.name, same, references, file);
    tree_.named_again(linked);
    return found(linked, true);
  }
  NodePtr node = tree_.new_node(status.st_mode & S_IFMT, status.st_ino, site);
  node->content.with([&](Content& content) {
    content.backing = Backing::kLocal;
    content.attributes = attributes_of(status);
    // The further links may be the store's.
    content.attributes_valid = node->is_directory() || status.st_nlink == 1;
  });
  const auto local = node->is_directory() ? std::nullopt : std::optional(file);
  const NodePtr winner = nodes_.add(site.parent, site.name, node, references, local);
  if (winner != node) tree_.named_again(winner);
  return found(winner, true);
}

Result<std::shared_ptr<const std::string>> Lookup::rendered_group(const std::string& path, const codec::Entry& entry,
                                                                  const std::string& directory) {
  using Text = std::shared_ptr<const std::string>;
  const size_t slash = path.rfind('/');
  if (layout::classify(path).family != layout::Family::kTritonKernel || slash == std::string::npos ||
      !layout::is_group_file(path.substr(slash + 1))) {
    return Text();
  }
  INDUCTORFS_TRY_ASSIGN(const auto blob, store_.open_blob(entry.digest));
  INDUCTORFS_TRY_ASSIGN(const auto canonical, blob.read_all(kGroupFileLimit));
  INDUCTORFS_TRY_ASSIGN(auto text, layout::render_group(canonical, directory));
  return Text(std::make_shared<const std::string>(std::move(text)));
}

Result<Found> Lookup::add_shared(const Site& site, const codec::Entry& entry, uint64_t references) {
  INDUCTORFS_TRY_ASSIGN(auto rendered, rendered_group(site.path, entry, site.seen));
  NodePtr node = tree_.new_node(S_IFREG, inode_number_of(site.path), site);
  node->content.with([&](Content& content) {
    content.backing = Backing::kShared;
    content.entry = entry;
    content.rendered = rendered;
    if (rendered) content.group_directory = site.seen;
    shown_attributes_.set_of_entry(*node, content, site.entry);
  });
  nodes_.note_content(
      *node, rendered ? NodeJournal::group(node->id, entry, site.seen, {}) : NodeJournal::shared(node->id, entry));
  pins_.with([&](Pins& pins) { pins.shared[entry.digest].push_back(node->id); });
  const NodePtr winner = nodes_.add(site.parent, site.name, node, references);
  if (winner != node) tree_.let_go({node});
  // A change that the catalog told between our look and the node's entry into the table would have found no node to
  // take away: look again, now that it would find it.
  const auto now = sets_.entry_of(*site.parent, site.path);
  // The blob too: it was found before the pin that keeps it, and may have been evicted in between.
  const bool gone = !now || now->entry.digest != entry.digest || !store_.find(entry.digest);
  if (winner == node && gone) {
    (void)nodes_.detach(site.parent, site.name, node);
    tree_.let_go(nodes_.forget(node->id, references));
    return fail(ErrorCode::kNotFound);
  }
  catalog_.note_use(entry.digest);
  starts_.note_use(entry.digest);
  return found(winner, true);
}

Result<Found> Lookup::add_virtual(const Site& site, uint64_t references) {
  NodePtr node = tree_.new_node(S_IFDIR, inode_number_of(site.path), site);
  node->content.with([&](Content& content) {
    content.backing = Backing::kVirtual;
    shown_attributes_.set_of_virtual(*node, content, site.entry);
  });
  nodes_.note_content(*node, NodeJournal::virtual_directory(node->id));
  return found(nodes_.add(site.parent, site.name, node, references), true);
}

Result<NodePtr> Lookup::pin_path(std::string_view path) {
  NodePtr node = tree_.root();
  node->pins.fetch_add(1);
  while (!path.empty()) {
    const size_t slash = path.find('/');
    auto next_site = tree_.site_now(node->id, path.substr(0, slash));
    Result<Found> next = fail(ErrorCode::kNotFound);
    if (next_site) {
      if (const NodePtr known = nodes_.look_up_child(node, next_site->name)) {
        next = found(known, true);
      } else if (is_being_renamed(nodes_, disk_, next_site->path)) {
        next = fail(ErrorCode::kBusy, next_site->path);
      } else if (auto local = resolve_locally(*next_site, true)) {
        next = std::move(*local);
      }
    }
    NodePtr child = next ? nodes_.find(next->node) : nullptr;
    if (child) {
      // The pin takes the place of the kernel's reference that the resolution counted.
      child->pins.fetch_add(1);
      tree_.forget(child->id, 1);
    }
    tree_.unpin(node);
    if (!child) return fail(next ? Error(ErrorCode::kNotFound) : next.error());
    node = std::move(child);
    path = slash == std::string_view::npos ? std::string_view{} : path.substr(slash + 1);
  }
  return node;
}

Result<NodePtr> Lookup::existing(const Site& site) {
  if (NodePtr known = nodes_.child(site.parent, site.name)) return known;
  // The kernel has looked up both names of a rename, so this happens only when it forgot one in between.
  auto node = pin_path(site.path);
  if (!node) return node;
  tree_.unpin(*node);
  return nodes_.child(site.parent, site.name) ? node : Result<NodePtr>(fail(ErrorCode::kNotFound));
}

}  // namespace inductorfs::vfs
