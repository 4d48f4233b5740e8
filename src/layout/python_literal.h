// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"

/// Reads what Python's pprint writes of dictionaries, tuples, lists, strings, integers and None, for files that Python
/// reads with ast.literal_eval. The functions are pure; safe for concurrent use.
namespace inductorfs::layout {

/// One value and all below it. Immutable after construction.
struct PythonValue {
  enum class Kind { kDictionary, kTuple, kList, kString, kNumber, kName };

  Kind kind = Kind::kName;
  std::string text;                 ///< kString: decoded; kNumber and kName: as it was written
  std::vector<PythonValue> values;  ///< kDictionary: each key, then its value; kTuple, kList

  [[nodiscard]] bool is(Kind what) const { return kind == what; }
  /// Returns a dictionary's value under a string, the last one as Python does; nullptr when there is none.
  [[nodiscard]] const PythonValue* find(std::string_view key) const;
};

struct PythonLimits {
  size_t bytes = size_t{1} << 20U;
  size_t depth = 8;
  size_t values = size_t{1} << 18U;
};

/// Parses a text that is one value. kTooLarge when it is over a limit; kNotSupported for what ast.literal_eval takes
/// and pprint does not print of such values (three quotes, most escapes, floats); kCorrupt for every other text.
[[nodiscard]] Result<PythonValue> parse_python(std::string_view text, const PythonLimits& limits);

/// Says whether a bracket or a string is still open at the end of a text, as in the beginning of a longer one. Unlike
/// parse_python() it takes any literal that Python takes.
[[nodiscard]] bool is_unclosed(std::string_view text);

}  // namespace inductorfs::layout
