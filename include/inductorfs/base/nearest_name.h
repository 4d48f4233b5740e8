// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace inductorfs {

/// Returns the name that a person may have meant by `word`: the one that differs in the fewest letters, two at most.
/// Empty when none is so near. Of two that are equally near it is the one with the same first letter: "umount" is
/// "unmount", not "mount". Pure.
[[nodiscard]] std::string nearest_name(std::string_view word, const std::vector<std::string>& names);

}  // namespace inductorfs
