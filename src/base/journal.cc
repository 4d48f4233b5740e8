// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/journal.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace inductorfs {

bool stderr_is_journal() noexcept {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  unsigned long device = 0;
  unsigned long inode = 0;
  struct stat found {};
  // A child of a service inherits the variable although its standard error may be something else.
  return stream != nullptr && std::sscanf(stream, "%lu:%lu", &device, &inode) == 2 &&
         ::fstat(STDERR_FILENO, &found) == 0 && found.st_dev == device && found.st_ino == inode;
}

const char* journal_prefix(const char* level) noexcept {
  if (!stderr_is_journal()) return "";
  const std::string_view name(level);
  return name == "error" ? "<3>" : name == "warning" ? "<4>" : name == "debug" ? "<7>" : "<6>";
}

}  // namespace inductorfs
