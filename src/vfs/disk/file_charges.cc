// SPDX-License-Identifier: Apache-2.0
#include "vfs/disk/file_charges.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "inductorfs/base/log.h"
#include "vfs/disk/local_tree.h"

namespace inductorfs::vfs {
namespace {

using Holds = UserCharges::Holds;

/// Directories that are moved while all is counted may be missed; who moves them all the time is not waited for.
constexpr int kMostCounts = 8;

bool keeps_names(std::string_view path) {
  return path.starts_with(LocalTree::in_folder(LocalTree::kViewFolder, {})) ||
         path.starts_with(LocalTree::in_folder(LocalTree::kPendingFolder, {}));
}

/// One that is sealed has a single name. Where the store had the same bytes, it has an inode of its own.
bool has_blob(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && status.st_nlink > 1 && is_stores(file).value_or(false);
}

std::optional<UserCharges::Owner> owner_of(int file, const std::string& path) {
  const auto owner = file_owner(file);
  if (!owner || !*owner) return std::nullopt;                     // not finished, or the daemon's own
  if (!keeps_names(path) && has_blob(file)) return std::nullopt;  // it has lost its name
  if (!S_ISREG((*owner)->mode)) return UserCharges::Owner{(*owner)->uid, Holds::kNothing};
  return UserCharges::Owner{(*owner)->uid, has_blob(file) ? Holds::kBlob : Holds::kBytes};
}

}  // namespace

void FileCharges::sealed(int file, int blob) {
  struct stat status {};
  struct stat taken {};
  const auto owner = file_owner(file);
  if (!owner || !*owner || ::fstat(file, &status) != 0) return;
  const bool is_blob = ::fstat(blob, &taken) == 0 && status.st_ino == taken.st_ino;
  // It may have lost its name before the store took it.
  if (is_blob && status.st_nlink == 1) return forget(status.st_ino);
  set(file, {(*owner)->uid, is_blob ? Holds::kBlob : Holds::kBytes});
}

Result<void> FileCharges::give(int file, const FileOwner& owner, NewFile* made) {
  INDUCTORFS_TRY(set_file_owner(file, owner));
  set(file, {owner.uid, S_ISREG(owner.mode) ? Holds::kBytes : Holds::kNothing}, made);
  return {};
}

Result<void> FileCharges::give_copy(int file, const FileOwner& owner, uint64_t replaced) {
  INDUCTORFS_TRY(admit_copy(file, owner.uid, replaced));
  return set_file_owner(file, owner);
}

void FileCharges::look_again(int file, const std::string& path) {
  const auto owner = owner_of(file, path);
  if (owner) set(file, *owner);
}

Result<void> FileCharges::admit_size(int file, uint64_t size) {
  INDUCTORFS_TRY_ASSIGN(const bool known, admit(file, size));
  if (known) return {};
  const auto owner = owner_of(file, {});
  if (!owner) return {};
  set(file, *owner);
  const auto again = admit(file, size);
  return again ? Result<void>{} : fail(again.error());
}

void FileCharges::lost(int file, const std::string& path) { lost_name(file, keeps_names(path)); }

void FileCharges::moved(const HeldParent& to, const std::string& from, const std::string& path) {
  const bool leaves = keeps_names(from) && !keeps_names(path);
  if (!leaves && all_counted()) return;
  const auto file = open_at(to.fd(), to.name(), O_PATH | O_NOFOLLOW);
  struct stat status {};
  if (!file || ::fstat(file->get(), &status) != 0) return;
  if (S_ISDIR(status.st_mode)) return may_miss();
  if (leaves) return lost(file->get(), from);
  if (const auto owner = owner_of(file->get(), path)) find(file->get(), *owner);
}

void FileCharges::forget_all(const LocalTree& tree, const std::string& path) {
  struct stat status {};
  {
    const auto file = tree.hold(path);
    if (!file || ::fstat(file->get(), &status) != 0) return;
    // Of a blob the name is the only one.
    if (!S_ISDIR(status.st_mode) && status.st_nlink > 1) return lost_name(file->get(), true);
  }
  forget(status.st_ino);
  if (!S_ISDIR(status.st_mode)) return;
  for (const auto& item : tree.list(path).value_or(std::vector<LocalTree::Item>{}))
    forget_all(tree, join(path, item.name));
}

/// With no descriptor open while it is below. False: the disk does not tell all.
bool FileCharges::count_below(const LocalTree& tree, const std::string& path, mode_t type,
                              const std::stop_token& stop) {
  if (stop.stop_requested()) return true;
  const auto has_gone = [](const Error& error) {
    return error.code() == ErrorCode::kNotFound || error.code() == ErrorCode::kNotDirectory;
  };
  bool told = true;
  {
    const auto file = tree.hold(path);
    told = file || has_gone(file.error());
    const auto owner = file ? owner_of(file->get(), path) : std::nullopt;
    if (owner) find(file->get(), *owner);
  }
  if (type != S_IFDIR) return told;
  const auto items = tree.list(path);
  told = told && (items || has_gone(items.error()));
  for (const auto& item : items.value_or(std::vector<LocalTree::Item>{})) {
    told = count_below(tree, join(path, item.name), item.type, stop) && told;
  }
  return told;
}

void FileCharges::count_all(const LocalTree& tree, const std::stop_token& stop) {
  bool told = true;
  for (int i = 1; i <= kMostCounts && !stop.stop_requested(); ++i) {
    begin_count();
    told = true;
    for (const char* folder : {LocalTree::kViewFolder, LocalTree::kPendingFolder, LocalTree::kOrphanFolder}) {
      told = count_below(tree, folder, S_IFDIR, stop) && told;
    }
    if (told && end_count(i == kMostCounts)) return;
  }
  if (!told) log::warning("view.not_counted", {{"why", "the disk of --store did not tell of all files"}});
}

}  // namespace inductorfs::vfs
