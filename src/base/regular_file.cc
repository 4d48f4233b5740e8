// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

namespace inductorfs {

Result<Fd> open_regular(int dir, const std::string& path, uint64_t limit) {
  auto file = open_at(dir, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!file) return file;
  struct stat status {};
  if (fstat(file->get(), &status) != 0) return fail_errno("stat", path);
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorCode::kInvalid, path + " is not a regular file; name a regular file");
  }
  if (static_cast<uint64_t>(status.st_size) > limit) {
    return fail(ErrorCode::kTooLarge, path + " has more than " + std::to_string(limit) + " bytes");
  }
  return file;
}

Result<Fd> open_regular(const std::string& path, uint64_t limit) { return open_regular(AT_FDCWD, path, limit); }

Result<std::string> read_regular(const std::string& path, uint64_t limit) {
  INDUCTORFS_TRY_ASSIGN(const auto file, open_regular(path, limit));
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return fail_errno("stat", path);
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  const auto got = pread_full(file.get(), bytes.data(), bytes.size(), 0);
  if (!got) return fail(Error(got.error()).with_context(path));
  bytes.resize(*got);
  return bytes;
}

}  // namespace inductorfs
