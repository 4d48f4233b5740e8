// SPDX-License-Identifier: Apache-2.0
#include "vfs/recover/recovery.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/host_error.h"
#include "inductorfs/base/host_files.h"
#include "inductorfs/base/log.h"
#include "vfs/tree/parcel_files.h"
#include "vfs/tree/parcel_mark.h"
#include "vfs/tree/view_files.h"

/// What an earlier life left on the disk. Runs before the first request.
namespace inductorfs::vfs {
namespace {

constexpr const char* kMarker = "state";
constexpr size_t kMarkerLimit = 256;

std::string running_boot() {
  const std::string id = boot_id();
  return id.empty() ? "unknown" : id.substr(0, id.find('\n'));
}

/// Returns the digest of the parcel that the files of this path make now; empty when they make none.
std::optional<codec::Digest> digest_on_disk(const LocalTree& tree, const std::string& path) {
  const auto files = parcel_files(tree, path);
  const auto digest = files ? pack(*files, [](std::string_view) { return Result<void>{}; }) : fail(files.error());
  return digest ? std::optional(*digest) : std::nullopt;
}

/// Of a store that was copied with its links and without extended attributes.
bool is_blob(store::BlobStore& store, int file) {
  struct stat status {};
  struct stat blob_status {};
  if (::fstat(file, &status) != 0 || status.st_nlink < 2) return false;
  const auto digest = codec::digest_of_file(file);
  const auto blob = digest ? store.open_blob(*digest) : fail(digest.error());
  return blob && ::fstat(blob->file(), &blob_status) == 0 && blob_status.st_ino == status.st_ino &&
         blob_status.st_dev == status.st_dev;
}

}  // namespace

Result<void> Recovery::run() {
  // "boot id, then `clean` after a close that synced": another boot without it means that the host went down while
  // data were not on the disk (torch never calls fsync, so neither do we on its path).
  const auto marker = disk_.read_file(kMarker, kMarkerLimit);
  INDUCTORFS_TRY_ASSIGN(const auto at, disk_.held(kMarker));
  const std::string boot = running_boot();
  const bool torn = marker && !marker->starts_with(boot) && !marker->ends_with("clean");
  INDUCTORFS_TRY_ASSIGN(const auto pending, disk_.list(LocalTree::kPendingFolder));
  for (const auto& item : pending) key_sets_.recover(LocalTree::in_folder(LocalTree::kPendingFolder, item.name), torn);
  INDUCTORFS_TRY_ASSIGN(const auto orphans, disk_.list(LocalTree::kOrphanFolder));
  for (const auto& item : orphans) {
    INDUCTORFS_TRY(disk_.remove_tree(LocalTree::in_folder(LocalTree::kOrphanFolder, item.name)));
  }
  fail_point("recovery.cleared");
  stale_.recover_stale();
  // Who is killed on the way through a torn view leaves the marker that says so to the next start. One that replaces
  // "clean" must not be lost with the host, or what is written from here on would be trusted.
  if (!torn) INDUCTORFS_TRY(write_file_durably(at.fd(), at.name(), boot + " open"));
  fail_point("recovery.marked");
  if (torn) {
    log::warning("view.host_crash", {{"action", "local artefacts are verified"}});
    catalog_.note_queue(false);
  }
  recover_directory("", torn);
  return torn ? write_file_atomically(at.fd(), at.name(), boot + " open") : Result<void>{};
}

void Recovery::recover_directory(const std::string& path, bool torn) {
  auto items = disk_.list(LocalTree::view(path));
  if (!items) return set_aside(path, items.error(), torn);
  const auto set = layout::is_triton_key_directory(path) ? local_set(disk_, path) : std::vector<std::string>{};
  for (const auto& item : *items) {
    const std::string child = path.empty() ? item.name : join(path, item.name);
    if (child.size() > LocalTree::kPathLimit) {
      set_aside(child, Error(ErrorCode::kNameTooLong, "its path has more bytes than a system call takes"), torn);
      continue;
    }
    if (is_parcel(child, item.type)) {
      recover_parcel(child, torn);
      continue;
    }
    const bool is_left = is_kernel_file(child) && std::ranges::find(set, item.name) == set.end();
    if (item.type == S_IFREG && !is_left) recover_file(path, item.name, *items, torn);
    if (item.type == S_IFREG && is_left) recover_left(child, torn);
    if (item.type != S_IFDIR) continue;
    refusals_.note_if_hidden(child, disk_);
    recover_directory(child, torn);
  }
  if (!set.empty()) recover_group(path, set, torn);
}

/// Counts the event; says whether it is to be logged. A disk without extended attributes is an event for each file of
/// the store.
bool Recovery::is_told(std::string_view event) {
  constexpr uint64_t kTold = 100;
  Counter& times = counters_.get(event);
  times.add();
  return times.get() <= kTold;
}

/// One name that cannot be read must not keep the others from being served.
void Recovery::set_aside(const std::string& path, const Error& why, bool torn) {
  constexpr size_t kShown = 100;
  const std::string shown = path.size() > kShown ? path.substr(0, kShown) + "..." : path;
  // What the disk cannot tell at this moment (too many open files, an I/O error) may be sound, and shows nothing as
  // long as it cannot be read. After a host crash it was not verified.
  const bool stays = path.empty() || (why.code() == ErrorCode::kInternal && !torn);
  const auto moved = stays ? Result<std::string>(fail(why)) : disk_.set_aside(path);
  const std::string outcome = moved ? "set aside as files/" + *moved + " in the store; look at it and remove it"
                                    : "cannot be read, and stays as it is: " + moved.error().text();
  if (is_told("recovery.set_aside")) {
    log::error("recovery.set_aside", {{"path", shown}, {"why", why.to_string()}, {"outcome", outcome}});
  }
  refusals_.note(shown + ": " + outcome, std::nullopt);
}

void Recovery::recover_file(const std::string& directory, const std::string& name,
                            const std::vector<LocalTree::Item>& siblings, bool torn) {
  const std::string path = directory.empty() ? name : join(directory, name);
  const auto family = layout::classify(path).family;
  if (family == layout::Family::kParcelMember) return recover_member(path);
  if (!layout::rule_of(family).shared) return;
  const bool in_set = family == layout::Family::kTritonKernel;  // recover_group sees to its marks
  const std::string view_path = LocalTree::view(path);
  auto file = disk_.open_file(view_path, false);
  const auto read = file ? seal_of(file->get()) : fail(file.error());
  if (!read && is_of_host(read.error().code())) return set_aside(path, read.error(), torn);
  if (!read) return;
  const auto& seal = *read;
  const auto sealed = seal ? codec::Digest::from_hex(*seal) : std::nullopt;
  const auto remove = [&](const char* why) {
    (void)disk_.unlink(view_path);  // it is compiled again; a file that stays is met again at the next start
    fail_point("recovery.removed");
    if (is_told("recovery.removed")) log::warning("recovery.removed", {{"path", path}, {"why", why}});
  };
  if (!is_stores(file->get()).value_or(true) && is_blob(store_, file->get())) (void)set_seal(file->get(), {});
  if (seal && !sealed) return remove("its bytes were found damaged");
  if (sealed) {
    const auto digest = torn ? digest_to_seal(file->get(), path) : *sealed;
    if (!digest && is_of_host(digest.error().code())) return set_aside(path, digest.error(), torn);
    if (!digest || *digest != *sealed) {
      store_.discard(*sealed);  // the same inode
      return remove("damaged");
    }
    if (!in_set && !stale_.recover_provenance(path)) return;
    pins_.with([&](Pins& pins) { pins.sealed_paths[*sealed] = path; });
    // A tuning that stayed here is published once more, and learns that the cluster has another one.
    if (!in_set && (sealing_.may_be_unpublished(path) || sealing_.gives_way(path))) sealing_.publish_again(path);
    return;
  }
  if (torn) return remove("not sealed when the host went down");
  if (is_being_built(directory, name, siblings)) {
    // Its compiler lost the mount in the middle of the file; torch would load what it finds under the final name.
    return remove("its build was not finished");
  }
  const bool fits = !in_set && stale_.recover_provenance(path);
  // A job may still be writing to it, after a kill of the worker, or open it again while it is hashed.
  if (fits && !is_changed(file->get()) && !in_place_.add_left(path)) sealing_.seal_later(path);
}

/// One that came with an index which has left: nobody reads it any more.
void Recovery::recover_member(const std::string& path) {
  if (!is_left_member(disk_, LocalTree::view(path))) return;
  const auto parcels = parcels_of_member(path);
  const bool is_named =
      !parcels.empty() && disk_.stat(LocalTree::view(parcels.front())).value_or(std::nullopt).has_value();
  if (!is_named) (void)disk_.unlink(LocalTree::view(path));
}

/// Its directory, or its index, with all that belongs to it.
void Recovery::recover_parcel(const std::string& path, bool torn) {
  const std::string place = LocalTree::view(path);
  const auto mark = parcel_mark_of(disk_, place);
  const auto remove = [&](const char* why) {
    remove_from_view(disk_, path);  // it is made again; what stays is met again
    if (is_told("recovery.removed")) log::warning("recovery.removed", {{"path", path}, {"why", why}});
  };
  if (torn && !mark) return remove("not sealed when the host went down");
  if (torn && digest_on_disk(disk_, path) != mark->digest) return remove("damaged");
  // Whoever wrote it did so through the mount that ended.
  if (!mark && is_cut_index(disk_, path)) return remove("its writer was killed");
  if (mark && mark->fetched) {
    pins_.with([&](Pins& pins) { pins.sealed_paths.try_emplace(mark->digest, path); });
    return;  // Lookup takes it away when the cluster has it no more
  }
  // One that nobody gave its name by a rename: nothing tells when it is complete.
  const bool witnessed = mark || mark_of(disk_, place, kScopeMark).has_value() || form_of(path) == layout::Form::kIndex;
  if (!witnessed || !stale_.recover_provenance(path) || is_changed_parcel(disk_, place)) return;
  if (mark) {
    pins_.with([&](Pins& pins) { pins.sealed_paths[mark->digest] = path; });
    if (sealing_.may_be_unpublished(path)) sealing_.publish_again(path);
    return;
  }
  if (form_of(path) == layout::Form::kDirectory || !in_place_.add_left(path)) sealing_.seal_later(path);
}

/// A file of a Triton key that is of no set: a dump, an override, what a process has left (KeySets).
void Recovery::recover_left(const std::string& path, bool torn) {
  const auto read = read_seal(disk_, path);
  if (!read && is_of_host(read.error().code())) return set_aside(path, read.error(), torn);
  const std::string seal = read.value_or("");
  const auto sealed = codec::Digest::from_hex(seal);
  if (seal == kDamagedSeal) return (void)disk_.unlink(LocalTree::view(path));  // as in recover_file
  if (!sealed) {
    // Somebody's own: it stays as it would on a local disk. It may also be of a set whose commit was cut.
    if (mark_of(disk_, LocalTree::view(path), kChangedMark)) return;
    // What no start has seen yet may lack any of its bytes.
    const auto mark = mark_of(disk_, LocalTree::view(path), kLeftMark);
    if (torn && (!mark || *mark == kUnseenLeft)) {
      (void)disk_.unlink(LocalTree::view(path));  // as in recover_file
      if (is_told("recovery.removed")) {
        log::warning("recovery.removed", {{"path", path}, {"why", "not sealed when the host went down"}});
      }
      return;
    }
    return set_mark(disk_, LocalTree::view(path), kLeftMark, "1");
  }
  const auto file = disk_.open_file(LocalTree::view(path), false);
  const auto digest = torn && file ? digest_to_seal(file->get(), path) : *sealed;
  if (!digest && is_of_host(digest.error().code())) return set_aside(path, digest.error(), torn);
  if (!digest || *digest != *sealed) {
    store_.discard(*sealed);                    // the same inode
    (void)disk_.unlink(LocalTree::view(path));  // as in recover_file
    return;
  }
  pins_.with([&](Pins& pins) { pins.sealed_paths[*sealed] = path; });
}

/// `before` are the files of the set before each of them was looked at.
void Recovery::recover_group(const std::string& path, std::vector<std::string> before, bool torn) {
  const auto read = read_set(disk_, path);
  // The disk does not tell whether it is whole. It stays, and the seal queue asks again.
  if (!read && !torn) return sealing_.seal_later(path);
  const auto names = read ? *read : local_set(disk_, path);
  if (!torn && names.size() < before.size()) {  // one was damaged, and they go together
    put_groups_first(before);
    for (const auto& name : before) (void)disk_.unlink(LocalTree::view(join(path, name)));  // as in recover_file
    return;
  }
  if (names.empty()) return;
  if (torn && !local_set_is_whole(disk_, path).value_or(false)) {
    // Whoever has read a group file takes a child that the host crash took for an error.
    for (const auto& name : names) {
      if (layout::is_group_file(name)) (void)disk_.unlink(LocalTree::view(join(path, name)));  // as in recover_file
    }
    return;
  }
  if (!stale_.recover_set(path, names)) return;
  const bool is_open =
      std::ranges::any_of(names, [&](const auto& name) { return seal_on_disk(disk_, join(path, name)).empty(); });
  const bool is_lost = !is_open && std::ranges::any_of(names, [&](const auto& name) {
    return sealing_.may_be_unpublished(join(path, name));
  });
  if (is_lost) sealing_.publish_again(path);
  if (is_open && !in_place_.add_left_set(path, names)) sealing_.seal_later(path);
}

void Recovery::mark_clean(bool is_published) {
  const Activity activity("writes the local tree back");
  if (is_published && seal_queue_.waiting() == 0) catalog_.note_queue(true);
  const auto at = disk_.held(kMarker);
  if (!at || !disk_.sync()) return;  // not clean then: the next boot verifies
  fail_point("view.synced");
  (void)write_file_atomically(at->fd(), at->name(), running_boot() + " clean");  // as above
  fail_point("view.marked_clean");
}

}  // namespace inductorfs::vfs
