// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/config/error_json.h"

#include "inductorfs/config/json.h"

namespace inductorfs::config {

Json error_to_json(const Error& error) {
  return {{"error", static_cast<unsigned>(error.code())}, {"what", error.what()}};
}

std::optional<Error> error_from_json(const Json& json) {
  const auto code = json.is_object() ? json.find("error") : json.end();
  const auto what = json.is_object() ? json.find("what") : json.end();
  const bool whole = code != json.end() && code->is_number_unsigned() && what != json.end() && what->is_string();
  if (!whole || code->get<uint64_t>() > static_cast<uint64_t>(ErrorCode::kInternal)) return std::nullopt;
  return Error(static_cast<ErrorCode>(code->get<uint64_t>()), what->get<std::string>());
}

}  // namespace inductorfs::config
