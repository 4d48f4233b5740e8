// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/config/json_forward.h"

/// Makes text for people from the JSON that a daemon answers. Whatever the JSON holds, these functions give one
/// printable answer: it may be another version's.
namespace inductorfs::config {

/// Returns the member as printable text; empty when it is absent or no text.
[[nodiscard]] std::string text_at(const Json& object, const char* name);
/// Returns the member as text_at() does, but keeps its line breaks.
[[nodiscard]] std::string lines_at(const Json& object, const char* name);
/// Returns the member; 0 when it is absent, negative, or no integer.
[[nodiscard]] uint64_t number_at(const Json& object, const char* name);
[[nodiscard]] bool flag_at(const Json& object, const char* name);
/// Returns the member, or an empty object.
[[nodiscard]] const Json& part_of(const Json& object, const char* name);

/// Returns "label         value\n".
[[nodiscard]] std::string line(std::string_view label, const std::string& value);
/// Returns one line for each item of an array, with the label before the first item only.
[[nodiscard]] std::string list_text(std::string_view label, const Json& list,
                                    const std::function<std::string(const Json&)>& show);
/// Returns the item itself, if it is text.
[[nodiscard]] std::string plain_item(const Json& item);
/// Returns every line of the value, printable, behind the margin; empty for an empty value.
[[nodiscard]] std::string indented(std::string_view value, std::string_view margin = "    ");

/// Returns "; did you mean NAME?" with the name that is nearest to `word`; empty when none is near. Of two that are
/// equally near it is the one with the same first letter: "umount" is "unmount", not "mount".
[[nodiscard]] std::string suggestion(std::string_view word, const std::vector<std::string>& names);

/// Returns a size such as "1.5 GiB".
[[nodiscard]] std::string human_bytes(uint64_t bytes);
/// Returns a time such as "12 s", "3 min", "5 h", "2 d".
[[nodiscard]] std::string human_seconds(uint64_t seconds);
/// Returns "2026-01-02T03:04:05Z"; empty for 0.
[[nodiscard]] std::string utc(std::time_t time);

}  // namespace inductorfs::config
