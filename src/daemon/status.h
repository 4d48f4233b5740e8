// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "also.h"
#include "host_watch.h"
#include "json.h"
#include "layers.h"
#include "remote_watch.h"
#include "supervision.h"

/// What the queries answer: JSON made by the daemon, and text made of that JSON by the command line.
namespace inductorfs::daemon {

/// Everything that the status of a mount is made of.
struct StatusFacts {
  const Settings& settings;
  const Layers& layers;
  RemoteWatch::Knowledge server;
  std::vector<AlsoState> also;
  FactsNews news;
  SupervisionNews supervision;
};
[[nodiscard]] std::string status_json(const StatusFacts& facts);
[[nodiscard]] std::string where_json(const std::string& mountpoint, const std::vector<AlsoState>& also);
/// `nearest`: as nearest_report() gives it; an empty object when it was not asked for.
[[nodiscard]] std::string explanation_json(const vfs::Explanation& explanation, const Json& nearest);

[[nodiscard]] std::string status_text(std::string_view json);
[[nodiscard]] std::string explanation_text(std::string_view json);

}  // namespace inductorfs::daemon
