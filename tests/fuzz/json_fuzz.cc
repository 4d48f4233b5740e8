// SPDX-License-Identifier: Apache-2.0
#include "fuzz_target.h"
#include "inductorfs/layout/layout.h"
#include "json_text.h"

namespace layout = inductorfs::layout;
namespace fuzz = inductorfs::fuzz;

namespace {

constexpr layout::JsonLimits kLimits{.bytes = 1U << 16U, .depth = 16, .values = 4096};

/// JSON as Python has it: what is accepted is written so that it is read as the same again.
void fuzz_text(std::string_view text) {
  const auto value = layout::parse_json(text, kLimits);
  if (!value) return;
  INDUCTORFS_CHECK(value->begin <= value->end && value->end <= text.size());
  const layout::JsonLimits wide{.bytes = 1U << 24U, .depth = kLimits.depth, .values = kLimits.values};
  for (const std::string& written : {layout::python_dump_indented(*value), layout::python_dump_sorted(*value)}) {
    const auto again = layout::parse_json(written, wide);
    INDUCTORFS_CHECK(again && layout::same_json(*value, *again) && layout::same_json(*again, *value));
  }
  INDUCTORFS_CHECK(layout::python_dump_sorted(*layout::parse_json(layout::python_dump_sorted(*value), wide)) ==
                   layout::python_dump_sorted(*value));
}

/// Any bytes are a path, and come back from the text that Python would make of them.
void fuzz_path(std::string_view path) {
  const std::string text = layout::text_from_path(path);
  INDUCTORFS_CHECK(layout::path_from_text(text) == path);
  const auto string = layout::parse_json(layout::python_string(text), {.bytes = 1U << 24U});
  INDUCTORFS_CHECK(string && string->is_string() && string->text == text);
}

/// Timings of two hosts (cache/<system hash>): a merge that is done again changes nothing.
void fuzz_merge(std::string_view ours, std::string_view theirs) {
  const auto merged = layout::merge_system_autotune(ours, theirs);
  if (!merged) return;
  INDUCTORFS_CHECK(layout::merge_system_autotune(*merged, theirs).value() == *merged);
  INDUCTORFS_CHECK(layout::merge_system_autotune(*merged, ours).value() == *merged);
}

}  // namespace

/// The first byte picks: a text, a path, two files of timings with a NUL between them, one file merged with itself.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input = fuzz::view(data, size);
  if (input.empty()) return 0;
  switch (fuzz::take_byte(input) % 4) {
    case 0:
      fuzz_text(input);
      break;
    case 1:
      fuzz_path(input);
      break;
    case 2: {
      const auto [ours, theirs] = fuzz::halves(input);
      fuzz_merge(ours, theirs);
      break;
    }
    default:
      fuzz_merge(input, input);
      break;
  }
  return 0;
}
