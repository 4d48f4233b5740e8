// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/json_forward.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/control/requests.h"
#include "inductorfs/mount/layers.h"

namespace inductorfs::mount {

class Warming;

/// Fetches what the cluster has for this host into the store before a job asks for it (`inductorfs warm`). A blob is
/// stored by its digest, so it also serves the jobs of environments that this host has not met yet: their first lookup
/// finds it here. Whether a blob fits this host is checked at that lookup, as always.
///
/// It fetches on the thread of the request and over a connection of its own, so no lookup waits for it. It keeps one
/// warming between two requests: what is selected, and how far it is. Nothing of it is durable; a warming that begins
/// anew skips what the store has. Safe for concurrent use.
class Warmer {
 public:
  /// The most artefacts of one warming, which holds 40 bytes of memory for each.
  static constexpr size_t kMostArtefacts = 500'000;

  /// Both must outlive this object.
  Warmer(const config::Settings& settings, const Layers& layers);
  ~Warmer();

  /// Goes on with this selection for about `slice`; a fetch that makes progress is not cut off, for at most
  /// kFetchPatience. Blocks on the network and the disk until then, or until `cancelled` answers true, which ends the
  /// warming. Returns
  ///   {"done": whether nothing is left to do, "complete": whether everything is here, "scopes": in question,
  ///    "followed": those of them that jobs of this host use now, "other_hosts": announced scopes of other hosts,
  ///    "entries", "blobs", "bytes": selected, "here", "here_bytes": were in the store, "fetched", "fetched_bytes",
  ///    "failed", "left", "left_bytes": not fetched, "why": [reasons], "waiting": why nothing comes now}.
  /// kInvalid: the selection names what is not there. kNotPermitted: a scope of other hosts. kBusy: another request is
  /// under way. kNotSupported: the mount has no remote.
  [[nodiscard]] Result<config::Json> step(const control::WarmSelection& selection, Milliseconds slice,
                                          const std::function<bool()>& cancelled);
  static constexpr Milliseconds kFetchPatience{120'000};

 private:
  struct State {
    bool busy = false;
    std::unique_ptr<Warming> warming;
  };
  const config::Settings& settings_;
  const Layers& layers_;
  Guarded<State> state_;
};

}  // namespace inductorfs::mount
