// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace inductorfs::mount {

/// Runs a mounter with the descriptors that its supervisor has opened, and returns its exit code. `once`: empty, it
/// does what its worker says until that has gone; "leave": it takes the mount down, and ends.
[[nodiscard]] int mounter_command(const std::string& once);

}  // namespace inductorfs::mount
