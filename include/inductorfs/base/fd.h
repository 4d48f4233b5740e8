// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "inductorfs/base/result.h"

namespace inductorfs {

/// Owns one file descriptor and closes it. Move-only, self-move safe. Needs external synchronisation.
class Fd {
 public:
  Fd() noexcept = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept;

 private:
  int fd_ = -1;
};

/// Functions for files. They block on the local disk only, and every descriptor that they open is O_CLOEXEC. Paths may
/// be absolute or relative to `dir` (an open directory, or AT_FDCWD).
[[nodiscard]] Result<Fd> open_at(int dir, const std::string& path, int flags, mode_t mode = 0);
[[nodiscard]] Result<std::string> read_file(int dir, const std::string& path, uint64_t limit);
/// Reads up to `size` bytes at `offset`; fewer only at the end of the file. EINTR is handled.
[[nodiscard]] Result<size_t> pread_full(int fd, char* out, size_t size, uint64_t offset);
[[nodiscard]] Result<void> pwrite_full(int fd, std::string_view bytes, uint64_t offset);
[[nodiscard]] Result<void> write_full(int fd, std::string_view bytes);
/// Writes a temporary file beside `path` and renames it to `path`, which is replaced as a whole or not at all. No
/// fsync.
[[nodiscard]] Result<void> write_file_atomically(int dir, const std::string& path, std::string_view bytes,
                                                 mode_t mode = 0644);
/// Writes as write_file_atomically does, and the file is on disk when this returns. It is for a mark that must be
/// neither newer nor older than the thing that it speaks of. `path` is a name in `dir`.
[[nodiscard]] Result<void> write_file_durably(int dir, const std::string& path, std::string_view bytes,
                                              mode_t mode = 0644);
/// Makes a directory and its parents, like mkdir -p. A component that exists is no error; one that is no directory is
/// kNotDirectory.
[[nodiscard]] Result<void> make_directories(const std::string& path, mode_t mode = 0755);
/// Removes `path` and everything below it, like rm -rf; an absent path is no error.
[[nodiscard]] Result<void> remove_tree(const std::string& path);

}  // namespace inductorfs
