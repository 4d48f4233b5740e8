// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"

/// Reads and writes JSON as Python's json module does, for files that must go back to Python byte for byte: it keeps
/// the order of members, the text of numbers (Python's repr of a float, NaN, Infinity) and the places of values. A
/// general JSON library loses the first two and does not report the third. The functions are pure;
/// safe for concurrent use.
namespace inductorfs::layout {

/// The limits of a document, all of whose bytes may be untrusted.
struct JsonLimits {
  size_t bytes = size_t{1} << 20U;
  size_t depth = 32;
  size_t values = size_t{1} << 20U;
};

/// One value and all below it. Immutable after construction.
struct JsonValue {
  enum class Kind { kObject, kArray, kString, kNumber, kLiteral };

  Kind kind = Kind::kLiteral;
  std::string text;                ///< kString: decoded (see below); kNumber and kLiteral: as it was written
  std::vector<std::string> names;  ///< kObject: decoded, as many as values, each once
  std::vector<JsonValue> values;   ///< kObject, kArray
  size_t begin = 0;                ///< its place in the document: [begin, end)
  size_t end = 0;

  [[nodiscard]] bool is_object() const { return kind == Kind::kObject; }
  [[nodiscard]] bool is_string() const { return kind == Kind::kString; }
  /// Returns the member of that name, or nullptr.
  [[nodiscard]] const JsonValue* find(std::string_view name) const;
};

/// Parses a document. kCorrupt unless the whole text is one value that Python's json.loads takes; kTooLarge when it is
/// over a limit. It is stricter than Python: it refuses a name that comes twice in one object, invalid UTF-8, and a
/// number of more than kNumberLength characters (Python 3.11 raises ValueError for an integer of more than 4300
/// digits).
[[nodiscard]] Result<JsonValue> parse_json(std::string_view text, const JsonLimits& limits);
inline constexpr size_t kNumberLength = 64;

/// Writes a decoded string as json.dumps does: in quotes, ASCII only. Decoded strings are UTF-8, but a lone surrogate
/// escape is kept as the three bytes that its number would have in UTF-8: Python writes bytes of a path that are not
/// UTF-8 in that way ("\udc80", os.fsdecode's surrogateescape).
[[nodiscard]] std::string python_string(std::string_view decoded);
/// Does what os.fsdecode does: turns any bytes into a decoded string.
[[nodiscard]] std::string text_from_path(std::string_view path);
/// Does what os.fsencode does; empty when the string is no path (it has a surrogate that stands for no byte).
[[nodiscard]] std::optional<std::string> path_from_text(std::string_view decoded);

/// Writes json.dumps(value, indent=4).
[[nodiscard]] std::string python_dump_indented(const JsonValue& value);
/// Writes json.dumps(value, sort_keys=True), with numbers as they were written.
[[nodiscard]] std::string python_dump_sorted(const JsonValue& value);
/// Says whether bytes.decode() accepts the text.
[[nodiscard]] bool is_utf8(std::string_view text);
/// Says whether two values have the same content: the order of members does not count, numbers count as they were
/// written.
[[nodiscard]] bool same_json(const JsonValue& one, const JsonValue& other);

}  // namespace inductorfs::layout
