// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/config/settings.h"
#include "inductorfs/remote/server_examination.h"

namespace inductorfs::mount {

/// Looks at the server of --remote as remote::examine_server() does, with the secrets that these settings name. Blocks
/// for a few seconds at most.
[[nodiscard]] Result<remote::ServerExamination> examine_server(const config::Settings& settings);

}  // namespace inductorfs::mount
