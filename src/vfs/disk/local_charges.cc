// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include "inductorfs/base/log.h"
#include "vfs/disk/local_tree.h"

/// What LocalTree tells of whose its files are (UserCharges).
namespace inductorfs::vfs {
namespace {

using Holds = UserCharges::Holds;

/// Directories that are moved while all is counted may be missed; who moves them all the time is not waited for.
constexpr int kMostCounts = 8;

bool keeps_names(std::string_view path) {
  return path.starts_with(LocalTree::in_folder(LocalTree::kViewFolder, {})) ||
         path.starts_with(LocalTree::in_folder(LocalTree::kPendingFolder, {}));
}

}  // namespace

std::optional<UserCharges::Owner> LocalTree::owner_of(int file, const std::string& path) const {
  const auto owner = file_owner(file);
  if (!owner || !*owner) return std::nullopt;                     // not finished, or the daemon's own
  if (!keeps_names(path) && has_blob(file)) return std::nullopt;  // it has lost its name
  if (!S_ISREG((*owner)->mode)) return UserCharges::Owner{(*owner)->uid, Holds::kNothing};
  return UserCharges::Owner{(*owner)->uid, has_blob(file) ? Holds::kBlob : Holds::kBytes};
}

/// One that is sealed has a single name. Where the store had the same bytes, it has an inode of its own.
bool LocalTree::has_blob(int file) const {
  struct stat status {};
  return ::fstat(file, &status) == 0 && status.st_nlink > 1 && is_stores(file).value_or(false);
}

void LocalTree::charge_sealed(int file, int blob) const {
  struct stat status {};
  struct stat taken {};
  const auto owner = file_owner(file);
  if (!owner || !*owner || ::fstat(file, &status) != 0) return;
  const bool is_blob = ::fstat(blob, &taken) == 0 && status.st_ino == taken.st_ino;
  // It may have lost its name before the store took it.
  if (is_blob && status.st_nlink == 1) return charges_->forget(status.st_ino);
  charges_->set(file, {(*owner)->uid, is_blob ? Holds::kBlob : Holds::kBytes});
}

Result<void> LocalTree::give(int file, const FileOwner& owner, UserCharges::NewFile* made) const {
  INDUCTORFS_TRY(set_file_owner(file, owner));
  charges_->set(file, {owner.uid, S_ISREG(owner.mode) ? Holds::kBytes : Holds::kNothing}, made);
  return {};
}

Result<void> LocalTree::give_copy(int file, const FileOwner& owner, uint64_t replaced) const {
  INDUCTORFS_TRY(charges_->admit_copy(file, owner.uid, replaced));
  return set_file_owner(file, owner);
}

void LocalTree::charge(int file, const std::string& path) const {
  const auto owner = owner_of(file, path);
  if (owner) charges_->set(file, *owner);
}

Result<void> LocalTree::admit_size(int file, uint64_t size) const {
  INDUCTORFS_TRY_ASSIGN(const bool known, charges_->admit(file, size));
  if (known) return {};
  const auto owner = owner_of(file, {});
  if (!owner) return {};
  charges_->set(file, *owner);
  const auto again = charges_->admit(file, size);
  return again ? Result<void>{} : fail(again.error());
}

Fd LocalTree::losing(const HeldParent& at) {
  auto file = open_at(at.fd(), at.name(), O_PATH | O_NOFOLLOW);
  return file ? std::move(*file) : Fd();
}

void LocalTree::gained_name(const std::string& path) const {
  if (const auto file = hold(path)) charges_->gained_name(file->get());
}

void LocalTree::lost(const Fd& file, const std::string& path) const {
  if (file) charges_->lost_name(file.get(), keeps_names(path));
}

void LocalTree::moved(const HeldParent& to, const std::string& from, const std::string& path) const {
  const bool leaves = keeps_names(from) && !keeps_names(path);
  if (!leaves && charges_->all_counted()) return;
  const Fd file = losing(to);
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) return;
  if (S_ISDIR(status.st_mode)) return charges_->may_miss();
  if (leaves) return lost(file, from);
  if (const auto owner = owner_of(file.get(), path)) charges_->find(file.get(), *owner);
}

void LocalTree::forget_all(const std::string& path) const {
  struct stat status {};
  {
    const auto file = hold(path);
    if (!file || ::fstat(file->get(), &status) != 0) return;
    // Of a blob the name is the only one.
    if (!S_ISDIR(status.st_mode) && status.st_nlink > 1) return charges_->lost_name(file->get(), true);
  }
  charges_->forget(status.st_ino);
  if (!S_ISDIR(status.st_mode)) return;
  for (const auto& item : list(path).value_or(std::vector<Item>{})) forget_all(join(path, item.name));
}

/// With no descriptor open while it is below. False: the disk does not tell all.
bool LocalTree::count_below(const std::string& path, mode_t type, const std::stop_token& stop) const {
  if (stop.stop_requested()) return true;
  const auto has_gone = [](const Error& error) {
    return error.code() == ErrorCode::kNotFound || error.code() == ErrorCode::kNotDirectory;
  };
  bool told = true;
  {
    const auto file = hold(path);
    told = file || has_gone(file.error());
    const auto owner = file ? owner_of(file->get(), path) : std::nullopt;
    if (owner) charges_->find(file->get(), *owner);
  }
  if (type != S_IFDIR) return told;
  const auto items = list(path);
  told = told && (items || has_gone(items.error()));
  for (const auto& item : items.value_or(std::vector<Item>{})) {
    told = count_below(join(path, item.name), item.type, stop) && told;
  }
  return told;
}

void LocalTree::count_all(const std::stop_token& stop) const {
  bool told = true;
  for (int i = 1; i <= kMostCounts && !stop.stop_requested(); ++i) {
    charges_->begin_count();
    told = true;
    for (const char* folder : {kViewFolder, kPendingFolder, kOrphanFolder}) {
      told = count_below(folder, S_IFDIR, stop) && told;
    }
    if (told && charges_->end_count(i == kMostCounts)) return;
  }
  if (!told) log::warning("view.not_counted", {{"why", "the disk of --store did not tell of all files"}});
}

}  // namespace inductorfs::vfs
