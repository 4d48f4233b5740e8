// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/remote/index.h"

namespace inductorfs::archive {

/// The deadline of one question to the server.
inline constexpr Milliseconds kAskPatience{10'000};

/// Returns all entries of a scope, by path. Blocks on the network.
[[nodiscard]] Result<std::vector<codec::Entry>> entries_of(remote::Index& index, const remote::ScopeId& scope);

}  // namespace inductorfs::archive
