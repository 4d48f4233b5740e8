// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/json_forward.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/layout/selection.h"
#include "inductorfs/remote/remote.h"
#include "inductorfs/remote/rights.h"
#include "inductorfs/remote/server_examination.h"

/// What an operator asks of all mounts of a cluster: `inductorfs nodes`, `freeze` and `purge`.
namespace inductorfs::mount {

/// One question or order. The control socket carries it as JSON.
struct ClusterRequest {
  enum class Kind { kNodes, kFreeze, kLift, kPurge };
  static constexpr size_t kTextLimit = 512;  ///< bytes of `why`, and of `by`
  Kind kind = Kind::kNodes;
  std::string by{};               ///< who asks, for people
  std::string why{};              ///< of kFreeze
  layout::Selection selection{};  ///< of kPurge, as the four below
  std::string torch{};            ///< a version of torch: all announced scopes of it are selected
  std::optional<std::chrono::seconds> older_than{};
  bool dry_run = true;
  Milliseconds acknowledged{};  ///< how long to wait until all live mounts have obeyed
};
[[nodiscard]] config::Json to_json(const ClusterRequest& request);
/// kInvalid when it is none, with what is wrong.
[[nodiscard]] Result<ClusterRequest> cluster_request(const config::Json& json);

/// What the server says of itself, as members of a JSON object; none of one that may not be asked.
[[nodiscard]] config::Json server_part(const remote::ServerFacts& facts);

/// Does what is asked, and returns a JSON object: `nodes` with what each mount has said of itself (bounded, and
/// printable only through config::text_at()), `age_s`, for kNodes `missing`, `server` (server_part()) and, after an
/// order, `obeyed`; of a purge also what it found. Blocks for `acknowledged`, and as long as the server needs to be
/// walked; `cancelled` ends the wait.
[[nodiscard]] Result<config::Json> run_cluster_request(remote::Index& index, remote::Operators& cluster,
                                                       const ClusterRequest& request,
                                                       const std::function<bool()>& cancelled);

/// Looks at the server of --remote, or the masters of its cluster, as remote::examine_servers() does, with the secrets
/// that these settings name. Blocks for a few seconds at most.
[[nodiscard]] Result<std::vector<remote::ServerExamination>> examine_servers(const config::Settings& settings);

/// Opens the cluster that these settings name, for a command. `client` is the name that the server lists. kInvalid when
/// the settings, or the server, are wrong; kUnavailable when no server answers now. `counters` must outlive the remote.
[[nodiscard]] Result<remote::Remote> open_cluster(const config::Settings& settings, Counters& counters,
                                                  const std::string& client);

}  // namespace inductorfs::mount
