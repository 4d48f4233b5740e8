// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "inductorfs/base/result.h"
#include "inductorfs/layout/layout.h"

/// Paths, group files, timings and contents come from other processes and from the cluster: none of them is believed.
/// The first byte picks what the rest is; what must hold of any input is checked, not only that nothing crashes.
namespace {

using namespace inductorfs;

constexpr std::string_view kKey = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567ABCDEFGHIJKLMNOPQRST";

void fuzz_path(std::string_view path) {
  const layout::Place place = layout::classify(path);
  const layout::Place again = layout::classify(place.canonical);
  INDUCTORFS_CHECK(again.canonical == place.canonical && again.family == place.family);
  INDUCTORFS_CHECK(layout::canonical_path(path) == place.canonical);
  for (const std::string& sealed : layout::sealed_by_removal_of(path)) {
    INDUCTORFS_CHECK(layout::rule_of(layout::classify(sealed).family).shared);
  }
}

void fuzz_written_group(std::string_view text) {
  const auto canonical = layout::canonical_group(text, kKey);
  INDUCTORFS_CHECK(canonical.has_value() == layout::group_children(text, kKey).has_value());
  if (!canonical) return;
  const auto rendered = layout::render_group(*canonical, "/other/place/" + std::string(kKey));
  INDUCTORFS_CHECK(rendered.has_value());
  INDUCTORFS_CHECK(layout::canonical_group(*rendered, kKey).value() == *canonical);
}

void fuzz_canonical_group(std::string_view text) {
  const auto rendered = layout::render_group(text, "/c/" + std::string(kKey));
  if (rendered) INDUCTORFS_CHECK(layout::group_children(*rendered, kKey).has_value());
}

void fuzz_merge(std::string_view text) {
  const size_t half = text.find('\0');
  if (half == std::string_view::npos) return;
  const std::string_view ours = text.substr(0, half);
  const std::string_view theirs = text.substr(half + 1);
  const auto merged = layout::merge_system_autotune(ours, theirs);
  if (!merged) return;
  INDUCTORFS_CHECK(layout::merge_system_autotune(*merged, theirs).value() == *merged);
  INDUCTORFS_CHECK(layout::merge_system_autotune(*merged, ours).value() == *merged);
}

void fuzz_content(std::string_view input) {
  const size_t end = input.find('\0');
  if (end == std::string_view::npos) return;
  const std::string_view bytes = input.substr(end + 1);
  const layout::Place place = layout::classify(input.substr(0, end));
  (void)layout::check_content(place, bytes, bytes.size());  // either answer is right: only crashes are looked for
  const std::string_view head = bytes.substr(0, bytes.size() / 2);
  (void)layout::check_content(place, head, bytes.size());  // the same
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 5) {
    case 0:
      fuzz_path(input);
      break;
    case 1:
      fuzz_written_group(input);
      break;
    case 2:
      fuzz_canonical_group(input);
      break;
    case 3:
      fuzz_merge(input);
      break;
    default:
      fuzz_content(input);
      break;
  }
  return 0;
}
