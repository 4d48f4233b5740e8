// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace inductorfs::cli {

/// Returns a text as one word for a POSIX shell, in quotes where it needs them: whoever chose a path chose what its
/// name says, and a user pastes what a remedy says.
[[nodiscard]] std::string shell_word(const std::string& text);

}  // namespace inductorfs::cli
