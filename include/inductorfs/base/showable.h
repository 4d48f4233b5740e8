// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace inductorfs {

/// Returns the length of the character at the front of `text`, if a terminal or a log may be given it; 0 when its first
/// byte has to be escaped: what is not well-formed UTF-8, the control characters of C0 and C1 (a terminal obeys U+009B
/// as it obeys ESC [), and those that have no width and change how the rest of a line is shown: marks and overrides of
/// the direction of writing, zero-width characters, and separators of lines. Text of other users and hosts ends up
/// there.
[[nodiscard]] size_t showable_length(std::string_view text);

}  // namespace inductorfs
