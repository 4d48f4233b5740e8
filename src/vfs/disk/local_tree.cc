// SPDX-License-Identifier: Apache-2.0
#include "vfs/disk/local_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "inductorfs/base/defaults.h"
#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/handle.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/disk/early_copy.h"

namespace inductorfs::vfs {
namespace {

constexpr size_t kCopyPiece = 1 << 20;
constexpr size_t kListStep = 256;  // names that are read between two signs of progress

/// Opens the file that has this name now, if it is a regular file. A program may put a FIFO in the place of a file
/// after the caller has looked at it, and open(2) of a FIFO waits until somebody opens its other end. The open by the
/// descriptor is that of the file that was looked at.
Result<Fd> open_regular_file(const HeldParent& at, const std::string& path, int mode) {
  INDUCTORFS_TRY_ASSIGN(const auto named, open_at(at.fd(), at.name(), O_PATH | O_NOFOLLOW));
  struct stat status {};
  if (::fstat(named.get(), &status) != 0) return fail_errno("stat", path);
  const std::string itself = proc_path(named.get());
  INDUCTORFS_TRY_ASSIGN(const auto owner, file_owner(named.get()));
  if (!S_ISREG(status.st_mode) || (owner && owner->is_special())) {
    return fail(ErrorCode::kInvalid, path + " is not a regular file");
  }
  auto file = open_at(AT_FDCWD, itself, mode);
  if (!file) return fail(std::move(file).error().with_context(path));
  return file;
}

Timestamp timestamp_of(const struct timespec& time) { return {time.tv_sec, time.tv_nsec}; }

/// A mark of ours that cannot be read is an error: without it the copy would be another's, or shared.
Result<void> copy_xattrs(int from, int to) {
  std::array<char, LocalTree::kXattrLimit> names{};
  const ssize_t length = ::flistxattr(from, names.data(), names.size());
  std::string value(LocalTree::kXattrLimit, '\0');
  for (ssize_t at = 0; at < length;) {
    const std::string name(names.data() + at);
    at += static_cast<ssize_t>(name.size()) + 1;
    if (name == LocalTree::kSealName || name == LocalTree::kEntryName) continue;
    const ssize_t size = ::fgetxattr(from, name.c_str(), value.data(), value.size());
    if (size < 0 && errno != ENODATA && name.starts_with("user.inductorfs.")) return fail_errno("getxattr", name);
    if (size < 0) continue;
    // What the disk refuses on a copy (security labels, say) it would have refused to the program itself.
    (void)::fsetxattr(to, name.c_str(), value.data(), static_cast<size_t>(size), 0);
  }
  return {};
}

/// What is no directory may be a special file.
mode_t type_of(int directory, const char* name) {
  const auto owner = file_owner_in(directory, name);
  return owner && *owner ? (*owner)->mode & S_IFMT : S_IFREG;
}

/// Before a special file that has the one name gets the other.
Result<void> note_specials_of(const HeldParent& from, const HeldParent& to) {
  const bool is_one = holds_specials(from.fd()) && type_of(from.fd(), from.name()) != S_IFREG;
  return is_one ? note_specials(to.fd()) : Result<void>{};
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

Result<LocalTree> LocalTree::open(const std::string& directory, uid_t owner, gid_t group, mode_t mode,
                                  UserCharges::Limits limits) {
  INDUCTORFS_TRY(make_directories(directory, 0700));
  LocalTree tree;
  INDUCTORFS_TRY_ASSIGN(auto root, open_at(AT_FDCWD, directory, O_RDONLY | O_DIRECTORY));
  tree.root_ = std::move(root);
  tree.owner_ = owner;
  tree.group_ = group;
  tree.mode_ = mode;
  if (limits.bytes == defaults::kHalfOfDisk) {
    INDUCTORFS_TRY_ASSIGN(const auto disk, tree.statistics());
    limits.bytes = disk.f_blocks / 2 * disk.f_frsize;
  }
  tree.charges_ = std::make_unique<UserCharges>(limits);
  for (const char* name : {kViewFolder, kPendingFolder, kOrphanFolder, kStaleFolder}) {
    const auto made = tree.make_directory(name);
    if (!made && made.error().code() != ErrorCode::kExists) return fail(Error(made.error()).with_context(directory));
  }
  INDUCTORFS_TRY_ASSIGN(auto view, open_at(tree.root_.get(), kViewFolder, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  tree.view_ = std::move(view);
  return tree;
}

bool LocalTree::is_at(const std::string& directory) {
  struct stat status {};
  return ::stat(in_folder(directory, kViewFolder).c_str(), &status) == 0 || errno != ENOENT;
}

Result<HeldParent> LocalTree::held(std::string_view path) const {
  constexpr std::string_view kInView = "view/";
  // The kernel counts the path of the parent alone, and what has the last name could not be reached through it.
  if (path.size() > kInView.size() + kPathLimit) return fail(ErrorCode::kNameTooLong, "a path of the store");
  return path.starts_with(kInView) ? HeldParent::of(view_.get(), path.substr(kInView.size()))
                                   : HeldParent::of(root_.get(), path);
}

Result<void> LocalTree::dress_root() const { return give_to(kViewFolder, {owner_, group_, S_IFDIR | mode_}); }

Result<std::vector<LocalTree::Item>> LocalTree::list(const std::string& path) const {
  auto directory = open_directory(path);
  if (directory) return list(std::move(*directory), path);
  if (directory.error().code() == ErrorCode::kNotFound) return std::vector<Item>{};
  return fail(std::move(directory).error());
}

Result<Fd> LocalTree::open_directory(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return open_at(at.fd(), at.name(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

Result<std::vector<LocalTree::Item>> LocalTree::list(Fd directory, const std::string& path, size_t most) {
  std::vector<Item> items;
  const Handle<DIR, ::closedir> stream(::fdopendir(directory.get()));
  if (!stream) return fail_errno("opendir", path);
  (void)directory.release();  // the stream owns it now
  const bool has_specials = holds_specials(::dirfd(stream.get()));
  while (items.size() < most) {
    errno = 0;
    const struct dirent* entry = ::readdir(stream.get());
    if (entry == nullptr && errno != 0) return fail_errno("readdir", path);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    auto type = static_cast<mode_t>(DTTOIF(entry->d_type));
    if (entry->d_type == DT_UNKNOWN) {  // xfs without ftype, some FUSE and network file systems
      struct stat status {};
      if (::fstatat(::dirfd(stream.get()), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) continue;
        return fail_errno("stat", join(path, name));
      }
      type = status.st_mode & S_IFMT;
    }
    if (has_specials && type == S_IFREG) type = type_of(::dirfd(stream.get()), entry->d_name);
    items.push_back({std::string(name), entry->d_ino, type});
    if (items.size() % kListStep == 0) takeover::note_progress();
  }
  return items;
}

Result<std::vector<LocalTree::Item>> LocalTree::list_below(const Fd& directory, const std::string& below) {
  takeover::note_progress();
  const auto at = HeldParent::of(directory.get(), below.empty() ? "." : below);
  auto opened = at ? open_at(at->fd(), at->name(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW) : fail(at.error());
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
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  auto file = open_regular_file(at, path, writable ? O_RDWR : O_RDONLY);
  if (!file || !writable) return file;
  // Of the descriptor that is written to: whatever else was believed of the file, no writer gets into a blob.
  if (is_stores(file->get()).value_or(true)) return fail(ErrorCode::kBusy, path + " is a blob of the store");
  return file;
}

Result<std::string> LocalTree::read_file(const std::string& path, uint64_t limit) const {
  INDUCTORFS_TRY_ASSIGN(const auto file, open_file(path, false));
  return inductorfs::read_file(AT_FDCWD, proc_path(file.get()), limit);
}

Result<void> LocalTree::rename(const std::string& from, const std::string& to, unsigned flags) const {
  INDUCTORFS_TRY_ASSIGN(const auto source, held(from));
  INDUCTORFS_TRY_ASSIGN(const auto target, held(to));
  INDUCTORFS_TRY(note_specials_of(source, target));
  if ((flags & RENAME_EXCHANGE) != 0) INDUCTORFS_TRY(note_specials_of(target, source));
  const Fd replaced = flags == 0 ? losing(target) : Fd();
  const bool done = ::renameat2(source.fd(), source.name(), target.fd(), target.name(), flags) == 0;
  if (!done) return fail_errno("rename", from);
  lost(replaced, to);
  moved(target, from, to);
  if ((flags & RENAME_EXCHANGE) != 0) moved(source, to, from);
  return {};
}

Result<void> LocalTree::unlink(const std::string& path, bool must_exist) const {
  const auto at = held(path);
  const Fd file = at ? losing(*at) : Fd();
  if (at && ::unlinkat(at->fd(), at->name(), 0) == 0) {
    lost(file, path);
    return {};
  }
  const Error why = at ? error_from_errno(errno, "unlink", path) : at.error();
  return !must_exist && why.code() == ErrorCode::kNotFound ? Result<void>{} : fail(why);
}

Result<void> LocalTree::link(const std::string& from, const std::string& to) const {
  INDUCTORFS_TRY_ASSIGN(const auto source, held(from));
  INDUCTORFS_TRY_ASSIGN(const auto target, held(to));
  INDUCTORFS_TRY(note_specials_of(source, target));
  const bool done = ::linkat(source.fd(), source.name(), target.fd(), target.name(), 0) == 0;
  return done ? Result<void>{} : fail_errno("link", from);
}

Result<void> LocalTree::link(const Fd& file, const std::string& to) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(to));
  const std::string from = proc_path(file.get());
  const bool done = ::linkat(AT_FDCWD, from.c_str(), at.fd(), at.name(), AT_SYMLINK_FOLLOW) == 0;
  return done ? Result<void>{} : fail_errno("link", to);
}

Result<void> LocalTree::remove_tree(const std::string& path) const {
  const auto at = held(path);
  if (!at) return at.error().code() == ErrorCode::kNotFound ? Result<void>{} : fail(at.error());
  forget_all(path);
  return inductorfs::remove_tree(at->in_proc());  // from there on it follows nothing
}

Result<void> LocalTree::make_view_directories(std::string_view path, const RootAccess& access) const {
  for (size_t end = 0; end != std::string_view::npos && !path.empty();) {
    end = path.find('/', end == 0 ? 0 : end + 1);
    const std::string prefix = view(path.substr(0, end));
    if (const auto made = make_directory(prefix); !made) {
      if (made.error().code() == ErrorCode::kExists) continue;
      return made;
    }
    fail_point("view.directory_made");
    INDUCTORFS_TRY(give_to(prefix, {access.uid, access.gid, S_IFDIR | access.mode}));
  }
  return {};
}

Result<void> LocalTree::unshare(const std::string& path, EarlyCopy& early) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  INDUCTORFS_TRY_ASSIGN(auto from, open_regular_file(at, path, O_RDONLY));
  INDUCTORFS_TRY_ASSIGN(const auto status, status_of(from.get()));
  // Beside the other nameless files, so that the copy never shows in the view.
  auto made = early.take(from.get());
  const bool copied = made.has_value();
  const std::string copy = copied ? made->name : in_folder(kOrphanFolder, "copy-" + std::to_string(status.st_ino));
  if (!copied) (void)unlink(copy);  // left by a copy that failed
  INDUCTORFS_TRY_ASSIGN(auto to, copied ? Result<Fd>(std::move(made->file)) : create_file(copy));
  const auto undo = [&](Error error) -> Result<void> {
    (void)unlink(copy);  // the error that is reported came first
    return fail(std::move(error));
  };
  const uint64_t wanted = copied ? 0 : early.wanted(static_cast<uint64_t>(status.st_size));
  if (auto rest = copy_bytes(from.get(), to.get(), wanted); !rest) return undo(rest.error());
  if (auto marked = copy_xattrs(from.get(), to.get()); !marked) return undo(marked.error());
  mark_changed(to.get(), status.st_ino);
  if (auto given = give_copy(to.get(), {status.st_uid, status.st_gid, status.st_mode}, status.st_ino); !given) {
    return undo(given.error());
  }
  const struct timespec times[2] = {status.st_atim, status.st_mtim};
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
  INDUCTORFS_TRY_ASSIGN(auto directory, open_directory(view(above)));
  const auto made = make_directory(kSetAsideFolder);
  if (!made && made.error().code() != ErrorCode::kExists) return fail(made.error());
  for (int number = 1; number < kMost; ++number) {
    std::string place = in_folder(kSetAsideFolder, std::to_string(number));
    INDUCTORFS_TRY_ASSIGN(const auto to, held(place));
    if (::renameat2(directory.get(), name.c_str(), to.fd(), to.name(), RENAME_NOREPLACE) == 0) {
      forget_all(place);
      return place;
    }
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

Result<std::optional<std::string>> LocalTree::seal_of(int file) const {
  std::array<char, 128> value{};
  const ssize_t size = ::fgetxattr(file, kSealName, value.data(), value.size());
  if (size < 0 && errno != ENODATA) return fail_errno("getxattr", kSealName);
  if (size <= 0) return std::nullopt;
  return std::string(value.data(), static_cast<size_t>(size));
}

Result<bool> LocalTree::is_stores(int file) const {
  if (::fgetxattr(file, kSealName, nullptr, 0) >= 0) return true;
  if (errno == EBADF && ::getxattr(proc_path(file).c_str(), kSealName, nullptr, 0) >= 0) return true;  // by O_PATH
  return errno == ENODATA ? Result<bool>(false) : fail_errno("getxattr", kSealName);
}

Result<void> LocalTree::set_seal(int file, std::string_view digest_hex) const {
  if (::fsetxattr(file, kSealName, digest_hex.data(), digest_hex.size(), 0) != 0) {
    return fail_errno("setxattr", kSealName);
  }
  return {};
}

void LocalTree::remove_seal(int file) const {
  (void)::fremovexattr(file, kSealName);  // one that stays costs the next writer a copy
}

bool LocalTree::is_changed(int file) const {
  return ::fgetxattr(file, kChangedName, nullptr, 0) >= 0 || errno != ENODATA;
}

void LocalTree::mark_changed(int file, uint64_t instead_of) const {
  const std::string value = std::to_string(instead_of);
  // Without it the next start publishes what checks out.
  (void)::fsetxattr(file, kChangedName, value.data(), value.size(), 0);
}

Result<std::optional<std::string>> LocalTree::read_mark(const std::string& path, const char* name) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  std::array<char, kMarkLimit> value{};
  const ssize_t size = ::lgetxattr(at.in_proc().c_str(), name, value.data(), value.size());
  if (size < 0 && errno != ENODATA) return fail_errno("getxattr", name);
  if (size < 0) return std::nullopt;
  return std::string(value.data(), static_cast<size_t>(size));
}

std::optional<std::string> LocalTree::mark_of(const std::string& path, const char* name) const {
  return read_mark(path, name).value_or(std::nullopt);
}

void LocalTree::set_mark(const std::string& path, const char* name, const std::string& value) const {
  (void)set_xattr(path, name, value, 0);  // best effort
}

void LocalTree::remove_mark(const std::string& path, const char* name) const {
  (void)set_xattr(path, name, std::nullopt, 0);  // most have none
}

}  // namespace inductorfs::vfs
