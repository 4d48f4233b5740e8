// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/catalog/catalog.h"
#include "inductorfs/remote/blobs.h"
#include "inductorfs/remote/leases.h"
#include "inductorfs/store/blob_store.h"
#include "inductorfs/vfs/file_system.h"
#include "vfs/tree/damage.h"
#include "vfs/tree/root_tree.h"

namespace inductorfs::vfs {

/// The phase of a takeover. What the earlier worker left is examined when its requests are finished, because only then
/// does the file of a rename that is on the disk alone have a node. Until everything is examined nothing is evicted,
/// and sync waits.
enum class Resuming { kNo, kRequests, kFiles };

using TakeoverPhase = Guarded<Resuming>;

/// The parts that a file system works with in addition to its own tree. The caller of FileSystem::open() owns them, and
/// they must outlive the file system.
struct Services {
  const Host& host_;
  catalog::Catalog& catalog_;
  store::BlobStore& store_;
  remote::Blobs& cluster_blobs_;
  remote::Leases& cluster_leases_;
  Counters& counters_;
};

/// What the classes of a file system work with: each of them derives from it, so that it has these names as its own,
/// and includes the headers of those that it uses. Constructors may use what comes before `notifier_`. The rest is made
/// later, in the order of Overlay.
struct Context : Services {
  const FileSystemOptions& options_;
  RootTree& tree_;
  Damage& damage_;
  TakeoverPhase& phase_;
  class ShownAttributes& shown_attributes_;
  class Notifier& notifier_;
  class RootScopes& scopes_;
  class ClusterSets& sets_;
  class ShownNames& shown_;
  class Fit& fit_;
  class Fetcher& fetcher_;
  class Starts& starts_;
  class Prefetch& prefetch_;
  class GroupViews& views_;
  class Parcels& parcels_;
  class CompileLeases& leases_;
  class Lookup& lookup_;
  class Branches& branches_;
  class Listings& listings_;
  class ClusterChanges& changes_;
  class Marks& marks_;
  class Origin& origin_;
  class Refusals& refusals_;
  class Removal& removal_;
  class SealQueue& seal_queue_;
  class InPlace& in_place_;
  class Sealing& sealing_;
  class Data& data_;
  class KeySets& key_sets_;
  class Names& names_;
  class BranchRemoval& branch_removal_;
  class Renames& renames_;
  class Stale& stale_;
  class NodePlaces& places_;
  // what the tree has
  KnownRoots& known_roots_{tree_.known_roots()};
  LocalTree& disk_{tree_.disk()};
  NodeTable& nodes_{tree_.nodes()};
  DescriptorCache& descriptors_{tree_.descriptors()};
  SharedGuarded<Moves>& moves_{tree_.moves()};
  Guarded<Pins>& pins_{tree_.pins()};
  Guarded<Orphans>& orphans_{tree_.orphans()};
};

}  // namespace inductorfs::vfs
