// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/host_files.h"

#include <fcntl.h>

#include "inductorfs/base/fd.h"

namespace inductorfs {

std::string boot_id() {
  constexpr uint64_t kLimit = 64;
  auto id = read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", kLimit);
  if (!id) id = read_file(AT_FDCWD, kBootIdCopy, kLimit);
  return id.value_or("");
}

Result<std::string> cpu_info(uint64_t limit) {
  auto text = read_file(AT_FDCWD, kCpuInfo, limit);
  return text ? text : read_file(AT_FDCWD, kShownCpuInfo, limit);
}

}  // namespace inductorfs
