// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "inductorfs/base/result.h"

namespace inductorfs::layout {

/// Checks whether the bytes are one whole pickle of protocol 2 to 5: every opcode is known and has all of its argument,
/// every FRAME holds what it says and ends between two opcodes, and STOP is the last byte. It executes nothing and
/// makes no object. kCorrupt, with the offset and the reason, otherwise. Pure; safe for concurrent use.
[[nodiscard]] Result<void> check_pickle_frame(std::string_view bytes);

}  // namespace inductorfs::layout
