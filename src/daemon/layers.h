// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/result.h"
#include "inductorfs/catalog/catalog.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/layout/scope.h"
#include "inductorfs/remote/remote.h"
#include "inductorfs/store/blob_store.h"
#include "inductorfs/vfs/file_system.h"
#include "settings.h"

/// The layers below the kernel's adapter, opened in order and wired, not started.
namespace inductorfs::daemon {

/// The scope of every family on this host. Immutable after construction.
class Scopes {
 public:
  explicit Scopes(const fingerprint::Fingerprint& facts);
  [[nodiscard]] const layout::Scope& of(layout::Family family) const;
  /// Distinct ids of the families that are shared here.
  [[nodiscard]] std::vector<remote::ScopeId> ids() const;
  /// Whether an entry of this path may come in this scope: catalog::Catalog::ScopeAccepts.
  [[nodiscard]] bool accepts(const remote::ScopeId& scope, std::string_view path) const;

 private:
  std::map<layout::Family, layout::Scope> scopes_;
};

/// Families that could be shared but are not on this host, with the reason.
struct PrivateFamily {
  std::string family;
  std::string why;
};
[[nodiscard]] std::vector<PrivateFamily> private_families(const Scopes& scopes);

/// Who the mount belongs to: as the directory that it covers.
struct Ownership {
  uid_t uid = 0;
  gid_t gid = 0;
  mode_t mode = 0755;
};

/// Members in the order of construction; destruction is the reverse. Needs external synchronisation.
struct Layers {
  std::unique_ptr<Scopes> scopes;
  Counters counters;
  std::unique_ptr<store::BlobStore> store;
  std::unique_ptr<remote::Remote> remote;
  std::unique_ptr<catalog::Catalog> catalog;
  std::unique_ptr<vfs::FileSystem> file_system;
};

/// The facts from --fingerprint, or those of this host.
[[nodiscard]] Result<fingerprint::Fingerprint> learn_facts(const std::string& file, const std::string& python,
                                                           const std::string& cache_file);
/// Empty: standard error.
[[nodiscard]] std::string log_path(const Settings& settings);
[[nodiscard]] Result<void> open_log(const Settings& settings);
[[nodiscard]] std::string fingerprint_cache(const Settings& settings);

/// Opens store, log, remote, catalog and file system. A remote that does not answer is no error; one that answers and
/// is wrong (no Redis, too old, wrong password) is.
[[nodiscard]] Result<std::unique_ptr<Layers>> open_layers(const Settings& settings, const Ownership& ownership);

/// Whether probing a server ended with the certainty that it is the wrong one.
[[nodiscard]] bool is_wrong_server(const Error& error);

}  // namespace inductorfs::daemon
