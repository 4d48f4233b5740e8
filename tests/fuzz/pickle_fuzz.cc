// SPDX-License-Identifier: Apache-2.0
#include "content_checks.h"
#include "fuzz_target.h"

namespace layout = inductorfs::layout;
namespace fuzz = inductorfs::fuzz;

/// What is accepted ends where it ends: no shorter part of it is whole, and nothing may follow.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = fuzz::view(data, size);
  const auto checked = layout::check_pickle_frame(input);
  if (!checked) {
    INDUCTORFS_CHECK(checked.error().code() == inductorfs::ErrorCode::kCorrupt);
    return 0;
  }
  INDUCTORFS_CHECK(input.starts_with('\x80') && input.ends_with('.'));
  for (size_t cut = 1; cut <= input.size(); cut *= 2) {
    INDUCTORFS_CHECK(!layout::check_pickle_frame(input.substr(0, input.size() - cut)));
  }
  INDUCTORFS_CHECK(!layout::check_pickle_frame(std::string(input) + '.'));
  return 0;
}
