// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/capabilities.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>

namespace inductorfs {

Result<void> keep_capabilities(std::span<const int> kept) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  if (::syscall(SYS_capget, &header, sets.data()) != 0) return fail_errno("capget");
  std::array<uint32_t, _LINUX_CAPABILITY_U32S_3> masks{};
  for (const int capability : kept) masks.at(CAP_TO_INDEX(capability)) |= CAP_TO_MASK(capability);
  for (size_t i = 0; i < sets.size(); ++i) {
    sets.at(i).permitted &= masks.at(i);
    sets.at(i).effective = sets.at(i).permitted;
    sets.at(i).inheritable = 0;
  }
  if (::syscall(SYS_capset, &header, sets.data()) != 0) return fail_errno("capset");
  return {};
}

}  // namespace inductorfs
