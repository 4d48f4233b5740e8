// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/vfs/view_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "inductorfs/base/own_user.h"
#include "inductorfs/layout/layout.h"
#include "vfs/disk/local_tree.h"
#include "vfs/tree/parcel_files.h"
#include "vfs/tree/parcel_mark.h"
#include "vfs/tree/view_files.h"

namespace inductorfs::vfs {
namespace {

/// Needs external synchronisation.
class Checker {
 public:
  Checker(const LocalTree& tree, std::string name, const store::CheckedStore& store, bool repair,
          store::Findings& findings)
      : tree_(tree), name_(std::move(name)), store_(store), repair_(repair), findings_(findings) {}

  Result<CheckedView> run() {
    check_directory("");
    for (const auto& item : tree_.list(LocalTree::kSetAsideFolder).value_or(std::vector<LocalTree::Item>{})) {
      findings_.add({name_ + "/" + LocalTree::in_folder(LocalTree::kSetAsideFolder, item.name),
                     "could not be read and was set aside; look at it and remove it",
                     true,
                     {}});
    }
    for (const char* folder : {LocalTree::kPendingFolder, LocalTree::kOrphanFolder}) {
      INDUCTORFS_TRY_ASSIGN(auto items, tree_.list(folder));
      for (const auto& item : items) {
        findings_.add({name_ + "/" + folder + "/" + item.name, "has no name in the mount any more", true, {}});
      }
    }
    return result_;
  }

 private:
  void check_directory(const std::string& path) {
    auto items = tree_.list(LocalTree::view(path));
    if (!items) return cannot_read(path, items.error().text());
    for (const auto& item : *items) {
      const std::string child = path.empty() ? item.name : join(path, item.name);
      if (child.size() > LocalTree::kPathLimit) {
        cannot_read(child, "its path is too long; the next mount sets it aside");
        continue;
      }
      if (is_parcel(child, item.type)) check_parcel(child);
      if (item.type == S_IFDIR) check_directory(child);
      if (item.type == S_IFREG) check_file(child);
    }
  }

  /// Its mark names the parcel that its files make.
  void check_parcel(const std::string& path) {
    const auto mark = parcel_mark_of(tree_, LocalTree::view(path));
    if (!mark) return;
    ++result_.sealed;
    const auto files = parcel_files(tree_, path);
    const auto actual = files ? pack(*files, [](std::string_view) { return Result<void>{}; }) : fail(files.error());
    if (actual && *actual == mark->digest) return;
    store::Finding finding{name_ + "/" + LocalTree::view(path), "its files are not those of its parcel", false, {}};
    if (repair_) {
      remove_parcel(tree_, LocalTree::view(path));
      finding.repair = "removed";
    }
    findings_.add(std::move(finding));
  }

  void cannot_read(const std::string& path, const std::string& why) {
    store::Finding finding{name_ + "/" + LocalTree::view(path), "cannot be read: " + why, false, {}};
    if (const auto moved =
            repair_ && !path.empty() ? tree_.set_aside(path) : Result<std::string>(fail(ErrorCode::kBusy))) {
      finding.repair = "set aside as " + name_ + "/" + *moved;
    }
    findings_.add(std::move(finding));
  }

  void check_file(const std::string& path) {
    ++result_.files;
    const std::string place = LocalTree::view(path);
    const auto file = tree_.open_file(place, false);
    struct stat info {};
    if (!file || ::fstat(file->get(), &info) != 0) {
      return findings_.add({name_ + "/" + place, "cannot be read", false, {}});
    }
    const auto inode = store_.inodes.find(info.st_ino);
    const auto read = seal_of(file->get());
    if (!read) return findings_.add({name_ + "/" + place, "cannot be read", false, {}});
    const auto& seal = *read;
    if (!seal) {
      if (inode == store_.inodes.end()) return;
      return findings_.add({name_ + "/" + place, "is a blob without a seal; the next mount gives it one", true, {}});
    }
    ++result_.sealed;
    const auto sealed = codec::Digest::from_hex(*seal);
    if (sealed && inode != store_.inodes.end() && inode->second == *sealed) return;
    // One that was moved out of its key directory says nothing without the key.
    if (layout::is_group_file(last_component(path)) && !is_kernel_file(path)) return;
    const auto actual = digest_to_seal(file->get(), path);
    if (sealed && actual && *actual == *sealed) return;
    store::Finding finding{name_ + "/" + place, "its bytes are not those that its seal names", false, {}};
    if (repair_ && tree_.unlink(place)) finding.repair = "removed";
    findings_.add(std::move(finding));
  }

  const LocalTree& tree_;
  const std::string name_;
  const store::CheckedStore& store_;
  const bool repair_;
  store::Findings& findings_;
  CheckedView result_;
};

}  // namespace

Result<CheckedView> check(const std::string& directory, const std::string& name, const store::CheckedStore& store,
                          bool repair, store::Findings& findings) {
  const std::string path = directory + "/" + name;
  if (!LocalTree::is_at(path)) return CheckedView{};
  INDUCTORFS_TRY_ASSIGN(const auto tree, LocalTree::open(path, own_uid(), own_gid(), 0755));
  return Checker(tree, name, store, repair, findings).run();
}

}  // namespace inductorfs::vfs
