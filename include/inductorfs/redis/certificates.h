// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/base/result.h"
#include "inductorfs/redis/url.h"

namespace inductorfs::redis {

/// Reads the endpoint's files as the first connection would, and asks no server: kInvalid when one of them is no
/// certificate or key, when the key is not that of the certificate, or when a file is of no use with this endpoint.
[[nodiscard]] Result<void> check_certificates(const Endpoint& endpoint);

}  // namespace inductorfs::redis
