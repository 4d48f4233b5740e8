// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "inductorfs/vfs/file_system.h"
#include "vfs/explain.h"
#include "vfs/nodes/notifier.h"
#include "vfs/origin/marks.h"
#include "vfs/origin/origin.h"
#include "vfs/origin/refusals.h"
#include "vfs/read/branches.h"
#include "vfs/read/cluster_changes.h"
#include "vfs/read/cluster_sets.h"
#include "vfs/read/compile_leases.h"
#include "vfs/read/fetcher.h"
#include "vfs/read/fit.h"
#include "vfs/read/group_views.h"
#include "vfs/read/listing.h"
#include "vfs/read/lookup.h"
#include "vfs/read/parcels.h"
#include "vfs/read/prefetch.h"
#include "vfs/read/root_scopes.h"
#include "vfs/read/shown_names.h"
#include "vfs/read/starts.h"
#include "vfs/recover/follow_up.h"
#include "vfs/recover/recovery.h"
#include "vfs/recover/republish.h"
#include "vfs/recover/takeover.h"
#include "vfs/tree/context.h"
#include "vfs/tree/damage.h"
#include "vfs/tree/root_tree.h"
#include "vfs/tree/shown_attributes.h"
#include "vfs/write/attributes.h"
#include "vfs/write/branch_removal.h"
#include "vfs/write/data.h"
#include "vfs/write/eviction.h"
#include "vfs/write/in_place.h"
#include "vfs/write/key_sets.h"
#include "vfs/write/names.h"
#include "vfs/write/node_places.h"
#include "vfs/write/removal.h"
#include "vfs/write/renames.h"
#include "vfs/write/seal_queue.h"
#include "vfs/write/sealing.h"
#include "vfs/write/stale.h"

namespace inductorfs::vfs {

/// The one FileSystem: local files over the cluster's entries. It owns the classes that do the work, in the order in
/// which they use each other (docs/architecture.md, "The rooms of `vfs`"); some of them implement the operations. It
/// also owns what belongs to none of them: starting, stopping, waiting for all of them, and the `janitor` thread.
///
/// Lock order: that of RootTree, with Removal::queueing() between a content and the node table.
/// Safe for concurrent use.
class Overlay final : public FileSystem, Services {
 public:
  Overlay(FileSystemOptions options, LocalTree disk, NodePtr root, const Services& services);
  ~Overlay() override;
  /// Recovers the files of an earlier process, or takes the nodes of an earlier worker over. To be called before
  /// start().
  [[nodiscard]] Result<void> begin();

  Operations operations() override { return {names_, attributes_, data_}; }
  Inspection& inspection() override { return explainer_; }
  void start(KernelCache& kernel) override;
  void requests_finished() override;
  void hold_questions(bool held) override { in_place_.hold(held); }
  void stop() override;
  void host_changed() override;
  [[nodiscard]] std::optional<uint64_t> purge(const layout::Selection& selection,
                                              const std::function<bool()>& cancelled) override;
  void judge_again() override { fit_.judge_again(); }
  void on_catalog_change(const std::vector<std::string>& paths) override;
  bool note_start(const JobStart& start) override { return starts_.note_start(start); }
  void on_published(const catalog::PublishReport& report) override { sealing_.on_published(report); }

  Result<void> sync(Deadline deadline) override;

 private:
  [[nodiscard]] Error why_not_sealed(const std::string& paths) const;
  void keep_house(const std::stop_token& stop);
  void take_damaged_away(const std::stop_token& stop);
  void forget_root(const std::string& root);

  const FileSystemOptions options_;
  TakeoverPhase phase_{Resuming::kNo};
  // tree
  RootTree tree_;
  Damage damage_;
  const Context context_;
  ShownAttributes shown_attributes_{context_};
  // read
  Notifier notifier_;
  RootScopes scopes_{context_};
  ClusterSets sets_{context_};
  ShownNames shown_{context_};
  Fit fit_{context_};
  Fetcher fetcher_;
  Starts starts_{context_};
  Prefetch prefetch_{context_};
  GroupViews views_{context_};
  Parcels parcels_{context_};
  CompileLeases leases_{context_};
  Lookup lookup_{context_};
  Branches branches_{context_};
  Listings listings_{context_};
  ClusterChanges changes_{context_};
  // origin
  Marks marks_{context_};
  Origin origin_{context_};
  // write
  Refusals refusals_{counters_};
  Removal removal_{context_};
  SealQueue seal_queue_;
  InPlace in_place_{context_};
  Sealing sealing_{context_};
  Data data_{context_};
  FileAttributes attributes_{context_};
  KeySets key_sets_{context_};
  Names names_{context_};
  BranchRemoval branch_removal_{context_};
  Renames renames_{context_};
  NodePlaces places_{context_};
  Eviction eviction_{context_};
  Stale stale_{context_};
  Explainer explainer_{context_};
  // recover
  Recovery recovery_{context_};
  FollowUp follow_up_{context_};
  Republish republish_{context_};

  std::atomic<bool> stopped_{false};
  std::jthread janitor_;
  std::jthread user_count_;
};

}  // namespace inductorfs::vfs
