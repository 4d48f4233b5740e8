// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vfs/read/cluster_sets.h"
#include "vfs/read/compile_leases.h"
#include "vfs/read/fetcher.h"
#include "vfs/read/group_views.h"
#include "vfs/read/parcels.h"
#include "vfs/read/prefetch.h"
#include "vfs/read/root_scopes.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// Answers what a name is: a file of the local disk, an entry of the cluster, or nothing. The first use of an entry
/// waits for its bytes; a fetch thread then gives the answer, so that no function here blocks on the cluster.
/// Safe for concurrent use.
class Lookup : Context {
 public:
  explicit Lookup(const Context& context) : Context(context) {}

  /// Decides what the name is, in this order: a node that is known, a file of a Triton set, a parcel, a name of the
  /// local disk, an entry or a directory of the cluster, nothing.
  void lookup(NodeId parent, std::string_view name, const Caller& caller, LookupDone done);
  /// Shows an empty directory where the last listing of `lister`, the directory in which a program sees the name, had
  /// one that has nothing any more; nothing where it had none, or was made for others (Listing::made_for).
  [[nodiscard]] std::optional<Result<Found>> show_listed(const Site& site, Node& lister, std::string_view made_for);
  /// NameOperations::open_directory.
  void open_directory(NodeId directory, const Caller& caller, std::function<void()> done);

  /// Adds a node for a name that the local disk has, with `references` of the kernel. The caller holds moves().
  [[nodiscard]] Result<Found> add_local(const Site& site, const struct stat& status, uint64_t references);
  /// Makes the answer for a node of which the caller has counted a reference; on an error that is given back. The
  /// caller holds moves().
  [[nodiscard]] Result<Found> found(const NodePtr& node, bool keep);
  /// Returns the node of a path of the local disk, pinned until RootTree::unpin(). Never asks the cluster.
  [[nodiscard]] Result<NodePtr> pin_path(std::string_view path);
  /// Returns the node of a name that is known, or that is on the local disk.
  [[nodiscard]] Result<NodePtr> existing(const Site& site);
  /// Returns the text of a group file whose children lie in this directory, which is an absolute path, or nullptr for
  /// any other file.
  [[nodiscard]] Result<std::shared_ptr<const std::string>> rendered_group(const std::string& path,
                                                                          const codec::Entry& entry,
                                                                          const std::string& directory);

  /// Says why nothing is found under this name, which is asked when nothing is.
  [[nodiscard]] UseKind why_absent(const layout::Name& name) const;
  /// Says whether the path is that of a key's directory on the local disk in which no artefact is left. It stays when
  /// they go (a purge, an eviction, a program that ended), and whoever finds it compiles.
  [[nodiscard]] bool is_empty_key(const std::string& path) const;

 private:
  void answer_known(Site site, const NodePtr& known, const Caller& caller, LookupDone done);
  void answer_not_there(const Site& site, const LookupDone& done) const;
  [[nodiscard]] Site as_seen(Site site, const Caller& caller) const;
  [[nodiscard]] LookupDone in_view(Site site, const Caller& caller, LookupDone done);
  [[nodiscard]] LookupDone leasing(const Site& site, const Caller& caller, LookupDone done);
  [[nodiscard]] Result<Found> make_directory(const Site& site, bool keep = false);
  [[nodiscard]] Result<Found> show_directory(const Site& site);
  [[nodiscard]] LookupDone telling(const std::string& path, const Caller& caller, LookupDone done) const;
  [[nodiscard]] static UseKind use_of(Node& node);
  [[nodiscard]] static UseKind use_of(FetchOutcome outcome);
  void lookup_without_cluster(const Site& site, const Caller& caller, const LookupDone& done);
  [[nodiscard]] std::optional<Result<Found>> resolve_locally(const Site& asked, bool keep);
  void show_entry(const Site& site, const catalog::KnownEntry& known, bool keep, LookupDone done);
  void fetched(const Site& site, const catalog::KnownEntry& known, FetchOutcome outcome, const LookupDone& done);
  void lookup_parcel(const Site& site, LookupDone done);
  [[nodiscard]] Result<Found> show_parcel(const Site& site, const catalog::KnownEntry& known);
  [[nodiscard]] Result<Found> add_entry(const Site& site, const catalog::KnownEntry& known);
  [[nodiscard]] Result<Found> add_if_still(const Site& site, const std::function<Result<Found>()>& add);
  [[nodiscard]] Result<Found> add_shared(const Site& site, const codec::Entry& entry, uint64_t references);
  [[nodiscard]] Result<Found> add_virtual(const Site& site, uint64_t references);
  // In a Triton key directory (set_lookup.cc)
  void lookup_in_key_directory(const Site& site, const Caller& caller, LookupDone done);
  void show_cluster_set(const Site& site, const std::vector<catalog::KnownEntry>& set, LookupDone done);
  [[nodiscard]] std::optional<Found> own_pending_file(const Site& site, const Caller& caller);
  [[nodiscard]] std::optional<Found> pending_file_for_all(const Site& site);
  [[nodiscard]] std::optional<Found> pending_file(const Site& site, const std::string& place);
};

/// Answers that there is no such name. `keep` says that the kernel may remember that.
void answer_absent(const LookupDone& done, bool keep, UseKind why = UseKind::kNothing);

}  // namespace inductorfs::vfs
