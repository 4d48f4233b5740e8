// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "host.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/result.h"
#include "inductorfs/catalog/catalog.h"
#include "inductorfs/remote/remote.h"
#include "inductorfs/store/blob_store.h"
#include "inductorfs/takeover/region.h"
#include "inductorfs/vfs/file_system.h"
#include "learn.h"
#include "settings.h"

/// The layers below the kernel's adapter, opened in order and wired, not started.
namespace inductorfs::daemon {

/// Who the mount belongs to: as the directory that it covers.
struct Ownership {
  uid_t uid = 0;
  gid_t gid = 0;
  mode_t mode = 0755;
};

/// Members in the order of construction; destruction is the reverse. Needs external synchronisation.
struct Layers {
  Counters counters;
  std::unique_ptr<Host> host;
  std::unique_ptr<store::BlobStore> store;
  std::unique_ptr<remote::Remote> remote;
  std::unique_ptr<catalog::Catalog> catalog;
  std::unique_ptr<vfs::FileSystem> file_system;
};

/// Empty: standard error.
[[nodiscard]] std::string log_path(const Settings& settings);
[[nodiscard]] Result<void> open_log(const Settings& settings);
[[nodiscard]] FactsRequest facts_request(const Settings& settings);

/// What comes from before this process.
struct Continuation {
  takeover::Region* region = nullptr;    ///< where requests and nodes are kept; nullptr: nobody would take over
  bool resume = false;                   ///< another worker has served this mount
  bool safe_mode = false;                ///< the remote is off
  int lock = -1;                         ///< of the store, which the supervisor holds
  std::function<void(int lock)> locked;  ///< told of a lock that was taken anew
  std::optional<fingerprint::Fingerprint> facts;  ///< as that one has learned them
};

/// Opens store, log, remote, catalog and file system. A remote that does not answer is no error; one that answers and
/// is wrong (no Redis, too old, wrong password) is, unless a mount is resumed: jobs depend on that.
[[nodiscard]] Result<std::unique_ptr<Layers>> open_layers(const Settings& settings, const Ownership& ownership,
                                                          const Continuation& continuation = {});

/// Whether probing a server ended with the certainty that it is the wrong one.
[[nodiscard]] bool is_wrong_server(const Error& error);

}  // namespace inductorfs::daemon
