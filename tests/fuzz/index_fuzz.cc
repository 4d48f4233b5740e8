// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "fuzz_target.h"
#include "inductorfs/layout/layout.h"

namespace layout = inductorfs::layout;
namespace fuzz = inductorfs::fuzz;

/// What an index names is beside it: names without a slash, each once, and one absolute directory. No part of an index
/// is one.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = fuzz::view(data, size);
  const auto names = layout::index_members(layout::Family::kVllmIndex, input);
  const auto directory = layout::index_directory(layout::Family::kVllmIndex, input);
  INDUCTORFS_CHECK(names.has_value() == directory.has_value());
  if (!names) {
    const auto code = names.error().code();
    INDUCTORFS_CHECK(code == inductorfs::ErrorCode::kCorrupt || code == inductorfs::ErrorCode::kNotSupported);
    return 0;
  }
  INDUCTORFS_CHECK(!names->empty() && directory->starts_with('/'));
  INDUCTORFS_CHECK(std::adjacent_find(names->begin(), names->end(), std::greater_equal<>()) == names->end());
  for (const std::string& name : *names) {
    INDUCTORFS_CHECK(name.find('/') == std::string::npos);
    INDUCTORFS_CHECK(input.find(name) != std::string_view::npos);
  }
  const std::string_view whole = input.substr(0, input.find_last_not_of(" \t\n") + 1);
  for (size_t cut = 1; cut <= whole.size(); cut *= 2) {
    INDUCTORFS_CHECK(!layout::index_members(layout::Family::kVllmIndex, whole.substr(0, whole.size() - cut)));
  }
  return 0;
}
