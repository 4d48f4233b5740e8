// SPDX-License-Identifier: Apache-2.0
#include "mount/processes/store_place.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <optional>

#include "inductorfs/base/disk_space.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/mount_table.h"
#include "inductorfs/base/text.h"
#include "inductorfs/config/text.h"

namespace inductorfs::mount {
namespace {

constexpr mode_t kFileMode = 0600;
constexpr size_t kBlock = 4096;
constexpr uint64_t kTableLimit = uint64_t{1} << 20;

std::optional<struct stat> status_of(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 ? std::optional(found) : std::nullopt;
}

/// The path that a descriptor's file has by now.
std::string path_of(int fd) {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path.data(), path.size());
  return {path.data(), static_cast<size_t>(size < 0 ? 0 : size)};
}

bool keeps_marks(const std::string& store) {
  return ::getxattr(store.c_str(), "user.inductorfs.none", nullptr, 0) >= 0 || errno != EOPNOTSUPP;
}

}  // namespace

Result<std::string> place_of_store(int lock, const std::string& named) {
  struct stat held {};
  if (lock < 0 || ::fstat(lock, &held) != 0) return named;
  const auto has_lock = [&](const std::string& directory) {
    const auto there = status_of(directory + "/lock");
    return there && there->st_dev == held.st_dev && there->st_ino == held.st_ino;
  };
  if (has_lock(named)) return named;
  // Somebody has removed the lock alone: it is made anew.
  if (held.st_nlink == 0 && status_of(named + "/format")) return named;
  const std::string now = path_of(lock);
  const std::string moved = now.substr(0, now.rfind('/'));
  if (held.st_nlink > 0 && !moved.empty() && has_lock(moved)) return moved;
  if (::access(named.c_str(), F_OK) != 0 && errno == EACCES) {
    return fail(ErrorCode::kNotPermitted, "the user " + std::to_string(::geteuid()) +
                                              ", who serves this mount, may not reach --store any more: " + named +
                                              ": run chmod o+x on the directories above it");
  }
  return fail(ErrorCode::kNotFound, "the directory of --store was removed or replaced under the mount: " + named +
                                        ": put it back, or unmount and mount again, which begins an empty store");
}

std::string path_on_host(const std::string& named, const std::string& root) {
  if (root.empty()) return named;
  const auto table = read_mounts_of("/proc", "self", kTableLimit);  // the tree's
  const MountEntry* const entry = table ? find_mount_at(*table, named) : nullptr;
  if (entry == nullptr || entry->root == root) return named;
  // Where the disk is mounted, unless the store is reached by a link or by another mount.
  const bool has_prefix = named.ends_with(root);
  return (has_prefix ? named.substr(0, named.size() - root.size()) : std::string()) + entry->root;
}

std::string place_trouble(int lock, const std::string& named, const std::string& root) {
  auto now = place_of_store(lock, named);
  if (now && *now == named) *now = path_on_host(named, root);
  if (!now) return now.error().what();
  if (*now == named) return {};
  return "the directory of --store was moved under the mount, which goes on with it: " + named + " is " + *now +
         " now: name that one at the next mount";
}

std::string writing_trouble(const std::string& store) {
  // Nothing is written, or the answer would wait for a slow disk. statvfs(2) and access(2) do not tell: ext4 leaves
  // both as they were when it turns read-only or stops after an error.
  const std::string lock = store + "/lock";
  const Fd fd(::open(lock.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (fd || (errno != EROFS && errno != EIO)) return {};
  return "the disk of --store cannot be written to (" + error_from_errno(errno, "open", lock).what() +
         "), so writes fail and nothing new is published: " + store +
         ": see what the kernel says of it (dmesg), make it writable again, or mount with another --store";
}

std::string space_trouble(const std::string& store, uint64_t floor, bool takes_no_more) {
  constexpr uint64_t kAlmostNothing = 1ULL << 20;
  const auto disk = disk_space(store);
  if (!disk) return {};
  const uint64_t available = disk->f_bavail * disk->f_frsize;
  const std::string remedy = ": " + store + ": free some space there, or mount with another --store";
  if (disk->f_files > 0 && disk->f_favail == 0) {
    return "the disk of --store has no room for another file, so writes fail with ENOSPC" + remedy;
  }
  const std::string left = config::human_bytes(available) + " free";
  if (available < kAlmostNothing) {
    return "the disk of --store is full (" + left + "), so writes fail with ENOSPC" + remedy;
  }
  if (takes_no_more) {
    return "the disk of --store has " + left +
           ", but takes no more, as where a quota is reached, so writes fail with ENOSPC: " + store +
           ": free some space there, raise the quota, or mount with another --store";
  }
  if (available >= floor) return {};
  return "the disk of --store has " + left + ", less than the " + config::human_bytes(floor) +
         " of --store-floor, so nothing is fetched from the cluster" + remedy;
}

Result<void> refuse_without_marks(const std::string& store) {
  std::string at = store;  // it may not be made yet
  struct statfs disk {};
  while (::statfs(at.c_str(), &disk) != 0) {
    if ((errno != ENOENT && errno != ENOTDIR) || at.size() <= 1) return {};  // whoever uses it says what is wrong
    at = directory_of(at);
  }
  if (keeps_marks(at)) return {};
  return fail(ErrorCode::kInvalid,
              "the file system of --store keeps no extended attributes, so nothing that jobs make here and the cluster "
              "lacks would outlive this mount: " +
                  store + ": name a directory on ext4, xfs or btrfs (tmpfs keeps them from Linux 6.6 on)");
}

Result<void> try_to_write(const std::string& store) {
  const Fd file(::open((store + "/tmp").c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kFileMode));
  if (!file && errno == EOPNOTSUPP) return {};
  if (!file) return fail_errno("open", store);
  const std::array<char, kBlock> block{};
  return write_full(file.get(), {block.data(), block.size()});
}

}  // namespace inductorfs::mount
