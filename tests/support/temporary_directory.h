// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace inductorfs::testing {

/// A fresh directory (under TMPDIR) that goes with all its content when this object does.
class TemporaryDirectory {
 public:
  TemporaryDirectory() : TemporaryDirectory(std::string()) {}
  /// This one, which its maker keeps; an empty path: as above.
  explicit TemporaryDirectory(const std::string& kept);
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
  bool kept_;
};

}  // namespace inductorfs::testing
