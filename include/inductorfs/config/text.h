// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "inductorfs/config/json.h"

/// Text for people, made of the JSON that the daemon answers. Whatever the JSON holds, these give one printable answer:
/// it may be another version's.
namespace inductorfs::config {

/// The member as printable text; empty when it is absent or no text.
[[nodiscard]] std::string text_at(const Json& object, const char* name);
/// As text_at, but with its line breaks.
[[nodiscard]] std::string lines_at(const Json& object, const char* name);
[[nodiscard]] uint64_t number_at(const Json& object, const char* name);
[[nodiscard]] bool flag_at(const Json& object, const char* name);
/// The member, or an empty object.
[[nodiscard]] const Json& part_of(const Json& object, const char* name);

/// "label         value\n"
[[nodiscard]] std::string line(std::string_view label, const std::string& value);
/// One line for each item of an array; the label before the first only.
[[nodiscard]] std::string list_text(std::string_view label, const Json& list,
                                    const std::function<std::string(const Json&)>& show);
/// The item itself, when it is text.
[[nodiscard]] std::string plain_item(const Json& item);
/// Every line of the value, printable, behind the margin; empty for an empty value.
[[nodiscard]] std::string indented(std::string_view value, std::string_view margin = "    ");

/// "1.5 GiB".
[[nodiscard]] std::string human_bytes(uint64_t bytes);
/// "12 s", "3 min", "5 h", "2 d".
[[nodiscard]] std::string human_seconds(uint64_t seconds);

}  // namespace inductorfs::config
