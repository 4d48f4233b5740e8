// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace inductorfs::testing {

/// While one lives, this program's disk does not give the extended attributes of this name: EIO. One at a time.
class FailingAttributes {
 public:
  explicit FailingAttributes(const char* name);
  ~FailingAttributes();
};

}  // namespace inductorfs::testing
