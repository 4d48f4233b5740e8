// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/redis/url.h"
#include "inductorfs/remote/remote.h"

namespace inductorfs::remote {

/// Returns the address in the URL with what the options add: the password of the file, certificates, the client's name.
/// kInvalid when the URL is not one, or the password cannot be read.
[[nodiscard]] Result<redis::Endpoint> endpoint_of(const RemoteOptions& options);

}  // namespace inductorfs::remote
