// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace inductorfs::layout {

/// Matches a pattern over paths relative to the mount: `*` is any characters of one component, `?` one of them, `**` as
/// a whole component any number of components, at least one if it stands last. Pure; safe for concurrent use.
[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view path);
/// Returns what is wrong with a pattern; empty when nothing is.
[[nodiscard]] std::string glob_problem(std::string_view pattern);

}  // namespace inductorfs::layout
