// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/control/runtime_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include "inductorfs/base/fd.h"

namespace inductorfs::control {

Result<void> prepare_runtime_directory(const std::string& directory) {
  const bool root = ::geteuid() == 0;
  INDUCTORFS_TRY(make_directories(directory, root ? 0755 : 0700));
  if (is_runtime_directory(directory, ::geteuid())) return {};
  return fail(ErrorCode::kNotPermitted,
              "control socket: " + directory + " belongs to somebody else or is writable by others: remove it");
}

bool is_runtime_directory(const std::string& directory, uid_t owner) {
  struct stat found {};
  return ::lstat(directory.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == owner &&
         (found.st_mode & 022U) == 0;
}

}  // namespace inductorfs::control
