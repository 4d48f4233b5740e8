// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/parcels.h"

#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "inductorfs/base/fail_point.h"
#include "vfs/nodes/entry_mode.h"
#include "vfs/read/group_views.h"
#include "vfs/tree/parcel_files.h"
#include "vfs/tree/paths.h"
#include "vfs/tree/user_lines.h"

namespace inductorfs::vfs {
namespace {

constexpr mode_t kDirectoryMode = 0755;
constexpr int64_t kSecond = 1'000'000'000;

/// As mode_of() for entries: everybody may read what the cluster has, and nobody but the owner writes to it.
mode_t mode_of(const codec::ParcelItem& item) {
  constexpr mode_t kRead = 0444;
  constexpr mode_t kOwnerExecutes = 0100;
  return kRead | 0200 | ((item.mode & kOwnerExecutes) != 0 ? 0111 : 0);
}

Result<void> dress(const LocalTree& disk, const Fd& file, mode_t mode, int64_t time_ns, const RootAccess& access) {
  INDUCTORFS_TRY(disk.charges().give(file.get(), {access.uid, access.gid, mode}));
  timespec time{time_ns / kSecond, time_ns % kSecond};
  if (time.tv_nsec < 0) {
    time.tv_nsec += kSecond;
    --time.tv_sec;
  }
  const timespec times[2] = {time, time};
  (void)::futimens(file.get(), times);  // a time that the disk cannot keep is no reason to have no file
  return {};
}

Result<void> copy_body(const store::BlobFile& from, uint64_t at, int to, const codec::ParcelItem& item) {
  const auto body = [&](char* out, size_t most, uint64_t offset) { return from.read(out, most, at + offset); };
  INDUCTORFS_TRY_ASSIGN(const auto copied, copy_bytes(body, to, item.size));
  return copied == item.size ? Result<void>{} : fail(ErrorCode::kCorrupt, "a parcel that is shorter than it says");
}

/// With the paths below the mountpoint: every process reads this file (GroupViews::for_index()).
Result<void> write_index(const store::BlobFile& from, uint64_t at, int to, const codec::ParcelItem& item,
                         const std::string& path, const std::string& directory) {
  if (item.size > kIndexLimit) return fail(ErrorCode::kCorrupt, "an index over the limit");
  std::string canonical(item.size, '\0');
  INDUCTORFS_TRY_ASSIGN(const auto got, from.read(canonical.data(), canonical.size(), at));
  canonical.resize(got);
  INDUCTORFS_TRY_ASSIGN(const auto text, shown_index(path, canonical, directory));
  return pwrite_full(to, text, 0);
}

}  // namespace

Parcels::Shown::Shown(Parcels& parcels, std::string path) : parcels_(parcels), path_(std::move(path)) {
  held_ = parcels_.state_.with([&](State& state) {
    if (state.leaving.contains(path_)) return false;
    ++state.shown[path_];
    return true;
  });
}

Parcels::Shown::~Shown() {
  if (!held_) return;
  parcels_.state_.with([&](State& state) {
    const auto found = state.shown.find(path_);
    if (--found->second == 0) state.shown.erase(found);
  });
}

bool Parcels::is_outdated(const std::string& path, const catalog::KnownEntry* known) const {
  const auto mark = parcel_mark_of(disk_, LocalTree::view(path));
  if (!mark || !mark->fetched) return false;
  // An engine that has read the index opens its files later, and dies without one: a later index does not replace it.
  const bool replaces = form_of(path) == layout::Form::kDirectory;
  return known == nullptr || (replaces && known->entry.digest != mark->digest);
}

std::string Parcels::aside(std::string_view what) {
  return LocalTree::in_folder(LocalTree::kOrphanFolder, std::string(what) + "-" + std::to_string(::getpid()) + "-" +
                                                            std::to_string(number_.fetch_add(1)));
}

Result<void> Parcels::unpack(const Site& site, const catalog::KnownEntry& known) {
  auto done = lay_out(site, known);
  note_refusal(site, known.entry.digest, done ? std::string() : done.error().text());
  return done;
}

/// Takes the place of an earlier refusal of the path; an empty `why` only removes that.
void Parcels::note_refusal(const Site& site, const codec::Digest& digest, std::string why) {
  std::optional<uid_t> owner;
  if (!why.empty()) {
    if (const auto access = known_roots_.access_of(site.entry)) owner = access->uid;
  }
  state_.with([&](State& state) {
    auto& refusals = state.refusals;
    std::erase_if(refusals, [&](const Refusal& one) { return one.path == site.path; });
    if (why.empty()) return;
    refusals.push_back({site.path, digest, std::move(why), owner});
    if (refusals.size() > kMostRefusals) {
      refusals.erase(std::ranges::find(refusals, owner_of_most(refusals), &Refusal::owner));
    }
  });
}

std::string Parcels::why_not_unpacked(const std::string& path, const codec::Digest& digest) const {
  return state_.with([&](const State& state) {
    const auto known = std::ranges::find(state.refusals, path, &Refusal::path);
    return known == state.refusals.end() || known->digest != digest ? std::string() : known->why;
  });
}

Result<void> Parcels::lay_out(const Site& site, const catalog::KnownEntry& known) {
  INDUCTORFS_TRY_ASSIGN(const auto blob, store_.open_blob(known.entry.digest));
  INDUCTORFS_TRY_ASSIGN(const auto head, read_parcel_head(blob));
  // What the blob holds is counted by the store; its copy here is one more.
  auto unpacked = unpack_aside(site, known, head, blob);
  if (!unpacked && unpacked.error().code() == ErrorCode::kNoSpace && tree_.make_room(known.entry.size)) {
    unpacked = unpack_aside(site, known, head, blob);
  }
  INDUCTORFS_TRY_ASSIGN(const auto place, std::move(unpacked));
  fail_point("parcel.unpacked");
  auto placed = moves_.read([&](const Moves& moves) -> Result<void> {
    if (!tree_.is_at(moves, site)) return fail(ErrorCode::kNotFound);
    INDUCTORFS_TRY(tree_.make_local_directory(moves, site.parent));
    return form_of(site.path) == layout::Form::kDirectory ? place_directory(site, place)
                                                          : place_index(site, place, head);
  });
  fail_point("parcel.placed");
  remove_parcel(disk_, place);  // what is left of it; the next start removes it too
  if (!placed) return placed;
  pins_.with([&](Pins& pins) { pins.sealed_paths.try_emplace(known.entry.digest, site.path); });
  changed_names_in(site.parent);
  counters_.get("view.unpacked").add();
  return {};
}

Result<std::string> Parcels::unpack_aside(const Site& site, const catalog::KnownEntry& known,
                                          const codec::ParcelHead& head, const store::BlobFile& blob) {
  const RootAccess root{options_.owner_uid, options_.owner_gid, kDirectoryMode};
  const RootAccess access = known_roots_.access_of(site.entry).value_or(root);
  const std::string place = aside("parcel");
  remove_parcel(disk_, place);  // of a worker that was killed
  INDUCTORFS_TRY(disk_.make_directory(place));
  const bool directory = form_of(site.path) == layout::Form::kDirectory;
  const std::string above = views_.path_in_mount(parent_path(site.path));
  uint64_t at = head.size;
  const auto write = [&](const codec::ParcelItem& item) -> Result<void> {
    const std::string path = join(place, item.path);
    if (item.directory) {
      INDUCTORFS_TRY(disk_.make_directory(path));
      INDUCTORFS_TRY_ASSIGN(const auto made, disk_.open_directory(path));
      return dress(disk_, made, S_IFDIR | kDirectoryMode, mtime_of(known.entry), access);
    }
    INDUCTORFS_TRY_ASSIGN(const auto file, disk_.create_file(path));
    const uint64_t begin = std::exchange(at, at + item.size);
    if (!directory && item.path == site.name) {
      INDUCTORFS_TRY(write_index(blob, begin, file.get(), item, site.path, above));
    } else {
      INDUCTORFS_TRY(copy_body(blob, begin, file.get(), item));
    }
    if (!directory && item.path != site.name) {
      set_mark(disk_, path, kScopeMark, known.scope);
      mark_member(disk_, path);
    }
    return dress(disk_, file, S_IFREG | mode_of(item), mtime_of(known.entry), access);
  };
  const auto undo = [&](const Error& error) {
    remove_parcel(disk_, place);
    return fail(Error(error));
  };
  for (const auto& item : head.items) {
    if (auto done = write(item); !done) return undo(done.error());
  }
  const std::string marked = directory ? place : join(place, site.name);
  const auto dress_place = [&]() -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(const auto opened, disk_.open_directory(place));
    return dress(disk_, opened, S_IFDIR | kDirectoryMode, mtime_of(known.entry), access);
  };
  if (auto done = dress_place(); !done) return undo(done.error());
  set_mark(disk_, marked, kScopeMark, known.scope);
  set_parcel_mark(disk_, marked, {known.entry.digest, true});
  return place;
}

