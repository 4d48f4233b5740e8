// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace inductorfs::config {

/// Owner and mode of a mount: those of the directory that it covers, if no option says another.
struct Ownership {
  uid_t uid = 0;
  gid_t gid = 0;
  mode_t mode = 0755;
  bool uncovered = false;  ///< the dead mount that was there is detached already, so jobs may have written there since
};

}  // namespace inductorfs::config
