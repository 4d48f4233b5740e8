// SPDX-License-Identifier: Apache-2.0
#include "directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "inductorfs/base/disk_space.h"
#include "inductorfs/base/encoding.h"
#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/handle.h"
#include "inductorfs/base/host_error.h"
#include "inductorfs/base/host_files.h"
#include "pack.h"

namespace inductorfs::store {
namespace {

constexpr const char* kFormatFile = "format";
constexpr const char* kLockFile = "lock";
constexpr const char* kStateFile = "state";
/// The last one has the bytes. As many inodes as a start takes at once: the catalog's log and its index, which a clean
/// end has removed, and a new state in the place of the old one.
constexpr std::array<const char*, 4> kReserveFiles = {"reserve.1", "reserve.2", "reserve.3", "reserve"};
/// What a start writes at most: the catalog's log and its index.
constexpr off_t kReserve = off_t{1} << 20;
/// The reserve is no reason that a disk becomes full.
constexpr uint64_t kRoomForReserve = uint64_t{32} << 20;
constexpr uint64_t kInodesForReserve = 64;
constexpr std::string_view kFormatWord = "inductorfs-store ";
constexpr unsigned kFormatVersion = 1;
constexpr std::string_view kUnknownBoot = "unknown";
/// What a store that was killed while it was made may hold, and what mkfs leaves.
constexpr std::array<std::string_view, 3> kBeforeFormat = {"format.tmp", "lock", "lost+found"};
constexpr uint64_t kSmallFileLimit = 4096;
/// Behind the process id of an owner that is about to free the lock.
constexpr std::string_view kEnds = " ends";
/// Of an owner that has not said so.
constexpr Milliseconds kUnsaidPatience{2000};
constexpr Milliseconds kTurn{20};
constexpr mode_t kFolderMode = 0700;
constexpr mode_t kFileMode = 0600;

using Directory = Handle<DIR, ::closedir>;

/// What a person can do about an error of the disk.
std::string_view remedy(ErrorCode code) {
  if (code == ErrorCode::kReadOnly) return "; mount its file system writable or name another store directory";
  if (code == ErrorCode::kNotPermitted) return "; give it to this user or name another store directory";
  if (code == ErrorCode::kNoSpace) return "; free some space or name another store directory";
  if (code == ErrorCode::kNotFound) return " cannot be made: there is no such directory above it; name another one";
  if (code == ErrorCode::kNotDirectory) return "; remove the file or name another store directory";
  // EIO and the like.
  if (code == ErrorCode::kInternal) {
    return "; see what the kernel says of its disk (dmesg), mount that anew or name another store directory";
  }
  return {};
}

}  // namespace

Result<void> for_each_name(int dir, const char* folder, const std::function<void(const char*)>& use) {
  auto fd = open_at(dir, folder, O_RDONLY | O_DIRECTORY);
  INDUCTORFS_TRY(fd);
  const Directory names(::fdopendir(fd->get()));
  if (!names) return fail_errno("read directory", folder);
  (void)fd->release();  // closedir closes it
  errno = 0;
  // readdir is safe here: the DIR belongs to this call alone.
  for (const dirent* entry = ::readdir(names.get()); entry != nullptr; entry = ::readdir(names.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") use(entry->d_name);
    errno = 0;
  }
  if (errno != 0) return fail_errno("read directory", folder);
  return {};
}

namespace {

/// Whole, and on disk when this returns.
Result<void> write_durably(int dir, const std::string& name, std::string_view bytes) {
  const std::string temporary = name + ".tmp";
  {
    auto fd = open_at(dir, temporary, O_WRONLY | O_CREAT | O_TRUNC, kFileMode);
    INDUCTORFS_TRY(fd);
    INDUCTORFS_TRY(write_full(fd->get(), bytes));
    if (::fsync(fd->get()) != 0) return fail_errno("fsync", temporary);
  }
  fail_point("store.file_written");
  if (::renameat(dir, temporary.c_str(), dir, name.c_str()) != 0) return fail_errno("rename", name);
  fail_point("store.file_renamed");
  if (::fsync(dir) != 0) return fail_errno("fsync", name);
  return {};
}

Result<Fd> open_own_directory(const std::string& path) {
  INDUCTORFS_TRY(make_directories(path, kFolderMode));
  auto fd = open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
  INDUCTORFS_TRY(fd);
  return fd;
}

/// A copy of `lock`, when it is the lock of this very directory; the directory may have been made anew meanwhile.
Fd inherited_lock(int dir, int lock) {
  struct stat theirs {};
  struct stat ours {};
  if (lock < 0 || ::fstat(lock, &theirs) != 0) return {};
  if (::fstatat(dir, kLockFile, &ours, AT_SYMLINK_NOFOLLOW) != 0) return {};
  if (theirs.st_dev != ours.st_dev || theirs.st_ino != ours.st_ino) return {};
  return Fd(::fcntl(lock, F_DUPFD_CLOEXEC, 0));
}

/// `inherited`: is asked for the lock as well, which costs nothing when it is held and takes it back when it is not.
Result<Fd> take_lock(int dir, const std::string& path, Fd inherited = {}, Milliseconds patience = Milliseconds(0)) {
  auto lock = inherited ? Result<Fd>(std::move(inherited)) : open_at(dir, kLockFile, O_RDWR | O_CREAT, kFileMode);
  INDUCTORFS_TRY(lock);
  const SteadyTime begun = std::chrono::steady_clock::now();
  while (::flock(lock->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail_errno("flock", kLockFile);
    std::array<char, 32> text{};
    const size_t size = pread_full(lock->get(), text.data(), text.size(), 0).value_or(0);
    std::string holder(text.data(), size);
    holder.resize(std::min(holder.find('\n'), holder.size()));
    const bool ends = holder.ends_with(kEnds);
    if (ends) holder.resize(holder.size() - kEnds.size());
    // One that is killed, or whose mount somebody has just taken away, has not said so yet.
    if (std::chrono::steady_clock::now() - begun < (ends ? patience : std::min(patience, kUnsaidPatience))) {
      (void)::poll(nullptr, 0, static_cast<int>(kTurn.count()));
      continue;
    }
    return fail(ErrorCode::kBusy, "store " + path + " is in use by process " + (holder.empty() ? "unknown" : holder) +
                                      "; end that mount or name another store directory");
  }
  // For a message alone: a disk that takes nothing keeps no worker from serving what is there.
  auto noted = ::ftruncate(lock->get(), 0) == 0 ? pwrite_full(lock->get(), std::to_string(::getpid()) + "\n", 0)
                                                : fail_errno("truncate", kLockFile);
  if (!noted && !is_of_host(noted.error().code())) return fail(std::move(noted).error());
  return lock;
}

/// A directory with foreign files in it is never made a store: clean-up and eviction remove files.
Result<void> refuse_foreign(int dir, const std::string& path) {
  if (::faccessat(dir, kFormatFile, F_OK, 0) == 0) return {};
  std::string foreign;
  INDUCTORFS_TRY(for_each_name(dir, ".", [&](const char* name) {
    if (std::find(kBeforeFormat.begin(), kBeforeFormat.end(), name) == kBeforeFormat.end()) foreign = name;
  }));
  if (foreign.empty()) return {};
  return fail(ErrorCode::kInvalid, "store " + path + " is not a store and not empty (it holds \"" + foreign +
                                       "\"); name an empty directory");
}

Result<void> check_format(int dir, const std::string& path, bool make = true) {
  const auto text = read_file(dir, kFormatFile, kSmallFileLimit);
  if (make && !text && text.error().code() == ErrorCode::kNotFound) {
    return write_durably(dir, kFormatFile, std::string(kFormatWord) + std::to_string(kFormatVersion) + "\n");
  }
  const auto damaged = [&] {
    const std::string sound = std::string(kFormatWord) + std::to_string(kFormatVersion);
    return fail(ErrorCode::kCorrupt, "store " + path + ": its file \"" + kFormatFile +
                                         "\" is damaged; write it anew (echo " + sound + " > " + path + "/" +
                                         kFormatFile + "): what the store has stays; or name another store directory");
  };
  if (!text && text.error().code() == ErrorCode::kTooLarge) return damaged();
  INDUCTORFS_TRY(text);
  unsigned version = 0;
  const char* const end = text->data() + text->size();
  if (!text->starts_with(kFormatWord)) return damaged();
  const auto parsed = std::from_chars(text->data() + kFormatWord.size(), end, version);
  const std::string_view rest(parsed.ptr, static_cast<size_t>(end - parsed.ptr));
  // What a newer version has to say besides is its own business; the store is not damaged.
  const bool whole = rest == "\n" || (version > kFormatVersion && rest.starts_with("\n"));
  if (parsed.ec != std::errc() || !whole || version == 0) return damaged();
  if (version > kFormatVersion) {
    return fail(ErrorCode::kNotSupported, "store " + path + " has format " + std::to_string(version) +
                                              ", this version knows " + std::to_string(kFormatVersion) +
                                              "; upgrade inductorfs or name another store directory");
  }
  return {};
}

/// With the store's path and a remedy, unless it has them.
Error explained(const std::string& path, Error error) {
  if (error.what().starts_with("store ")) return error;
  const ErrorCode code = error.code();
  return {code, std::move(error).with_context("store " + path).what() + std::string(remedy(code))};
}

Result<void> make_folder(int dir, const std::string& name) {
  if (::mkdirat(dir, name.c_str(), kFolderMode) == 0 || errno == EEXIST) return {};
  return fail_errno("make directory", name);
}

/// The folder stays: a disk that is full has no room for another one.
Result<void> clear_temporaries(int dir, const std::string& path) {
  std::vector<std::string> left;
  const auto listed = for_each_name(dir, kTemporaryFolder, [&](const char* name) { left.emplace_back(name); });
  if (!listed && listed.error().code() != ErrorCode::kNotFound) return listed;
  for (const auto& name : left) INDUCTORFS_TRY(remove_tree(path + "/" + kTemporaryFolder + "/" + name));
  return {};
}

Result<void> make_folders(int dir, const std::string& path) {
  auto cleared = clear_temporaries(dir, path);
  if (!cleared && !is_of_host(cleared.error().code())) return cleared;
  INDUCTORFS_TRY(make_folder(dir, kTemporaryFolder));
  return make_folder(dir, kBlobFolder);
}

void scan_shard(int dir, const std::string& folder, const char* name, std::vector<ScannedBlob>& blobs) {
  const auto digest = codec::Digest::from_hex(name);
  // What is no blob in its own place is nobody's: it is not shown, and not removed either.
  if (!digest || blob_path(*digest) != folder + "/" + name) return;
  struct stat info {};
  if (::fstatat(dir, blob_path(*digest).c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) return;
  blobs.push_back(
      {*digest, static_cast<uint64_t>(info.st_size), nanoseconds_of(info.st_atim), {}, nanoseconds_of(info.st_mtim)});
}

Result<std::vector<ScannedBlob>> scan_files(int dir) {
  std::vector<std::string> folders;
  INDUCTORFS_TRY(for_each_name(dir, kBlobFolder, [&](const char* name) {
    if (from_hex(name) && std::string_view(name).size() == 2) folders.push_back(std::string(kBlobFolder) + "/" + name);
  }));
  std::vector<ScannedBlob> blobs;
  for (const std::string& folder : folders) {
    INDUCTORFS_TRY(for_each_name(dir, folder.c_str(), [&](const char* name) { scan_shard(dir, folder, name, blobs); }));
  }
  return blobs;
}

/// All blobs, the least recently used first.
Result<void> scan(OwnedDirectory& owned) {
  INDUCTORFS_TRY_ASSIGN(owned.blobs, scan_files(owned.fd.get()));
  owned.packs = std::make_unique<Packs>(owned.fd.get());
  std::vector<Pack::Item> items;
  INDUCTORFS_TRY(owned.packs->open(items));
  for (Pack::Item& item : items) {
    owned.blobs.push_back({item.record.digest, item.record.size, item.record.used, std::move(item.blob)});
  }
  std::stable_sort(owned.blobs.begin(), owned.blobs.end(),
                   [](const auto& a, const auto& b) { return a.used < b.used; });
  return {};
}

std::string state_text(std::string_view word, std::string_view boot_id, bool suspect) {
  return std::string(word) + " " + std::string(boot_id) + (suspect ? " suspect\n" : " sound\n");
}

/// Says whether the blobs are suspect, and makes sure that the disk says "open" before the first blob is written.
Result<bool> enter_state(int dir, const std::string& boot_id, bool empty, bool takes_over) {
  const std::string before = read_file(dir, kStateFile, kSmallFileLimit).value_or("");
  const bool same_boot = boot_id != kUnknownBoot && before == state_text("open", boot_id, false);
  const bool clean = before.starts_with("clean ") && before.ends_with(" sound\n");
  const bool suspect = !empty && !same_boot && !clean;
  const std::string after = state_text("open", boot_id, suspect);
  if (after == before) return suspect;
  // A missing state means suspect, so that a new one need not be durable; one that replaces "clean" must be.
  const auto written =
      before.empty() ? write_file_atomically(dir, kStateFile, after, kFileMode) : write_durably(dir, kStateFile, after);
  // Nothing is written to a disk that has turned read-only since.
  const bool is_idle = takes_over && !written && written.error().code() == ErrorCode::kReadOnly;
  if (!is_idle) INDUCTORFS_TRY(written);
  return suspect;
}

/// False where the disk does not count them.
bool has_fewer_inodes(const struct statvfs& disk, uint64_t count) { return disk.f_files > 0 && disk.f_favail < count; }

/// Gives a start on a full disk the room that it needs. The next one that finds room keeps another.
void free_reserve(int dir) {
  const auto disk = disk_space(dir);
  const bool is_full =
      disk && (disk->f_bavail * disk->f_frsize < kReserve || has_fewer_inodes(*disk, kReserveFiles.size()));
  if (!is_full && takes_writes(dir)) return;
  bool freed = false;
  for (const char* name : kReserveFiles) freed |= ::unlinkat(dir, name, 0) == 0;  // those that are there
  // btrfs takes off its quota what is gone with the next transaction only.
  if (freed) (void)::syncfs(dir);
}

Result<void> close_to_others(int dir, const std::string& path) {
  struct stat status {};
  if (::fstat(dir, &status) == 0 && (status.st_mode & 07777) == kFolderMode) return {};
  if (::fchmod(dir, kFolderMode) != 0) return fail_errno("chmod", path);
  return {};
}

Result<OwnedDirectory> own(const std::string& path, const std::string& boot_id, int inherited, Milliseconds patience) {
  OwnedDirectory owned;
  owned.path = path;
  owned.boot_id = boot_id;
  auto fd = open_own_directory(path);
  INDUCTORFS_TRY(fd);
  owned.fd = std::move(*fd);
  INDUCTORFS_TRY(refuse_foreign(owned.fd.get(), path));
  Fd known = inherited_lock(owned.fd.get(), inherited);
  owned.shared_lock = static_cast<bool>(known);
  auto lock = take_lock(owned.fd.get(), path, std::move(known), patience);
  INDUCTORFS_TRY(lock);
  owned.lock = std::move(*lock);
  fail_point("store.locked");
  INDUCTORFS_TRY(check_format(owned.fd.get(), path));
  // A worker that takes a mount over does with what is there, and leaves it to the next mount.
  if (!owned.shared_lock) free_reserve(owned.fd.get());
  // After the check: only a directory that is a store is closed to others.
  INDUCTORFS_TRY(close_to_others(owned.fd.get(), path));
  INDUCTORFS_TRY(make_folders(owned.fd.get(), path));
  fail_point("store.cleared");
  INDUCTORFS_TRY(scan(owned));
  const auto suspect = enter_state(owned.fd.get(), boot_id, owned.blobs.empty(), owned.shared_lock);
  INDUCTORFS_TRY(suspect);
  fail_point("store.entered");
  owned.suspect = *suspect;
  return owned;
}

}  // namespace

std::string blob_path(const codec::Digest& digest) {
  const std::string hex = digest.to_hex();
  return std::string(kBlobFolder) + "/" + hex.substr(0, 2) + "/" + hex;
}

Result<void> move_into_place(int dir, const std::string& temporary, const codec::Digest& digest) {
  const std::string place = blob_path(digest);
  if (::renameat(dir, temporary.c_str(), dir, place.c_str()) == 0) return {};
  if (errno != ENOENT) return fail_errno("rename", place);
  // The first blob of its folder. All 256 at once would cost a new store a second on a busy ext4.
  INDUCTORFS_TRY(make_folder(dir, place.substr(0, place.rfind('/'))));
  fail_point("store.folder_made");
  if (::renameat(dir, temporary.c_str(), dir, place.c_str()) == 0) return {};
  return fail_errno("rename", place);
}

Result<OwnedDirectory> own_directory(const std::string& path, const std::string& boot_id, int lock,
                                     Milliseconds patience) {
  auto owned = own(path, boot_id, lock, patience);
  if (!owned) return fail(explained(path, std::move(owned).error()));
  return owned;
}

void say_end(int lock) {
  // For who waits alone: without it that one gives up sooner.
  if (lock >= 0) (void)pwrite_full(lock, std::to_string(::getpid()) + std::string(kEnds) + "\n", 0);
}

Result<Fd> lock_store(const std::string& path, Fd& directory) {
  auto fd = open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
  Result<void> usable = fd ? Result<void>() : fail(fd.error());
  if (fd && ::faccessat(fd->get(), kFormatFile, F_OK, 0) != 0) usable = fail_errno("look into", path);
  if (!usable && usable.error().code() == ErrorCode::kNotPermitted) {
    return fail(ErrorCode::kNotPermitted,
                "store " + path + ": " + usable.error().what() + "; run this as the user whose mount has the store");
  }
  if (!usable) {
    const std::string why = usable.error().what().empty() ? "it has no format file" : usable.error().what();
    return fail(ErrorCode::kInvalid, path + " is not a store: " + why + "; name the --store of a mount");
  }
  // The format first: a store of a newer version is none of our business.
  const auto known = check_format(fd->get(), path, false);
  if (!known) return fail(explained(path, known.error()));
  auto lock = take_lock(fd->get(), path);
  if (!lock) return fail(explained(path, std::move(lock).error()));
  directory = std::move(*fd);
  return lock;
}

bool takes_writes(int dir) {
  const Fd file(::openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, kFileMode));
  if (!file) return errno != ENOSPC && errno != EDQUOT;
  // What is closed before it goes to the disk leaves nothing there to be freed.
  const auto written = pwrite_full(file.get(), std::string(kReserve, '\0'), 0);
  return written || written.error().code() != ErrorCode::kNoSpace;
}

bool keep_reserve(int dir) {
  const auto is_there = [dir](const char* name) { return ::faccessat(dir, name, F_OK, 0) == 0; };
  if (std::ranges::all_of(kReserveFiles, is_there)) return true;
  const auto disk = disk_space(dir);
  if (!disk || disk->f_bavail * disk->f_frsize < kRoomForReserve || has_fewer_inodes(*disk, kInodesForReserve)) {
    return false;
  }
  Result<Fd> file = Fd();
  for (const char* name : kReserveFiles) {
    file = open_at(dir, name, O_WRONLY | O_CREAT | O_NOFOLLOW, kFileMode);
    if (!file) return false;
  }
  if (::posix_fallocate(file->get(), 0, kReserve) == 0) return true;
  (void)::unlinkat(dir, kReserveFiles.back(), 0);
  return false;
}

Result<void> mark_clean(const OwnedDirectory& directory, bool suspects, bool changed) {
  // Torch never fsyncs and neither do we on a job's path; here nobody waits.
  if (changed && (fail_point_error("store.sync") || ::syncfs(directory.fd.get()) != 0))
    return fail_errno("syncfs", directory.path);
  fail_point("store.synced");
  return write_durably(directory.fd.get(), kStateFile, state_text("clean", directory.boot_id, suspects));
}

std::string running_boot_id() {
  std::string id = boot_id();
  id.resize(std::min(id.find('\n'), id.size()));
  return id.empty() ? std::string(kUnknownBoot) : id;
}

}  // namespace inductorfs::store
