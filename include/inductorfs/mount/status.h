// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "inductorfs/config/json.h"
#include "inductorfs/control/control.h"
#include "inductorfs/host/host_watch.h"
#include "inductorfs/mount/layers.h"
#include "inductorfs/mount/remote_watch.h"
#include "inductorfs/mount/store_watch.h"
#include "inductorfs/mount/supervision.h"

/// The answers to the queries, as JSON. The command line makes text of them (src/cli/answer_text.h).
namespace inductorfs::mount {

/// Everything that the status of a mount is made from.
struct StatusFacts {
  const config::Settings& settings;
  const Layers& layers;
  RemoteWatch::Knowledge server;
  std::vector<std::string> also;  ///< Note::also
  std::string left_over;          ///< Note::left_over
  host::FactsNews news;
  SupervisionNews supervision;
  StoreNews store;
  config::Json cluster = config::Json::object();  ///< Heartbeat::status()
  std::map<uint32_t, size_t> requests;            ///< fuse::Session::requests_by_user()
  const control::Peer* guest = nullptr;           ///< control::MountControl::status()
};
[[nodiscard]] std::string status_json(const StatusFacts& facts);
[[nodiscard]] std::string where_json(const config::Settings& settings, const std::vector<std::string>& also);
/// `verdict` is that of explain_miss(), or has only its "text" and "nearest"; `frozen` says why nothing of the cluster
/// is shown, and is empty when it is.
[[nodiscard]] std::string explanation_json(const vfs::Explanation& explanation, const config::Json& verdict,
                                           const std::string& frozen = {});

}  // namespace inductorfs::mount
