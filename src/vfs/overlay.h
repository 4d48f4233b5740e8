// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "inductorfs/vfs/file_system.h"
#include "vfs/explain.h"
#include "vfs/origin/marks.h"
#include "vfs/origin/origin.h"
#include "vfs/read/branches.h"
#include "vfs/read/cluster_changes.h"
#include "vfs/read/cluster_sets.h"
#include "vfs/read/compile_leases.h"
#include "vfs/read/context.h"
#include "vfs/read/fetcher.h"
#include "vfs/read/fit.h"
#include "vfs/read/group_views.h"
#include "vfs/read/listing.h"
#include "vfs/read/lookup.h"
#include "vfs/read/notifier.h"
#include "vfs/read/parcels.h"
#include "vfs/read/prefetch.h"
#include "vfs/read/root_scopes.h"
#include "vfs/read/shown_names.h"
#include "vfs/read/starts.h"
#include "vfs/recover/follow_up.h"
#include "vfs/recover/node_places.h"
#include "vfs/recover/recovery.h"
#include "vfs/recover/rename_replay.h"
#include "vfs/recover/republish.h"
#include "vfs/recover/takeover.h"
#include "vfs/tree/damage.h"
#include "vfs/tree/root_tree.h"
#include "vfs/write/attributes.h"
#include "vfs/write/branch_removal.h"
#include "vfs/write/data.h"
#include "vfs/write/eviction.h"
#include "vfs/write/in_place.h"
#include "vfs/write/key_sets.h"
#include "vfs/write/names.h"
#include "vfs/write/refusals.h"
#include "vfs/write/removal.h"
#include "vfs/write/renames.h"
#include "vfs/write/sealer.h"
#include "vfs/write/sealing.h"
#include "vfs/write/stale.h"

namespace inductorfs::vfs {

/// The one FileSystem: local files over the cluster's entries. It owns the classes that do the work, in the order in
/// which they use each other (docs/architecture.md, "The rooms of `vfs`"), and passes each operation on to one of them.
/// It also owns what belongs to none of them: starting, stopping, waiting for all of them, and the `janitor` thread.
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

  void lookup(NodeId parent, std::string_view name, const Caller& caller, LookupDone done) override;
  void forget(NodeId node, uint64_t count) override { tree_.forget(node, count); }
  Result<Found> create(NodeId parent, std::string_view name, mode_t mode, const Caller& caller) override {
    return make_in_branch(parent, name, caller, [&](NodeId at) { return names_.create(at, name, mode, caller); });
  }
  Result<Found> make_node(NodeId parent, std::string_view name, mode_t mode, dev_t /*device*/,
                          const Caller& caller) override {
    return make_in_branch(parent, name, caller, [&](NodeId at) { return names_.make_node(at, name, mode, caller); });
  }
  Result<Found> make_directory(NodeId parent, std::string_view name, mode_t mode, const Caller& caller) override {
    return make_in_branch(parent, name, caller,
                          [&](NodeId at) { return names_.make_directory(at, name, mode, caller); });
  }
  Result<Found> make_symlink(NodeId parent, std::string_view name, const std::string& target,
                             const Caller& caller) override {
    return make_in_branch(parent, name, caller,
                          [&](NodeId at) { return names_.make_symlink(at, name, target, caller); });
  }
  Result<Found> link(NodeId node, NodeId new_parent, std::string_view new_name, const Caller& caller) override {
    return make_in_branch(new_parent, new_name, caller,
                          [&](NodeId at) { return names_.link(node, at, new_name, caller); });
  }
  Result<void> unlink(NodeId parent, std::string_view name, const Caller& caller) override;
  Result<void> remove_directory(NodeId parent, std::string_view name, const Caller& caller) override;
  Result<void> rename(NodeId parent, std::string_view name, NodeId new_parent, std::string_view new_name,
                      RenameMode mode, const Caller& caller) override;
  Result<std::string> read_link(NodeId node, const Caller& caller) override { return names_.read_link(node, caller); }
  bool waits_at_directories() const override { return leases_.is_on(); }
  void open_directory(NodeId directory, const Caller& caller, std::function<void()> done) override {
    lookup_.open_directory(directory, caller, std::move(done));
  }
  Result<void> read_directory(NodeId directory, uint64_t cookie, const Caller& caller,
                              const std::function<bool(const DirectoryItem&)>& take) override {
    key_sets_.settle(directory);
    return listings_.read_directory(directory, cookie, caller, take);
  }
  Result<Attributes> get_attributes(NodeId node) override { return attributes_.get_attributes(node); }
  Result<Attributes> set_attributes(NodeId node, const AttributeChange& change, const Caller& caller) override {
    return attributes_.set_attributes(node, change, caller);
  }
  Result<std::string> get_xattr(NodeId node, const std::string& name) override {
    return attributes_.get_xattr(node, name);
  }
  Result<std::vector<std::string>> list_xattrs(NodeId node) override { return attributes_.list_xattrs(node); }
  Result<void> set_xattr(NodeId node, const std::string& name, std::string_view value, int flags) override {
    return attributes_.set_xattr(node, name, value, flags);
  }
  Result<void> remove_xattr(NodeId node, const std::string& name) override {
    return attributes_.remove_xattr(node, name);
  }
  Result<struct statvfs> statistics() override { return attributes_.statistics(); }
  Result<size_t> read(NodeId node, char* out, size_t size, uint64_t offset) override {
    return data_.read(node, out, size, offset);
  }
  Result<void> write(NodeId node, std::string_view bytes, uint64_t offset, const Caller& caller) override {
    return data_.write(node, bytes, offset, caller);
  }
  Result<void> allocate(NodeId node, int mode, uint64_t offset, uint64_t length, const Caller& caller) override {
    return data_.allocate(node, mode, offset, length, caller);
  }
  Result<size_t> copy_range(NodeId from, uint64_t from_offset, NodeId to, uint64_t to_offset, size_t length,
                            const Caller& caller) override {
    return data_.copy_range(from, from_offset, to, to_offset, length, caller);
  }
  Result<void> sync_file(NodeId node, bool data_only) override { return data_.sync_file(node, data_only); }
  Result<void> sync(Deadline deadline) override;
  Explanation explain(std::string_view path) override;
  std::optional<OwnFile> newest_own(const std::string& directory, int depth, const std::string& name,
                                    uint64_t limit) override {
    auto newest = tree_.newest_own(directory, depth, name);
    if (newest) newest->bytes = tree_.disk().read_file(LocalTree::view(newest->path), limit).value_or("");
    return newest;
  }
  bool lets_in(std::string_view path, uid_t user, std::span<const gid_t> groups) const override {
    return tree_.lets_in(path, user, groups);
  }
  FileSystemStatus status() const override;

