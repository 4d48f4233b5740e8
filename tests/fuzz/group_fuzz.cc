// SPDX-License-Identifier: Apache-2.0
#include "fuzz_target.h"
#include "inductorfs/layout/layout.h"

namespace layout = inductorfs::layout;
namespace fuzz = inductorfs::fuzz;

namespace {

constexpr std::string_view kKey = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567ABCDEFGHIJKLMNOPQRST";

/// A group file as a writer on this host made it.
void fuzz_written(std::string_view text) {
  const auto children = layout::group_children(text, kKey);
  const auto canonical = layout::canonical_group(text, kKey);
  INDUCTORFS_CHECK(canonical.has_value() == children.has_value());
  if (!canonical) return;
  for (const std::string& child : *children) {
    INDUCTORFS_CHECK(!child.empty() && child != "." && child != ".." && child.find('/') == std::string::npos);
  }
  const auto rendered = layout::render_group(*canonical, "/other/place/" + std::string(kKey));
  INDUCTORFS_CHECK(rendered.has_value());
  INDUCTORFS_CHECK(layout::canonical_group(*rendered, kKey).value() == *canonical);
  INDUCTORFS_CHECK(layout::group_children(*rendered, kKey).value() == *children);
  INDUCTORFS_CHECK(layout::group_directory(*rendered, kKey).value() == "/other/place/" + std::string(kKey));
}

/// One as the cluster has it: nothing in it leads out of the reader's own directory.
void fuzz_canonical(std::string_view text) {
  const auto rendered = layout::render_group(text, "/c/" + std::string(kKey));
  if (rendered) INDUCTORFS_CHECK(layout::group_children(*rendered, kKey).has_value());
}

}  // namespace

/// The first byte picks the form.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input = fuzz::view(data, size);
  if (input.empty()) return 0;
  if (fuzz::take_byte(input) % 2 == 0) {
    fuzz_written(input);
  } else {
    fuzz_canonical(input);
  }
  return 0;
}
