// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/result.h"
#include "inductorfs/catalog/catalog.h"
#include "inductorfs/config/ownership.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/fingerprint/examiner.h"
#include "inductorfs/host/host.h"
#include "inductorfs/host/learn.h"
#include "inductorfs/ledger/ledger.h"
#include "inductorfs/remote/remote.h"
#include "inductorfs/store/blob_store.h"
#include "inductorfs/takeover/region.h"
#include "inductorfs/vfs/file_system.h"

/// The layers below the kernel's adapter: opened in order and wired, but not started.
namespace inductorfs::mount {

class PlacesWatch;
class Secrets;
class Signatures;

/// Owns the layers. Members are in the order of construction; destruction is the reverse.
/// Needs external synchronisation.
struct Layers {
  std::string origin;  ///< "host/mount id"
  Counters counters;
  std::shared_ptr<const fingerprint::ExaminerLink> examiner;
  bool facts_are_missing = false;  ///< nobody has answered: they are to be asked for again
  std::unique_ptr<host::ThisHost> host;
  std::unique_ptr<store::BlobStore> store;
  std::shared_ptr<remote::WriteCondition> writes = std::make_shared<remote::WriteCondition>();  ///< of the remote
  std::shared_ptr<Secrets> secrets;                                                             ///< of the remote
  remote::Remote remote;
  std::shared_ptr<Signatures> signatures;  ///< nullptr: nothing is signed
  std::string remote_refusal;  ///< why the server refused this mount when it was opened; empty if it did not
  std::unique_ptr<catalog::Catalog> catalog;
  std::unique_ptr<ledger::Ledger> ledger;
  std::shared_ptr<PlacesWatch> places;  ///< is told by the file system
  std::unique_ptr<vfs::FileSystem> file_system;
};

/// Returns the path of the log file; empty means standard error.
[[nodiscard]] std::string log_path(const config::Settings& settings);
[[nodiscard]] bool log_is_in_store(const config::Settings& settings);
/// For root: makes the log's file when it is missing, and says whether nobody else could have root write its log into
/// a file, or wait for a pipe, of his choice. The worker's user may own the file, but no directory on the way.
[[nodiscard]] Result<void> check_log(const std::string& path);
[[nodiscard]] Result<void> open_log(const config::Settings& settings);
[[nodiscard]] host::FactsRequest facts_request(const config::Settings& settings);

/// Says whether a store may lie there: kInvalid on a file system that keeps no files or no extended attributes, in a
/// mount, or open to others.
[[nodiscard]] Result<void> check_place_of_store(const std::string& store);
/// Says whether store, remote, its files and --fingerprint are what a mount could use, as far as this host tells:
/// kInvalid, with the text of open_layers(). Reads files, and asks no server.
[[nodiscard]] Result<void> check_named(const config::Settings& settings);

/// What an earlier worker, or the supervisor, hands to this process.
struct TakeoverState {
  takeover::Region* region = nullptr;  ///< where requests and nodes are kept; nullptr: no other worker would take over
  bool resume = false;                 ///< another worker has served this mount
  bool safe_mode = false;              ///< the remote is off
  int lock = -1;                       ///< the lock of the store, which the supervisor holds
  std::function<void(int lock)> locked;           ///< receives a lock that was taken anew
  std::function<Result<void>()> open_log;         ///< in place of mount::open_log(), if set
  std::optional<fingerprint::Fingerprint> facts;  ///< as the earlier worker learned them
  int examiner = -1;                              ///< Supervision::examiner()
  std::function<void()> examiner_stands_still = [] {};
  int mounter = -1;  ///< Supervision::mounter()
  std::function<void()> mounter_stands_still = [] {};
};

/// Opens store, log, remote, catalog and file system. A remote that does not answer, or refuses this mount (a wrong
/// password), is an error with --require-remote alone. One that is wrong (no Redis, too old) is an error, unless a
/// mount is resumed, because jobs depend on that mount.
[[nodiscard]] Result<std::unique_ptr<Layers>> open_layers(const config::Settings& settings,
                                                          const config::Ownership& ownership,
                                                          const TakeoverState& takeover = {});

/// Says whether the error of a probe proves that the server is the wrong one.
[[nodiscard]] bool is_wrong_server(const Error& error);

}  // namespace inductorfs::mount
