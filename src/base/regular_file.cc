// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/regular_file.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace inductorfs {
namespace {

constexpr int kReading = O_RDONLY | O_NONBLOCK | O_NOCTTY;
/// Even somebody who renames all the time is not in the way of as many walks in a row.
constexpr int kMostRaces = 1000;

}  // namespace

/// A device is opened by nobody: already that may do something. By the name of the thread: some have descriptors of
/// their own (run_loose()).
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
