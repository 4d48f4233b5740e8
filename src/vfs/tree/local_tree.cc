// SPDX-License-Identifier: Apache-2.0
#include "vfs/tree/local_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/handle.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/tree/early_copy.h"

namespace inductorfs::vfs {
namespace {

constexpr size_t kCopyPiece = 1 << 20;
constexpr size_t kListStep = 256;                  // names that are read between two signs of progress
constexpr size_t kXattrLimit = size_t{64} * 1024;  // XATTR_SIZE_MAX and XATTR_LIST_MAX of linux/limits.h

/// Opens the file that has this name now, if it is a regular file. A program may put a FIFO in the place of a file
/// after the caller has looked at it, and open(2) of a FIFO waits until somebody opens its other end. The open by the
/// descriptor is that of the file that was looked at.
Result<Fd> open_regular_file(int directory, const std::string& path, int mode) {
  INDUCTORFS_TRY_ASSIGN(const auto named, open_at(directory, path, O_PATH | O_NOFOLLOW));
  struct stat status {};
  if (::fstat(named.get(), &status) != 0) return fail_errno("stat", path);
  if (!S_ISREG(status.st_mode)) return fail(ErrorCode::kInvalid, path + " is not a regular file");
  auto file = open_at(AT_FDCWD, proc_path(named.get()), mode);
  if (!file) return fail(std::move(file).error().with_context(path));
  return file;
}

Timestamp timestamp_of(const struct timespec& time) { return {time.tv_sec, time.tv_nsec}; }

void copy_xattrs(int from, int to) {
  std::array<char, kXattrLimit> names{};
  const ssize_t length = ::flistxattr(from, names.data(), names.size());
  std::string value(kXattrLimit, '\0');
  for (ssize_t at = 0; at < length;) {
    const std::string name(names.data() + at);
    at += static_cast<ssize_t>(name.size()) + 1;
    if (name == LocalTree::kSealName || name == LocalTree::kEntryName) continue;
    const ssize_t size = ::fgetxattr(from, name.c_str(), value.data(), value.size());
    if (size < 0) continue;
    // What the disk refuses on a copy (security labels, say) it would have refused to the program itself.
    (void)::fsetxattr(to, name.c_str(), value.data(), static_cast<size_t>(size), 0);
  }
}

}  // namespace

Attributes attributes_of(const struct stat& status) {
  Attributes result;
  result.inode_number = status.st_ino;
  result.mode = status.st_mode;
  // 1 is "not counted" for directories: those from the cluster are not in the local count (find(1) knows this form).
  result.links = S_ISDIR(status.st_mode) ? 1 : status.st_nlink;
  result.uid = status.st_uid;
  result.gid = status.st_gid;
  result.device = status.st_rdev;
  result.size = static_cast<uint64_t>(status.st_size);
  result.blocks = static_cast<uint64_t>(status.st_blocks);
  result.accessed = timestamp_of(status.st_atim);
  result.modified = timestamp_of(status.st_mtim);
  result.changed = timestamp_of(status.st_ctim);
  return result;
}

std::string join(std::string_view directory, std::string_view name) {
  std::string path(directory);
  if (!path.empty()) path += '/';
  path += name;
  return path;
}

std::string proc_path(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

Result<void> copy_bytes(int from, int to, uint64_t size) {
  return copy_bytes([&](char* out, size_t most, uint64_t at) { return pread_full(from, out, most, at); }, to, size);
}

Result<void> copy_bytes(const codec::ReadAt& from, int to, uint64_t size) {
  std::string buffer(std::min<uint64_t>(size, kCopyPiece), '\0');
  for (uint64_t offset = 0; offset < size;) {
    INDUCTORFS_TRY_ASSIGN(const auto got,
                          from(buffer.data(), std::min<uint64_t>(buffer.size(), size - offset), offset));
    if (got == 0) break;
    INDUCTORFS_TRY(pwrite_full(to, std::string_view(buffer.data(), got), offset));
    takeover::note_progress();
    offset += got;
  }
  return {};
}

Result<LocalTree> LocalTree::open(const std::string& directory, uid_t owner, gid_t group, mode_t mode) {
  INDUCTORFS_TRY(make_directories(directory, 0700));
  LocalTree tree;
  INDUCTORFS_TRY_ASSIGN(auto root, open_at(AT_FDCWD, directory, O_RDONLY | O_DIRECTORY));
  tree.root_ = std::move(root);
  tree.owner_ = owner;
  tree.group_ = group;
  tree.mode_ = mode;
  for (const char* name : {kViewFolder, kPendingFolder, kOrphanFolder, kStaleFolder}) {
    if (::mkdirat(tree.fd(), name, 0700) != 0 && errno != EEXIST) return fail_errno("mkdir", directory + "/" + name);
  }
  tree.keeps_seals_ = ::setxattr(in_folder(directory, kOrphanFolder).c_str(), "user.inductorfs.probe", "1", 1, 0) == 0;
  return tree;
}

Result<void> LocalTree::dress_root() const {
  const std::string root = view("");
  if (::geteuid() == 0 && ::fchownat(fd(), root.c_str(), owner_, group_, AT_SYMLINK_NOFOLLOW) != 0) {
    return fail_errno("chown", root);
  }
  if (::fchmodat(fd(), root.c_str(), mode_, 0) != 0) return fail_errno("chmod", root);  // a chown takes bits away
  return {};
}

Result<std::optional<struct stat>> LocalTree::stat(const std::string& path) const {
  struct stat status {};
  if (::fstatat(fd(), path.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) return status;
  if (errno == ENOENT || errno == ENOTDIR) return std::optional<struct stat>{};
  return fail_errno("stat", path);
}

Result<std::vector<LocalTree::Item>> LocalTree::list(const std::string& path) const {
  auto directory = open_directory(path);
  if (directory) return list(std::move(*directory), path);
  if (directory.error().code() == ErrorCode::kNotFound) return std::vector<Item>{};
  return fail(std::move(directory).error());
}

Result<Fd> LocalTree::open_directory(const std::string& path) const {
  return open_at(fd(), path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

Result<std::vector<LocalTree::Item>> LocalTree::list(Fd directory, const std::string& path, size_t most) {
  std::vector<Item> items;
  const Handle<DIR, ::closedir> stream(::fdopendir(directory.get()));
  if (!stream) return fail_errno("opendir", path);
  (void)directory.release();  // the stream owns it now
  while (items.size() < most) {
    errno = 0;
    const struct dirent* entry = ::readdir(stream.get());
    if (entry == nullptr && errno != 0) return fail_errno("readdir", path);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    items.push_back({std::string(name), entry->d_ino, static_cast<mode_t>(DTTOIF(entry->d_type))});
    if (items.size() % kListStep == 0) takeover::note_progress();
  }
  return items;
}

Result<std::vector<LocalTree::Item>> LocalTree::list_below(const Fd& directory, const std::string& below) {
  takeover::note_progress();
  auto opened = open_at(directory.get(), below.empty() ? "." : below, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (opened) return list(std::move(*opened), below);
  const auto code = opened.error().code();
  if (code == ErrorCode::kNotFound || code == ErrorCode::kNotDirectory) return std::vector<Item>{};
  return fail(std::move(opened).error());
}

bool LocalTree::is_empty(const std::string& path) const {
  auto directory = open_directory(path);
  if (!directory) return directory.error().code() == ErrorCode::kNotFound;
  const auto items = list(std::move(*directory), path, 1);
  return items && items->empty();
}

Result<Fd> LocalTree::open_file(const std::string& path, bool writable) const {
  auto file = open_regular_file(fd(), path, writable ? O_RDWR : O_RDONLY);
  if (file || !writable || file.error().code() != ErrorCode::kNotPermitted) return file;
  // A file created read-only is still written through the descriptor that created it (git does so). With no handles
  // the daemon opens again, which an ordinary user's daemon may only do while the owner may write.
  const auto status = stat(path);
  if (!status || !*status) return file;
  const mode_t mode = (*status)->st_mode & 07777;
  if (::fchmodat(fd(), path.c_str(), mode | S_IWUSR | S_IRUSR, 0) != 0) return file;
  auto again = open_regular_file(fd(), path, O_RDWR);
  (void)::fchmodat(fd(), path.c_str(), mode, 0);  // it was just allowed to
  return again;
}

Result<std::string> LocalTree::read_file(const std::string& path, uint64_t limit) const {
  INDUCTORFS_TRY_ASSIGN(const auto file, open_file(path, false));
  return inductorfs::read_file(AT_FDCWD, proc_path(file.get()), limit);
}

Result<void> LocalTree::rename(const std::string& from, const std::string& to, unsigned flags) const {
  if (::renameat2(fd(), from.c_str(), fd(), to.c_str(), flags) != 0) return fail_errno("rename", from);
  return {};
}

Result<void> LocalTree::unlink(const std::string& path) const {
  if (::unlinkat(fd(), path.c_str(), 0) != 0 && errno != ENOENT) return fail_errno("unlink", path);
  return {};
}

Result<void> LocalTree::link(const std::string& from, const std::string& to) const {
  if (::linkat(fd(), from.c_str(), fd(), to.c_str(), 0) != 0) return fail_errno("link", from);
  return {};
}

Result<void> LocalTree::make_view_directories(std::string_view path, const RootAccess& access) const {
  for (size_t end = 0; end != std::string_view::npos && !path.empty();) {
    end = path.find('/', end == 0 ? 0 : end + 1);
    const std::string prefix = view(path.substr(0, end));
    if (::mkdirat(fd(), prefix.c_str(), access.mode) != 0) {
      if (errno == EEXIST) continue;
      return fail_errno("mkdir", prefix);
    }
    fail_point("view.directory_made");
    if (::fchmodat(fd(), prefix.c_str(), access.mode, 0) != 0) return fail_errno("chmod", prefix);
    if (::geteuid() == 0 && ::fchownat(fd(), prefix.c_str(), access.uid, access.gid, AT_SYMLINK_NOFOLLOW) != 0) {
      return fail_errno("chown", prefix);
    }
  }
  return {};
}

Result<void> LocalTree::unshare(const std::string& path, EarlyCopy& early) const {
  INDUCTORFS_TRY_ASSIGN(auto from, open_regular_file(fd(), path, O_RDONLY));
  struct stat status {};
  if (::fstat(from.get(), &status) != 0) return fail_errno("stat", path);
  // Beside the other nameless files, so that the copy never shows in the view.
  auto made = early.take(from.get());
  const bool copied = made.has_value();
  const std::string copy = copied ? made->name : in_folder(kOrphanFolder, "copy-" + std::to_string(status.st_ino));
  if (!copied) (void)::unlinkat(fd(), copy.c_str(), 0);  // left by a copy that failed
  INDUCTORFS_TRY_ASSIGN(auto to, copied ? Result<Fd>(std::move(made->file))
                                        : open_at(fd(), copy, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  const auto undo = [&](Error error) -> Result<void> {
    (void)::unlinkat(fd(), copy.c_str(), 0);  // the error that is reported came first
    return fail(std::move(error));
  };
  const uint64_t wanted = copied ? 0 : early.wanted(static_cast<uint64_t>(status.st_size));
  if (auto rest = copy_bytes(from.get(), to.get(), wanted); !rest) return undo(rest.error());
  copy_xattrs(from.get(), to.get());
  mark_changed(to.get(), status.st_ino);
  if (::geteuid() == 0) (void)::fchown(to.get(), status.st_uid, status.st_gid);  // root may
  const struct timespec times[2] = {status.st_atim, status.st_mtim};
  if (::fchmod(to.get(), status.st_mode & 07777) != 0) return undo(error_from_errno(errno, "chmod", path));
  (void)::futimens(to.get(), times);  // the write that follows changes them anyway
  fail_point("unshare.copied");
  if (auto renamed = rename(copy, path); !renamed) return undo(renamed.error());
  fail_point("unshare.renamed");
  return {};
}

Result<std::string> LocalTree::set_aside(const std::string& path) const {
  constexpr int kMost = 10'000;
  const size_t slash = path.rfind('/');
  const std::string above = slash == std::string::npos ? std::string() : path.substr(0, slash);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  INDUCTORFS_TRY_ASSIGN(auto directory, open_at(fd(), view(above), O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (::mkdirat(fd(), kSetAsideFolder, 0700) != 0 && errno != EEXIST) return fail_errno("mkdir", kSetAsideFolder);
  for (int number = 1; number < kMost; ++number) {
    std::string place = in_folder(kSetAsideFolder, std::to_string(number));
    if (::renameat2(directory.get(), name.c_str(), fd(), place.c_str(), RENAME_NOREPLACE) == 0) return place;
    if (errno != EEXIST) return fail_errno("rename", path);
  }
  return fail(ErrorCode::kTooLarge,
              std::string(kSetAsideFolder) + "/ holds " + std::to_string(kMost) + " items; remove some");
}

bool LocalTree::same_bytes(const std::string& one, const std::string& other, uint64_t most) const {
  const auto a = open_file(one, false);
  const auto b = open_file(other, false);
  if (!a || !b) return false;
  struct stat first {};
  struct stat second {};
  if (::fstat(a->get(), &first) != 0 || ::fstat(b->get(), &second) != 0) return false;
  if (first.st_size != second.st_size || static_cast<uint64_t>(first.st_size) > most) return false;
  std::string piece(kCopyPiece, '\0');
  std::string beside(kCopyPiece, '\0');
  // Somebody may make them longer meanwhile.
  for (uint64_t offset = 0; offset <= most; offset += kCopyPiece) {
    const auto got = pread_full(a->get(), piece.data(), piece.size(), offset);
    const auto there = pread_full(b->get(), beside.data(), beside.size(), offset);
    if (!got || !there || *got != *there) return false;
    if (piece.compare(0, *got, beside, 0, *got) != 0) return false;
    if (*got < piece.size()) return true;
    takeover::note_progress();
  }
  return false;
}

std::optional<std::string> LocalTree::seal_of(int file) const {
  if (!keeps_seals_) return std::nullopt;
  std::array<char, 128> value{};
  const ssize_t size = ::fgetxattr(file, kSealName, value.data(), value.size());
  if (size < 0) return std::nullopt;
  return std::string(value.data(), static_cast<size_t>(size));
}

Result<void> LocalTree::set_seal(int file, std::string_view digest_hex) const {
  if (!keeps_seals_) return {};
  if (::fsetxattr(file, kSealName, digest_hex.data(), digest_hex.size(), 0) != 0) {
    return fail_errno("setxattr", kSealName);
  }
  return {};
}

bool LocalTree::is_changed(int file) const { return ::fgetxattr(file, kChangedName, nullptr, 0) >= 0; }

void LocalTree::mark_changed(int file, uint64_t instead_of) const {
  if (!keeps_seals_) return;
  const std::string value = std::to_string(instead_of);
  // Without it the next start publishes what checks out.
  (void)::fsetxattr(file, kChangedName, value.data(), value.size(), 0);
}

std::optional<std::string> LocalTree::mark_of(const std::string& path, const char* name) const {
  if (!keeps_seals_) return std::nullopt;
  std::array<char, kMarkLimit> value{};
  const ssize_t size = ::lgetxattr(join(proc_path(fd()), path).c_str(), name, value.data(), value.size());
  if (size < 0) return std::nullopt;
  return std::string(value.data(), static_cast<size_t>(size));
}

void LocalTree::set_mark(const std::string& path, const char* name, const std::string& value) const {
  if (!keeps_seals_) return;
  const std::string whole = join(proc_path(fd()), path);
  const auto set = [&] { return ::lsetxattr(whole.c_str(), name, value.data(), value.size(), 0) == 0; };
  if (set() || errno != EACCES) return;
  // An ordinary user's daemon may only do it while the owner may write (xattr(7)).
  const auto status = stat(path);
  if (!status || !*status || !S_ISREG((*status)->st_mode)) return;
  const mode_t mode = (*status)->st_mode & 07777;
  if (::fchmodat(fd(), path.c_str(), mode | S_IWUSR, 0) != 0) return;
  (void)set();                                    // best effort
  (void)::fchmodat(fd(), path.c_str(), mode, 0);  // it was just allowed to
}

void LocalTree::remove_mark(const std::string& path, const char* name) const {
  if (keeps_seals_) (void)::lremovexattr(join(proc_path(fd()), path).c_str(), name);  // most have none
}

}  // namespace inductorfs::vfs
