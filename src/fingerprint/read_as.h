// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace inductorfs::fingerprint {

/// Whose rights count when files are read for a process.
struct FileUser {
  uid_t user = 0;
  gid_t group = 0;
  std::vector<gid_t> groups;
  bool reads_all = false;  ///< it has the right to read files whatever their permissions say (CAP_DAC_READ_SEARCH)
};

/// While it lives, this thread opens files with the rights of a user: what lies behind that user's symbolic links is
/// read only if the user may read it, also where root may not (NFS with root squash), and no link of /proc leads to
/// another process's files. A container's root user may have no rights but those of a file's owner. Has no effect where
/// this process is not root. For a process with one thread, because the groups are those of the process.
class ReadAs {
 public:
  explicit ReadAs(const FileUser& user);
  ~ReadAs();
  ReadAs(const ReadAs&) = delete;
  ReadAs& operator=(const ReadAs&) = delete;

 private:
  const bool changes_;
  uint64_t had_ = 0;  ///< this thread's effective capabilities before
};

/// While it lives, this thread opens files with its own rights again.
class ReadAsSelf {
 public:
  ReadAsSelf();
  ~ReadAsSelf();
  ReadAsSelf(const ReadAsSelf&) = delete;
  ReadAsSelf& operator=(const ReadAsSelf&) = delete;

 private:
  uid_t user_ = 0;
  gid_t group_ = 0;
};

}  // namespace inductorfs::fingerprint
