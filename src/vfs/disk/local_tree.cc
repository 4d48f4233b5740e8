// SPDX-License-Identifier: Apache-2.0
#include "vfs/disk/local_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "inductorfs/base/defaults.h"
#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/handle.h"
#include "inductorfs/takeover/request_slots.h"

namespace inductorfs::vfs {
namespace {

constexpr size_t kCopyPiece = 1 << 20;
constexpr mode_t kFileMode = 0600;
constexpr mode_t kDirectoryMode = 0700;
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

/// What has a name that is about to go; none where there is none.
Fd losing(const HeldParent& at) {
  auto file = open_at(at.fd(), at.name(), O_PATH | O_NOFOLLOW);
  return file ? std::move(*file) : Fd();
}

Result<void> answer(int result, const char* call, const std::string& path) {
  return result == 0 ? Result<void>{} : fail_errno(call, path);
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

std::string join(std::string_view directory, std::string_view name) {
  std::string path(directory);
  if (!path.empty()) path += '/';
  path += name;
  return path;
}

std::string proc_path(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

Result<uint64_t> stream_bytes(const codec::ReadAt& from, uint64_t size, const codec::ByteSink& to) {
  std::string buffer(std::min<uint64_t>(size, kCopyPiece), '\0');
  uint64_t offset = 0;
  while (offset < size) {
    INDUCTORFS_TRY_ASSIGN(const auto got,
                          from(buffer.data(), std::min<uint64_t>(buffer.size(), size - offset), offset));
    if (got == 0) break;
    INDUCTORFS_TRY(to(std::string_view(buffer.data(), got)));
    takeover::note_progress();
    offset += got;
  }
  return offset;
}

codec::ReadAt bytes_of(int file) {
  return [file](char* out, size_t most, uint64_t at) { return pread_full(file, out, most, at); };
}

Result<uint64_t> copy_bytes(const codec::ReadAt& from, int to, uint64_t size) {
  uint64_t written = 0;
  return stream_bytes(from, size, [&](std::string_view piece) {
    return pwrite_full(to, piece, std::exchange(written, written + piece.size()));
  });
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
  tree.charges_ = std::make_unique<FileCharges>(limits);
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
  return list_if_there(open_directory(path), path);
}

Result<std::vector<LocalTree::Item>> list_if_there(Result<Fd> directory, const std::string& path) {
  if (directory) return list_open(std::move(*directory), path);
  if (directory.error().code() == ErrorCode::kNotFound) return std::vector<LocalTree::Item>{};
  return fail(std::move(directory).error());
}

Result<Fd> LocalTree::open_directory(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return open_at(at.fd(), at.name(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

Result<std::vector<LocalTree::Item>> list_open(Fd directory, const std::string& path, size_t most) {
  std::vector<LocalTree::Item> items;
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

Result<std::vector<LocalTree::Item>> list_below(const Fd& directory, const std::string& below) {
  takeover::note_progress();
  const auto at = HeldParent::of(directory.get(), below.empty() ? "." : below);
  auto opened = at ? open_at(at->fd(), at->name(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW) : fail(at.error());
  if (opened) return list_open(std::move(*opened), below);
  const auto code = opened.error().code();
  if (code == ErrorCode::kNotFound || code == ErrorCode::kNotDirectory) return std::vector<LocalTree::Item>{};
  return fail(std::move(opened).error());
}

bool LocalTree::is_empty(const std::string& path) const {
  auto directory = open_directory(path);
  if (!directory) return directory.error().code() == ErrorCode::kNotFound;
  const auto items = list_open(std::move(*directory), path, 1);
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
  if (replaced) charges_->lost(replaced.get(), to);
  charges_->moved(target, from, to);
  if ((flags & RENAME_EXCHANGE) != 0) charges_->moved(source, to, from);
  return {};
}

Result<void> LocalTree::unlink(const std::string& path, bool must_exist) const {
  const auto at = held(path);
  const Fd file = at ? losing(*at) : Fd();
  if (at && ::unlinkat(at->fd(), at->name(), 0) == 0) {
    if (file) charges_->lost(file.get(), path);
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
  charges_->forget_all(*this, path);
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
      charges_->forget_all(*this, place);
      return place;
    }
    if (errno != EEXIST) return fail_errno("rename", path);
  }
  return fail(ErrorCode::kTooLarge,
              std::string(kSetAsideFolder) + "/ holds " + std::to_string(kMost) + " items; remove some");
}

// ---- what does as a system call of a similar name
Result<Fd> LocalTree::create_file(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return open_at(at.fd(), at.name(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, kFileMode);
}

Result<void> LocalTree::make_directory(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return answer(::mkdirat(at.fd(), at.name(), kDirectoryMode), "mkdir", path);
}

Result<void> LocalTree::remove_directory(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  const Fd directory = losing(at);
  INDUCTORFS_TRY(answer(::unlinkat(at.fd(), at.name(), AT_REMOVEDIR), "rmdir", path));
  if (directory) charges_->lost(directory.get(), path);
  return {};
}

Result<void> LocalTree::make_special(const std::string& path, const FileOwner& owner, std::string_view target,
                                     UserCharges::NewFile* made_for) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  INDUCTORFS_TRY(note_specials(at.fd()));
  INDUCTORFS_TRY_ASSIGN(const auto file,
                        open_at(at.fd(), at.name(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, kFileMode));
  // In this order: what a killed worker leaves is no file of somebody's.
  Result<void> made = charges_->give(file.get(), owner, made_for);
  if (made) made = pwrite_full(file.get(), target, 0);
  if (!made) (void)unlink(path);  // the error that is reported came first
  return made;
}

Result<void> LocalTree::make_symlink(const std::string& target, const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return answer(::symlinkat(target.c_str(), at.fd(), at.name()), "symlink", path);
}

Result<std::string> LocalTree::read_link(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  std::string target(PATH_MAX, '\0');
  const ssize_t size = ::readlinkat(at.fd(), at.name(), target.data(), target.size());
  if (size < 0 && errno != EINVAL) return fail_errno("readlink", path);
  if (size >= 0) return target.substr(0, static_cast<size_t>(size));
  INDUCTORFS_TRY_ASSIGN(const auto named, hold(path));
  INDUCTORFS_TRY_ASSIGN(const auto owner, file_owner(named.get()));
  if (!owner || !S_ISLNK(owner->mode)) return fail(ErrorCode::kInvalid, path + " is no symbolic link");
  return inductorfs::read_file(AT_FDCWD, proc_path(named.get()), PATH_MAX);
}

Result<Fd> LocalTree::hold(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return open_at(at.fd(), at.name(), O_PATH | O_NOFOLLOW);
}

Result<std::optional<struct stat>> LocalTree::stat(const std::string& path) const {
  const auto named = hold(path);
  if (!named) {
    const auto code = named.error().code();
    const bool is_absent = code == ErrorCode::kNotFound || code == ErrorCode::kNotDirectory;
    return is_absent ? Result<std::optional<struct stat>>(std::nullopt) : fail(named.error());
  }
  INDUCTORFS_TRY_ASSIGN(auto status, status_of(named->get()));
  return std::optional(status);
}

Result<void> LocalTree::give_to(const std::string& path, const FileOwner& owner, UserCharges::NewFile* made) const {
  INDUCTORFS_TRY_ASSIGN(const auto named, hold(path));
  return charges_->give(named.get(), owner, made);
}

Result<void> LocalTree::set_owner(const std::string& path, std::optional<uid_t> uid, std::optional<gid_t> gid) const {
  INDUCTORFS_TRY_ASSIGN(const auto named, hold(path));
  INDUCTORFS_TRY_ASSIGN(const auto status, status_of(named.get()));
  mode_t mode = status.st_mode;
  if (!S_ISDIR(mode)) mode &= ~static_cast<mode_t>((mode & S_IXGRP) != 0 ? S_ISUID | S_ISGID : S_ISUID);
  INDUCTORFS_TRY(set_file_owner(named.get(), {uid.value_or(status.st_uid), gid.value_or(status.st_gid), mode}));
  charges_->look_again(named.get(), path);
  return {};
}

Result<void> LocalTree::set_mode(const std::string& path, mode_t mode) const {
  INDUCTORFS_TRY_ASSIGN(const auto named, hold(path));
  INDUCTORFS_TRY_ASSIGN(const auto status, status_of(named.get()));
  return set_file_owner(named.get(), {status.st_uid, status.st_gid, (status.st_mode & S_IFMT) | (mode & 07777)});
}

Result<void> LocalTree::set_times(const std::string& path, const struct timespec* times) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  return answer(::utimensat(at.fd(), at.name(), times, AT_SYMLINK_NOFOLLOW), "utimens", path);
}

Result<std::string> LocalTree::xattr(const std::string& path, const std::string& name, size_t most) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  std::string value(most, '\0');
  const ssize_t size = ::lgetxattr(at.in_proc().c_str(), name.c_str(), value.data(), value.size());
  if (size < 0) return fail_errno("getxattr", name);
  value.resize(static_cast<size_t>(size));
  return value;
}

Result<std::vector<std::string>> LocalTree::xattr_names(const std::string& path) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  std::string text(kXattrLimit, '\0');
  const ssize_t size = ::llistxattr(at.in_proc().c_str(), text.data(), text.size());
  if (size < 0) return fail_errno("listxattr", path);
  std::vector<std::string> names;
  for (size_t begin = 0; begin < static_cast<size_t>(size); begin += names.back().size() + 1) {
    names.emplace_back(text.c_str() + begin);
  }
  return names;
}

Result<void> LocalTree::set_xattr(const std::string& path, const std::string& name,
                                  std::optional<std::string_view> value, int flags) const {
  INDUCTORFS_TRY_ASSIGN(const auto at, held(path));
  const std::string whole = at.in_proc();
  if (!value) return answer(::lremovexattr(whole.c_str(), name.c_str()), "removexattr", name);
  return answer(::lsetxattr(whole.c_str(), name.c_str(), value->data(), value->size(), flags), "setxattr", name);
}

Result<struct statvfs> LocalTree::statistics() const {
  struct statvfs result {};
  if (::fstatvfs(root_.get(), &result) != 0) return fail_errno("statvfs");
  return result;
}

Result<void> LocalTree::sync() const { return answer(::syncfs(root_.get()), "syncfs", {}); }

bool same_bytes(const LocalTree& tree, const std::string& one, const std::string& other, uint64_t most) {
  const auto a = tree.open_file(one, false);
  const auto b = tree.open_file(other, false);
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

}  // namespace inductorfs::vfs
