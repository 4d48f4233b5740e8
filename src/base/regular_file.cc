// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/regular_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>
#include <vector>

namespace inductorfs {
namespace {

constexpr int kReading = O_RDONLY | O_NONBLOCK | O_NOCTTY;
/// Even somebody who renames all the time is not in the way of as many walks in a row.
constexpr int kMostRaces = 1000;
constexpr int kMostLinks = 40;                 // as many as the kernel follows
constexpr unsigned long kNoSymlinks = 0x2000;  // linux/statfs.h: ST_NOSYMFOLLOW
/// Each takes a descriptor.
constexpr size_t kMostDirectories = 512;
constexpr ino_t kProcRoot = 1;  // linux/proc_fs.h: PROC_ROOT_INO

/// Goes the way of openat2(2) with RESOLVE_IN_ROOT and RESOLVE_NO_MAGICLINKS, one name after the other. A way of more
/// than kMostDirectories is too long for it, and it knows nothing of fs.protected_symlinks. Confined to one call.
class WalkInRoot {
 public:
  WalkInRoot(int root, const std::string& path, int flags) : root_(root), flags_(flags | O_CLOEXEC), rest_(path) {}

  /// Leaves errno where it returns nothing.
  Fd run() {
    if (rest_.empty() || rest_.size() >= PATH_MAX) return failed(rest_.empty() ? ENOENT : ENAMETOOLONG);
    for (std::string name = next(); !name.empty(); name = next()) {
      if (name == ".") continue;
      if (name == "..") {
        if (!way_.empty()) way_.pop_back();
        continue;
      }
      Fd fd = look(name);
      struct stat found {};
      if (!fd || ::fstat(fd.get(), &found) != 0) return {};
      const bool is_last = rest_.empty();
      if (S_ISLNK(found.st_mode) && !(is_last && (flags_ & O_NOFOLLOW) != 0)) {
        if (const int error = follow(fd); error != 0) return failed(error);
        continue;
      }
      if (is_last) return open_last(name, std::move(fd), S_ISDIR(found.st_mode));
      if (!S_ISDIR(found.st_mode)) return failed(ENOTDIR);
      if (way_.size() >= kMostDirectories) return failed(ENAMETOOLONG);
      way_.push_back(std::move(fd));
    }
    return Fd(::openat(at(), ".", flags_));
  }

 private:
  static Fd failed(int error) {
    errno = error;
    return {};
  }
  [[nodiscard]] int at() const { return way_.empty() ? root_ : way_.back().get(); }

  /// What the name stands for, a link too. A directory on the way is asked for as one, which mounts what autofs has.
  Fd look(const std::string& name) {
    constexpr int kLook = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    Fd directory(rest_.empty() ? -1 : ::openat(at(), name.c_str(), kLook | O_DIRECTORY));
    if (directory || (!rest_.empty() && errno != ENOTDIR)) return directory;
    return Fd(::openat(at(), name.c_str(), kLook));
  }

  Fd open_last(const std::string& name, Fd found, bool is_directory) {
    if ((flags_ & O_PATH) != 0 && (flags_ & O_DIRECTORY) == 0) return found;
    Fd opened(::openat(at(), name.c_str(), flags_ | O_NOFOLLOW));
    const bool is_exchanged = !opened && is_directory && (errno == ELOOP || errno == ENOTDIR);
    return is_exchanged ? Fd(::openat(found.get(), ".", flags_)) : std::move(opened);
  }

  /// Takes a name off the rest of the path; empty at its end, and after a last slash, which asks for a directory.
  std::string next() {
    const size_t start = std::min(rest_.find_first_not_of('/'), rest_.size());
    const size_t end = std::min(rest_.find('/', start), rest_.size());
    std::string name = rest_.substr(start, end - start);
    rest_.erase(0, end);
    return name;
  }

  /// Returns what errno is to be. Links of /proc lead out of any root, but for those at its top, which are text.
  int follow(const Fd& link) {
    struct statfs disk {};
    struct stat directory {};
    if (::fstatfs(link.get(), &disk) != 0 || ::fstat(at(), &directory) != 0) return errno;
    if (disk.f_type == PROC_SUPER_MAGIC && directory.st_ino != kProcRoot) return ELOOP;
    if ((static_cast<unsigned long>(disk.f_flags) & kNoSymlinks) != 0 || ++links_ > kMostLinks) return ELOOP;
    std::array<char, PATH_MAX> target{};
    const ssize_t size = ::readlinkat(link.get(), "", target.data(), target.size());
    if (size <= 0) return size == 0 ? ENOENT : errno;
    if (static_cast<size_t>(size) + rest_.size() >= 2UL * PATH_MAX) return ENAMETOOLONG;
    if (target[0] == '/') way_.clear();
    rest_.insert(0, target.data(), static_cast<size_t>(size));
    return 0;
  }

  const int root_;
  const int flags_;
  std::string rest_;
  std::vector<Fd> way_;  ///< directories below the root
  int links_ = 0;
};

}  // namespace

/// A device is opened by nobody: already that may do something.
Result<Fd> reopen_regular(const Fd& file, const std::string& path, uint64_t limit) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return fail_errno("stat", path);
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorCode::kInvalid, path + " is not a regular file; name a regular file");
  }
  if (static_cast<uint64_t>(status.st_size) > limit) {
    return fail(ErrorCode::kTooLarge, path + " has more than " + std::to_string(limit) + " bytes");
  }
  const std::string itself = "/proc/thread-self/fd/" + std::to_string(file.get());
  Fd opened(::open(itself.c_str(), kReading | O_CLOEXEC));
  if (!opened) return fail_errno("open", path);
  return opened;
}

Result<Fd> open_regular(int dir, const std::string& path, uint64_t limit) {
  INDUCTORFS_TRY_ASSIGN(const auto file, open_at(dir, path, O_PATH));
  return reopen_regular(file, path, limit);
}

Result<Fd> open_in_root(int root, const std::string& path, int flags) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  // The kernel gives a path with ".." up when anything on this host is mounted or renamed at that moment.
  Fd fd;
  for (int race = 0; race < kMostRaces && !fd; ++race) {
    fd.reset(static_cast<int>(syscall(SYS_openat2, root, path.c_str(), &how, sizeof how)));
    if (!fd && errno != EAGAIN) break;
  }
  // Before Linux 5.6, and for whoever may only read (call_filter.h).
  if (!fd && errno == ENOSYS) fd = WalkInRoot(root, path, flags).run();
  if (!fd) return fail_errno("open", path);
  return fd;
}

Result<Fd> open_regular(const std::string& path, uint64_t limit) { return open_regular(AT_FDCWD, path, limit); }

Result<std::string> read_regular(const std::string& path, uint64_t limit) {
  INDUCTORFS_TRY_ASSIGN(const auto file, open_regular(path, limit));
  return read_whole(file, path);
}

Result<std::string> read_whole(const Fd& file, const std::string& path) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return fail_errno("stat", path);
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  const auto got = pread_full(file.get(), bytes.data(), bytes.size(), 0);
  if (!got) return fail(Error(got.error()).with_context(path));
  bytes.resize(*got);
  return bytes;
}

}  // namespace inductorfs
