// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace inductorfs::testing {

/// While one lives, this program's disk does not give extended attributes of files: EIO. One at a time.
class FailingAttributes {
 public:
  FailingAttributes();
  ~FailingAttributes();
};

}  // namespace inductorfs::testing