 private:
  template <typename Make>
  Result<Found> make_in_branch(NodeId parent, std::string_view name, const Caller& caller, const Make& make) {
    INDUCTORFS_TRY_ASSIGN(const auto route, branches_.route(parent, name, caller, Branches::Use::kMake));
    auto result = make(route.parent);
    if (result && route.is_first) keep_no_name(*result);
    return result;
  }
  static void keep_no_name(Found& found) { found.keep_attributes = std::exchange(found.keep, false); }
  void removed(NodeId parent, std::string_view name, const Branches::Route& route, const Caller& caller);
  /// A name as a program asks for it.
  struct Asked {
    NodeId parent{};
    std::string name;
    Caller caller;
  };
  void show_listed(const Asked& asked, NodeId parent, LookupAnswer& answer);
  void left_listing(NodeId parent, std::string_view name);
  [[nodiscard]] bool went_with_its_set(NodeId lister, NodeId directory, std::string_view name);
  [[nodiscard]] Error why_not_sealed(const std::string& paths) const;
  void keep_house(const std::stop_token& stop);
  void take_damaged_away(const std::stop_token& stop);
  void forget_root(const std::string& root);

  const FileSystemOptions options_;
  TakeoverPhase phase_{Resuming::kNo};
  // tree
  RootTree tree_;
  const UserCharges& charges_{tree_.disk().charges()};
  Damage damage_;
  const Context context_;
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
  Sealer sealer_;
  InPlace in_place_{context_};
  Sealing sealing_{context_};
  Data data_{context_};
  FileAttributes attributes_{context_};
  KeySets key_sets_{context_};
  Names names_{context_};
  BranchRemoval branch_removal_{context_};
  Renames renames_{context_};
  Eviction eviction_{context_};
  Stale stale_{context_};
  Explainer explainer_{context_};
  // recover
  Recovery recovery_{context_};
  NodePlaces places_{context_};
  FollowUp follow_up_{context_};
  Republish republish_{context_};
  RenameReplay replay_{context_};

  std::atomic<bool> stopped_{false};
  std::jthread janitor_;
  std::jthread user_count_;
};

}  // namespace inductorfs::vfs
