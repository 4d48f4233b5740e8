// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/config/settings.h"
#include "inductorfs/remote/server_examination.h"

namespace inductorfs::mount {

/// Looks at the server of --remote, or the masters of its cluster, as remote::examine_servers() does, with the secrets
/// that these settings name. Blocks for a few seconds at most.
[[nodiscard]] Result<std::vector<remote::ServerExamination>> examine_servers(const config::Settings& settings);

}  // namespace inductorfs::mount
