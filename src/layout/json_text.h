// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"

/// JSON as Python's json module reads and writes it, for files that must go back to Python byte for byte: the order of
/// members, the text of numbers (Python's repr of a float, NaN, Infinity) and the places of values are kept. A general
/// JSON library loses the first two and does not tell the third. Pure; safe for concurrent use.
namespace inductorfs::layout {

/// What a document may cost. All of these bytes may come from a stranger.
struct JsonLimits {
  size_t bytes = size_t{1} << 20U;
  size_t depth = 32;
  size_t values = size_t{1} << 20U;
};

/// One value and all below it. Immutable after construction.
struct JsonValue {
  enum class Kind { kObject, kArray, kString, kNumber, kLiteral };

  Kind kind = Kind::kLiteral;
  std::string text;                ///< kString: decoded (see below); kNumber and kLiteral: as written
  std::vector<std::string> names;  ///< kObject: decoded, as many as values, each once
  std::vector<JsonValue> values;   ///< kObject, kArray
  size_t begin = 0;                ///< where it stands in the document: [begin, end)
  size_t end = 0;

  [[nodiscard]] bool is_object() const { return kind == Kind::kObject; }
  [[nodiscard]] bool is_string() const { return kind == Kind::kString; }
  /// The member of that name, or nullptr.
  [[nodiscard]] const JsonValue* find(std::string_view name) const;
};

/// kCorrupt unless the whole text is one value that Python's json.loads takes, kTooLarge when over a limit. Stricter
/// than Python: a name twice in one object and invalid UTF-8 are refused, and so is a number of more than
/// kNumberLength characters (Python 3.11 raises ValueError for an integer of more than 4300 digits).
[[nodiscard]] Result<JsonValue> parse_json(std::string_view text, const JsonLimits& limits);
inline constexpr size_t kNumberLength = 64;

/// Decoded strings are UTF-8, but a lone surrogate escape stands as the three bytes that its number would have in
/// UTF-8: Python writes bytes of a path that are no UTF-8 so ("\udc80", os.fsdecode's surrogateescape).
/// This writes one as json.dumps does: in quotes, ASCII only.
[[nodiscard]] std::string python_string(std::string_view decoded);
/// os.fsdecode: any bytes to a decoded string.
[[nodiscard]] std::string text_from_path(std::string_view path);
/// os.fsencode: empty when the string is no path (a surrogate that stands for no byte).
[[nodiscard]] std::optional<std::string> path_from_text(std::string_view decoded);

/// json.dumps(value, indent=4).
[[nodiscard]] std::string python_dump_indented(const JsonValue& value);
/// json.dumps(value, sort_keys=True), with numbers as written.
[[nodiscard]] std::string python_dump_sorted(const JsonValue& value);
/// bytes.decode() takes it.
[[nodiscard]] bool is_utf8(std::string_view text);
/// The same content: order of members does not count, numbers count as written.
[[nodiscard]] bool same_json(const JsonValue& one, const JsonValue& other);

}  // namespace inductorfs::layout
