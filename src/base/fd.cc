// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/fd.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/regular_file.h"

namespace inductorfs {
namespace {

constexpr size_t kReadPiece = 64ULL * 1024;

/// Runs a system call again when a signal handler interrupted it.
template <typename Call>
auto retry_on_interrupt(Call&& call) {
  auto answer = call();
  while (answer < 0 && errno == EINTR) answer = call();
  return answer;
}

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

void Fd::reset(int fd) noexcept {
  const int old = std::exchange(fd_, fd);
  // On Linux close() frees the number whatever it answers; a retry could close somebody else's file.
  if (old >= 0 && old != fd) (void)::close(old);
}

Result<Fd> open_at(int dir, const std::string& path, int flags, mode_t mode) {
  if (fail_point_error("disk.open")) return fail_errno("open", path);
  Fd fd(retry_on_interrupt([&] { return ::openat(dir, path.c_str(), flags | O_CLOEXEC, mode); }));
  if (!fd) return fail_errno("open", path);
  return fd;
}

Result<std::string> read_file(int dir, const std::string& path, uint64_t limit) {
  INDUCTORFS_TRY_ASSIGN(auto fd, open_regular(dir, path, UINT64_MAX));
  std::string bytes;
  // The size that stat gives is not asked for: files of /proc and /sys say 0 or 4096.
  for (;;) {
    const size_t have = bytes.size();
    bytes.resize(have + kReadPiece);
    const ssize_t got = retry_on_interrupt([&] { return ::read(fd.get(), bytes.data() + have, kReadPiece); });
    if (got < 0) return fail_errno("read", path);
    bytes.resize(have + static_cast<size_t>(got));
    if (bytes.size() > limit) {
      return fail(ErrorCode::kTooLarge, "read " + path + ": more than " + std::to_string(limit) + " bytes");
    }
    if (got == 0) return bytes;
  }
}

Result<size_t> pread_full(int fd, char* out, size_t size, uint64_t offset) {
  size_t done = 0;
  while (done < size) {
    if (fail_point_error("disk.read")) return fail_errno("pread");
    const ssize_t got =
        retry_on_interrupt([&] { return ::pread(fd, out + done, size - done, static_cast<off_t>(offset + done)); });
    if (got < 0) return fail_errno("pread");
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

Result<void> pwrite_full(int fd, std::string_view bytes, uint64_t offset) {
  while (!bytes.empty()) {
    if (fail_point_error("disk.write")) return fail_errno("pwrite");
    const ssize_t put =
        retry_on_interrupt([&] { return ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    if (put < 0) return fail_errno("pwrite");
    bytes.remove_prefix(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return {};
}

Result<void> write_full(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = retry_on_interrupt([&] { return ::write(fd, bytes.data(), bytes.size()); });
    if (put < 0) return fail_errno("write");
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return {};
}

namespace {

Result<void> replace_file(int dir, const std::string& path, std::string_view bytes, mode_t mode, bool durably) {
  static std::atomic<uint64_t> serial{0};
  const std::string temporary =
      path + "." + std::to_string(::getpid()) + "." + std::to_string(serial.fetch_add(1)) + ".tmp";
  // Left by a process of the same number that was killed here: nobody else can own this name now.
  (void)::unlinkat(dir, temporary.c_str(), 0);
  INDUCTORFS_TRY_ASSIGN(auto fd, open_at(dir, temporary, O_WRONLY | O_CREAT | O_EXCL, mode));
  auto written = write_full(fd.get(), bytes);
  if (written && durably && ::fsync(fd.get()) != 0) written = fail_errno("fsync", temporary);
  if (written && ::renameat(dir, temporary.c_str(), dir, path.c_str()) != 0) written = fail_errno("rename", path);
  if (!written) {
    (void)::unlinkat(dir, temporary.c_str(), 0);  // the first error is the one to tell
    return fail(std::move(written).error().with_context("write " + path));
  }
  if (durably && ::fsync(dir) != 0) return fail_errno("fsync", path);
  return {};
}

}  // namespace

Result<void> write_file_atomically(int dir, const std::string& path, std::string_view bytes, mode_t mode) {
  return replace_file(dir, path, bytes, mode, false);
}

Result<void> write_file_durably(int dir, const std::string& path, std::string_view bytes, mode_t mode) {
  return replace_file(dir, path, bytes, mode, true);
}

Result<void> make_directories(const std::string& path, mode_t mode) {
  if (path.empty()) return fail(ErrorCode::kInvalid, "make directory: the path is empty");
  for (size_t end = 0; end < path.size();) {
    end = std::min(path.find('/', end + 1), path.size());
    const std::string prefix = path.substr(0, end);
    if (::mkdir(prefix.c_str(), mode) == 0) continue;
    const int saved_errno = errno;
    // Whatever mkdir says of a directory that exists (EEXIST, EROFS, EACCES), it is not in the way.
    if (is_directory(prefix)) continue;
    if (saved_errno == EEXIST) return fail(error_from_errno(ENOTDIR, "make directory", prefix));
    return fail(error_from_errno(saved_errno, "make directory", prefix));
  }
  return {};
}

Result<void> remove_tree(const std::string& path) {
  std::error_code failure;
  std::filesystem::remove_all(path, failure);
  if (failure) return fail(error_from_errno(failure.value(), "remove", path));
  return {};
}

}  // namespace inductorfs
