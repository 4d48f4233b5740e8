// SPDX-License-Identifier: Apache-2.0
#include "support/temporary_directory.h"

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace inductorfs::testing {

TemporaryDirectory::TemporaryDirectory(const std::string& kept) : path_(kept), kept_(!kept.empty()) {
  if (kept_) return;
  std::string pattern = (std::filesystem::temp_directory_path() / "inductorfs-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  if (kept_) return;
  std::error_code ignored;  // a left-over temporary directory fails no test
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace inductorfs::testing
