// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "inductorfs/fingerprint/reader.h"

namespace inductorfs::fingerprint {

/// Reads, in a child, what the daemon wrote for it. `take` may use what throws of a Json: a member that is missing or
/// of another type is kInvalid.
template <typename Request, typename Take>
[[nodiscard]] Result<Request> read_request(const std::string& text, Take take) {
  Request request;
  try {
    INDUCTORFS_TRY(take(nlohmann::json::parse(text), request));
  } catch (const std::exception& problem) {
    return fail(ErrorCode::kInvalid, std::string("the request cannot be read: ") + problem.what());
  }
  return request;
}

}  // namespace inductorfs::fingerprint