Result<void> Parcels::place_directory(const Site& site, const std::string& aside) {
  auto placed = disk_.rename(aside, LocalTree::view(site.path), RENAME_NOREPLACE);
  if (!placed && placed.error().code() == ErrorCode::kExists) return {};
  return placed;
}

/// The index last: without it nobody asks for the others. All or none of its files: those of another writer stay, with
/// whatever index that one writes.
Result<void> Parcels::place_index(const Site& site, const std::string& aside, const codec::ParcelHead& head) {
  const auto from = [&](const std::string& name) { return join(aside, name); };
  const auto to = [&](const std::string& name) { return LocalTree::view(join(parent_path(site.path), name)); };
  for (const auto& item : head.items) {
    if (item.path == site.name || !disk_.stat(to(item.path)).value_or(std::nullopt)) continue;
    if (same_bytes(disk_, from(item.path), to(item.path), UINT64_MAX)) continue;
    if (!is_left_member(disk_, to(item.path))) {
      return fail(ErrorCode::kBusy, item.path + " is another writer's here; remove it, so that the cluster's can come");
    }
    // What the kernel knows keeps its bytes; it is asked to forget the name.
    if (is_known({join(parent_path(site.path), item.path)})) {
      return fail(ErrorCode::kBusy,
                  item.path + " of an earlier index is in use here; the index comes when nobody uses that file");
    }
  }
  for (const auto& item : head.items) {
    if (item.path == site.name) continue;
    const bool replaces = is_left_member(disk_, to(item.path));
    const auto placed = disk_.rename(from(item.path), to(item.path), replaces ? 0 : RENAME_NOREPLACE);
    if (!placed && placed.error().code() != ErrorCode::kExists) return placed;
    notifier_.wish_forgotten(site.parent->id, item.path);  // the kernel may keep its absence
    fail_point("parcel.member_placed");
  }
  const auto placed = disk_.rename(from(site.name), to(site.name), RENAME_NOREPLACE);
  if (!placed && placed.error().code() != ErrorCode::kExists) return placed;
  notifier_.wish_content_forgotten(site.parent->id);
  return {};
}

