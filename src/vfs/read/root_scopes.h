// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/fingerprint/trust.h"
#include "vfs/disk/makers.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// Knows the environment of each cache root, and of each branch of one (Branches), and has the catalog follow and show
/// its scopes. A root without one of its own has the mountpoint's. Nothing of this costs anything where all roots have
/// the same (Host::parts_roots). use(), directory_changed() and host_changed() tell the kernel what changes: their
/// caller holds no lock. The others may be called with any lock; they ask the disk, and perhaps the name service
/// (Host::environment_of), about a root that nobody has used yet. Safe for concurrent use.
class RootScopes : Context {
 public:
  explicit RootScopes(const Context& context);

  /// Takes up the environment of a root whose names are about to be asked for. When its directory has got another owner
  /// or mode, what it shows changes with that. Blocks until the name service has answered and the entries of a new
  /// environment have come, but for FileSystemOptions::lookup_patience at most for each. Returns whether the root has
  /// an environment of its own that it had not before.
  bool use(const std::string& root) { return use(root, options_.lookup_patience); }
  /// The same for a worker that takes the mount over, before its catalog has threads.
  void resume(const std::string& root) { (void)use(root, Milliseconds(0)); }
  /// Takes up what chown(2) or chmod(2) has changed of a directory, or what is at its path after a rename, if roots
  /// that are in use are there or below.
  void directory_changed(const std::string& path);
  /// Takes up the facts of the host, which have changed, for all roots.
  void host_changed();

  /// Returns the scope of the artefacts of a family at this path of the mount.
  [[nodiscard]] layout::Scope scope_of(std::string_view path, layout::Family family,
                                       std::string_view architecture = {}) const;
  /// Says whether the root of this path of the mount uses an entry of this scope.
  [[nodiscard]] bool follows(std::string_view path, const catalog::KnownEntry& known) const;
  /// Returns the facts that the writer of a shared artefact at this path of the mount has to have.
  [[nodiscard]] std::shared_ptr<const fingerprint::ExpectedFacts> expected(std::string_view path) const;
  /// Says whether the environment of this path's root is known. Until then nothing there is shared, and nothing is out
  /// of date.
  [[nodiscard]] bool is_settled(std::string_view path) const;
  /// Says whether the name service is being asked for the owner of this path's root: what is_settled() and scope_of()
  /// say afterwards may be another thing.
  [[nodiscard]] bool is_settling(std::string_view path) const;
  /// Returns why a file of this user, which lies at this path, is not to be shared; empty when it may be. In a user's
  /// root what other users have put there is not his.
  [[nodiscard]] std::string why_not_shared(std::string_view path, const Makers& makers) const;
  /// RootStatus::shared_with
  [[nodiscard]] std::string shared_with(const std::string& root) const;

 private:
  struct Root {
    RootAccess access;
    std::shared_ptr<const RootEnvironment> environment;  ///< nullptr: the mountpoint's
    bool is_settled = true;                              ///< it is known with whom the root shares
    SteadyTime looked{};                                 ///< when that was found out; names may change
    uint64_t accounts = 0;                               ///< Host::accounts() before that
  };
  using Roots = std::map<std::string, Root, std::less<>>;

  [[nodiscard]] Root root_with(std::string_view root, const RootAccess& access, Milliseconds patience) const;
  [[nodiscard]] Root find(std::string_view root) const;
  [[nodiscard]] const RootEnvironment& environment_in_root(const Root& root) const;
  [[nodiscard]] bool is_current(const std::string& root, const RootAccess& access) const;
  bool use(const std::string& root, Milliseconds patience);
  /// How long a question that nobody has asked before may wait for the name service. Before there are requests, what is
  /// found in the local directory asks, too, for all of which together there is kEarly.
  [[nodiscard]] Milliseconds early_patience() const { return std::min(fingerprint::Trust::kFirstWait, early_.left()); }
  static constexpr Milliseconds kEarly{2'000};
  using Changes = std::vector<std::pair<std::string, std::vector<std::string>>>;  ///< by root
  [[nodiscard]] bool take_up(const std::string& root, const Root& now, Changes& changes);
  void show(const std::string& root, const std::vector<remote::ScopeId>& scopes, Changes& changes);
  void tell(const Changes& changes) const;
  void follow_all();
  void drop_gone_roots();

  const Deadline early_ = Deadline::after(kEarly);
  SharedGuarded<Roots> roots_;
  Guarded<SteadyTime> changing_;  ///< held while the catalog is told, so that it is told in order; the next pruning
};

}  // namespace inductorfs::vfs