/// Of the parcel's files, the one that makes it a parcel first: the index, or the directory itself.
std::vector<std::string> Parcels::names_of(const std::string& path) const {
  std::vector<std::string> names{path};
  const auto files = parcel_files(disk_, path);
  if (!files) return names;
  const std::string above = form_of(path) == layout::Form::kDirectory ? path : parent_path(path);
  for (const auto& item : files->items) {
    if (join(above, item.path) != path) names.push_back(join(above, item.path));
  }
  return names;
}

bool Parcels::is_known(const std::vector<std::string>& names) {
  bool known = false;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {  // what is in a directory before the directory
    const auto walked = nodes_.walk(*name);
    if (!walked.missing.empty()) continue;
    notifier_.wish_forgotten(walked.parent->id, walked.name);
    known = true;
  }
  return known;
}

bool Parcels::drop(const std::string& path) {
  return leave(path, [&](const Moves&) { return names_of(path); });
}

bool Parcels::hide(const Site& site) {
  const std::string& path = site.path;
  return leave(path, [&](const Moves& moves) {
    if (!tree_.is_at(moves, site)) return std::vector<std::string>{};
    return form_of(path) == layout::Form::kDirectory ? names_of(path) : std::vector<std::string>{path};
  });
}

/// No names: nothing goes.
bool Parcels::leave(const std::string& path, const NamesToGo& names_to_go) {
  const bool leaves =
      state_.with([&](State& state) { return !state.shown.contains(path) && state.leaving.insert(path).second; });
  if (!leaves) return false;
  // No other directory gets the name meanwhile.
  const bool gone = moves_.read([&](const Moves& moves) {
    const auto names = names_to_go(moves);
    if (names.empty() || is_known(names)) return false;
    if (parcel_mark_of(disk_, LocalTree::view(path))) take_away(path, names);
    return true;
  });
  state_.with([&](State& state) { state.leaving.erase(path); });
  return gone;
}

void Parcels::take_away(const std::string& path, const std::vector<std::string>& names) {
  fail_point("parcel.dropping");
  if (form_of(path) == layout::Form::kDirectory) {
    const std::string place = aside("gone");
    if (disk_.rename(LocalTree::view(path), place)) remove_parcel(disk_, place);
  } else {
    for (const auto& name : names) (void)disk_.unlink(LocalTree::view(name));  // what stays is met again
  }
  counters_.get("view.dropped").add();
}

}  // namespace inductorfs::vfs
