// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "inductorfs/vfs/file_system.h"
#include "vfs/cluster_sets.h"
#include "vfs/descriptor_cache.h"
#include "vfs/fetcher.h"
#include "vfs/in_place.h"
#include "vfs/local_tree.h"
#include "vfs/marks.h"
#include "vfs/node_table.h"
#include "vfs/notifier.h"
#include "vfs/overlay_types.h"
#include "vfs/sealer.h"
#include "vfs/verdicts.h"

namespace inductorfs::vfs {

/// The one FileSystem: local files (LocalTree) over the cluster's entries (Catalog).
/// Lock order: directory moves (shared by who uses a path on the disk, exclusive for the rename of a directory),
/// contested, key directory, content (of two: by id), queueing, node table, leaves. Safe for concurrent use.
class Overlay final : public FileSystem {
 public:
  Overlay(FileSystemOptions options, LocalTree tree, NodePtr root, const Services& services);
  ~Overlay() override;
  /// What an earlier life left: orphans, unfinished sets, torn files (recovery.cc).
  [[nodiscard]] Result<void> recover();

  void start(KernelCache& kernel) override;
  void requests_finished() override;
  void hold_questions(bool held) override { in_place_.hold(held); }
  void stop() override;
  void host_changed() override;
  void judge_again() override;
  void on_catalog_change(const std::vector<std::string>& paths) override;
  void on_published(const catalog::PublishReport& report) override;
  void lookup(NodeId parent, std::string_view name, const Caller& caller, LookupDone done) override;
  void forget(NodeId node, uint64_t count) override;
  Result<Found> create(NodeId parent, std::string_view name, mode_t mode, const Caller& caller) override;
  Result<Found> make_node(NodeId parent, std::string_view name, mode_t mode, dev_t device,
                          const Caller& caller) override;
  Result<Found> make_directory(NodeId parent, std::string_view name, mode_t mode, const Caller& caller) override;
  Result<Found> make_symlink(NodeId parent, std::string_view name, const std::string& target,
                             const Caller& caller) override;
  Result<Found> link(NodeId node, NodeId new_parent, std::string_view new_name, const Caller& caller) override;
  Result<void> unlink(NodeId parent, std::string_view name) override;
  Result<void> remove_directory(NodeId parent, std::string_view name, const Caller& caller) override;
  Result<void> rename(NodeId parent, std::string_view name, NodeId new_parent, std::string_view new_name,
                      RenameMode mode, const Caller& caller) override;
  Result<std::string> read_link(NodeId node) override;
  Result<void> read_directory(NodeId directory, uint64_t cookie,
                              const std::function<bool(const DirectoryItem&)>& take) override;
  Result<Attributes> get_attributes(NodeId node) override;
  Result<Attributes> set_attributes(NodeId node, const AttributeChange& change, const Caller& caller) override;
  Result<std::string> get_xattr(NodeId node, const std::string& name) override;
  Result<std::vector<std::string>> list_xattrs(NodeId node) override;
  Result<void> set_xattr(NodeId node, const std::string& name, std::string_view value, int flags) override;
  Result<void> remove_xattr(NodeId node, const std::string& name) override;
  Result<struct statvfs> statistics() override;
  Result<size_t> read(NodeId node, char* out, size_t size, uint64_t offset) override;
  Result<void> write(NodeId node, std::string_view bytes, uint64_t offset, const Caller& caller) override;
  Result<void> allocate(NodeId node, int mode, uint64_t offset, uint64_t length, const Caller& caller) override;
  Result<size_t> copy_range(NodeId from, uint64_t from_offset, NodeId to, uint64_t to_offset, size_t length,
                            const Caller& caller) override;
  Result<void> sync_file(NodeId node, bool data_only) override;
  Result<void> sync(Deadline deadline) override;
  Explanation explain(std::string_view path) override;
  FileSystemStatus status() const override;

 private:
  friend class Resume;
  friend class InPlace;
  // lookup.cc
  [[nodiscard]] Result<Site> site(NodeId parent, std::string_view name) const;
  [[nodiscard]] Result<NodePtr> live(NodeId id) const;
  void resolve(const Site& site, LookupDone done);
  [[nodiscard]] std::optional<Result<Found>> resolve_locally(const Site& site, bool keep);
  void resolve_entry(const Site& site, const catalog::Known& known, bool keep, LookupDone done);
  void fetched(const Site& site, const catalog::Known& known, FetchOutcome outcome, const LookupDone& done);
  [[nodiscard]] Result<Found> add_local(const Site& site, const struct stat& status, uint64_t references);
  [[nodiscard]] Result<Found> add_shared(const Site& site, const codec::Entry& entry, uint64_t references);
  [[nodiscard]] Result<Found> add_virtual(const Site& site, uint64_t references);
  [[nodiscard]] NodePtr new_node(mode_t type, uint64_t inode_number, const Site& site);
  void make_key_directory(Node& node, const std::string& path);
  [[nodiscard]] Result<std::shared_ptr<const std::string>> rendered_group(const std::string& path,
                                                                          const codec::Entry& entry);
  void set_entry_attributes(const Node& node, Content& content) const;
  void set_virtual_attributes(const Node& node, Content& content) const;
  [[nodiscard]] Result<Found> found(const NodePtr& node, bool keep);
  void prefetch_directory(const std::string& canonical);
  void prefetch_companions(const codec::Entry& entry);
  [[nodiscard]] Result<NodePtr> pin_path(std::string_view path);
  void unpin(const NodePtr& node);
  void let_go(const std::vector<NodePtr>& gone);
  // key_sets.cc
  void lookup_in_key_directory(const Site& site, const Caller& caller, LookupDone done);
  void show_cluster_set(const Site& site, const std::vector<catalog::Known>& set, LookupDone done);
  [[nodiscard]] std::optional<Found> own_pending_file(const Site& site, const Caller& caller);
  [[nodiscard]] Result<std::optional<SetOwner>> put_into_set(const Site& from, const Site& to, const Caller& caller);
  [[nodiscard]] Result<void> keep_pending_orphan(const std::string& place);
  void commit_if_complete(const Site& site, const SetOwner& set, pid_t writer);
  [[nodiscard]] Result<void> commit(const NodePtr& directory, const std::string& path, KeyState& state,
                                    const SetOwner& writer);
  void drop_dead_sets();
  [[nodiscard]] std::vector<std::string> local_set(const std::string& path) const;
  [[nodiscard]] bool local_set_is_whole(const std::string& path) const;
  // names.cc, rename.cc
  [[nodiscard]] Result<void> make_local_directory(const NodePtr& directory, const std::string& path);
  [[nodiscard]] Result<Found> made(const Site& site, const Caller& caller, std::optional<Fd> file);
  [[nodiscard]] Result<Found> make_name(const std::function<Result<Found>(const Moves&)>& make);
  [[nodiscard]] Result<NodePtr> link_file(const NodePtr& node, Content& content, const Site& to);
  void hide_entry(const std::string& canonical);
  void hide_moved(const std::string& from, const std::string& to);
  [[nodiscard]] bool directory_is_empty(const NodePtr& directory, const std::string& path) const;
  [[nodiscard]] Result<void> keep_orphan(const Site& site, const NodePtr& node);
  void become(const NodePtr& node, Content& content, Backing backing, std::string elsewhere);
  void become_orphan(const Node& node, Content& content, std::string place);
  void orphaned(const Node& node, Content& content, bool has_file);
  void named_again(const NodePtr& node);
  [[nodiscard]] Result<void> remove_first_name(const std::string& view_path, const NodePtr& node, Content* content,
                                               Result<void> kept);
  [[nodiscard]] Result<void> take_name_away(const Site& site, const NodePtr& node, Content* content);
  [[nodiscard]] Result<void> rename_checked(const Site& from, const Site& to, RenameMode mode, const Caller& caller);
  void witness_renamed(const Site& to, const Caller& caller);
  [[nodiscard]] Result<void> rename_file(const Site& from, const Site& to, const NodePtr& node, RenameMode mode);
  [[nodiscard]] Result<void> rename_directory(const Site& from, const Site& to, const NodePtr& node, RenameMode mode);
  [[nodiscard]] Result<void> exchange(const Site& from, const Site& to);
  [[nodiscard]] Result<NodePtr> existing(const Site& site);
  [[nodiscard]] Result<void> renew_listing(const NodePtr& node, const std::string& path);
  [[nodiscard]] bool shows_set(const NodePtr& directory, const std::string& path) const;
  // data.cc, attributes.cc
  [[nodiscard]] Result<std::string> location(const Node& node, const Content& content) const;
  [[nodiscard]] Result<DescriptorCache::Pointer> descriptor(const Node& node, Content& content, bool writable);
  [[nodiscard]] Result<DescriptorCache::Pointer> begin_write(const NodePtr& node, std::optional<uint64_t> keep_bytes,
                                                             pid_t writer);
  void end_write(const NodePtr& node, bool changed);
  [[nodiscard]] bool make_room(uint64_t bytes);
  [[nodiscard]] bool is_sealed(const Node& node, Content& content);
  [[nodiscard]] Result<void> make_private(const NodePtr& node, Content& content, std::optional<uint64_t> keep_bytes);
  [[nodiscard]] Result<void> copy_bytes_of(const Node& node, Content& content, const Fd& to, uint64_t size);
  [[nodiscard]] Result<void> copy_entry_to_view(const NodePtr& node, Content& content, std::optional<uint64_t> keep);
  [[nodiscard]] Result<Attributes> attributes(const Node& node, Content& content);
  [[nodiscard]] Result<Attributes> apply_change(const NodePtr& node, const AttributeChange& change);
  [[nodiscard]] Result<std::string> own_xattr(const NodePtr& node, const std::string& name);
  [[nodiscard]] Result<void> change_xattr(NodeId id, const std::string& name,
                                          const std::function<Result<void>(const std::string&)>& change);
  [[nodiscard]] bool fetch_again(const codec::Entry& entry);
  [[nodiscard]] Result<DescriptorCache::Pointer> reading(const NodePtr& node,
                                                         std::shared_ptr<const std::string>& rendered);
  [[nodiscard]] Result<void> sync_names(const Node& directory);
  // sealing.cc
  void seal_if_final(const NodePtr& node, const std::string& path);
  void seal_after_build(const std::string& directory_path, pid_t builder);
  SealOutcome seal(const SealItem& item);
  SealOutcome not_sealed(const std::string& path, const Error& error);
  [[nodiscard]] Result<Sealed> seal_file(const NodePtr& node, const std::string& path);
  [[nodiscard]] Result<codec::Entry> store_file(const Fd& file, const std::string& path, const layout::Place& place,
                                                bool shares_inode);
  [[nodiscard]] Result<Sealed> seal_member(const std::string& path, const std::string& key);
  [[nodiscard]] Result<Sealed> seal_group_file(const std::string& path, const std::string& key);
  [[nodiscard]] bool enqueue(const catalog::Publish& publish, const std::string& path,
                             const std::function<bool()>& still_here);
  [[nodiscard]] bool has_name(const Sealed& sealed, const std::string& path) const;
  void mark_sealed(const Sealed& sealed, const std::string& path);
  [[nodiscard]] std::string seal_on_disk(const std::string& path) const;
  SealOutcome seal_group(const SealItem& item);
  void refuse(const std::string& path, const std::string& why);
  [[nodiscard]] bool may_evict(const codec::Digest& digest);
  [[nodiscard]] bool drop_local(const std::string& path, const codec::Digest& digest);
  [[nodiscard]] bool drop_local_set(const std::string& directory);
  // writers.cc
  [[nodiscard]] Provenance provenance(const Content& content, const std::string& place) const;
  [[nodiscard]] Provenance provenance_of(const std::string& path) const;
  bool change_provenance(const NodePtr& node, const std::function<void(Provenance&)>& change);
  void change_set(const std::string& path, const std::function<void(Provenance&)>& change);
  void saw_writer(const NodePtr& node, const std::string& path, pid_t writer, bool anew = false);
  void saw_writer_below(const std::string& path, pid_t writer);
  void saw_writer_in_place(const NodePtr& node, pid_t writer, bool anew);
  void saw_writer_of_set(const NodePtr& directory, const std::string& path, pid_t writer);
  void mark_set(const std::string& place, const std::vector<std::string>& names, Provenance& set,
                const Verdict& verdict) const;
  [[nodiscard]] std::optional<SealOutcome> judge_writers(const NodePtr& node, const std::string& path);
  [[nodiscard]] std::optional<SealOutcome> keeps_from_sealing(const NodePtr& node, const std::string& path,
                                                              const std::string& scope);
  [[nodiscard]] std::optional<SealOutcome> keeps_set_from_sealing(const NodePtr& directory, const std::string& path,
                                                                  const layout::Scope& scope);
  void keep_set_private(const std::string& path, const std::string& why);
  // stale.cc
  [[nodiscard]] bool is_stale(const std::string& path, const std::vector<std::string>& scopes) const;
  void drop_stale_below(const std::string& path);
  void drop_stale(const std::string& directory, std::vector<std::string> names);
  void keep_what_is_queued(const std::string& path);
  void recover_stale();
  [[nodiscard]] bool recover_provenance(const std::string& path);
  [[nodiscard]] bool recover_set(const std::string& path, std::vector<std::string> names);
  // remote_changes.cc
  NodeId apply_remote_change(const std::string& path, const std::string& canonical);
  void adopt_merged(const codec::Entry& merged);
  [[nodiscard]] std::vector<std::string> local_paths_of(const std::string& canonical) const;
  // recovery.cc
  void recover_directory(const std::string& path, bool torn);
  void set_aside(const std::string& path, const Error& why, bool torn);
  void recover_file(const std::string& directory, const std::string& name, const std::vector<LocalTree::Item>& siblings,
                    bool torn);
  void recover_group(const std::string& path, bool torn);
  [[nodiscard]] bool is_blob_without_seal(int file);
  void seal_later(const std::string& path);
  void mark_clean();
  // overlay.cc, explain.cc
  void keep_house(const std::stop_token& stop);
  void prefetch_newest();
  [[nodiscard]] Result<void> check_fetched(const codec::Entry& entry);
  void hide_unfit(const codec::Entry& entry, const std::string& why, uint64_t age);
  void explain_place(Explanation& result);

  const FileSystemOptions options_;
  const Host& host_;
  LocalTree tree_;
  catalog::Catalog& catalog_;
  store::BlobStore& store_;
  Counters& counters_;
  NodePtr root_;
  NodeTable nodes_;
  DescriptorCache descriptors_;
  Notifier notifier_;
  SharedGuarded<Moves> moves_;
  Guarded<Queueing> queueing_;
  Guarded<Pins> pins_;
  ClusterSets sets_;
  Guarded<Orphans> orphans_;
  Guarded<std::vector<std::string>> refused_;
  Verdicts verdicts_;
  Marks marks_;
  Guarded<std::unordered_map<uint64_t, std::weak_ptr<Node>>> contested_;
  Guarded<std::vector<std::pair<std::string, int64_t>>> companions_;
  Sealer sealer_;
  Fetcher fetcher_;
  InPlace in_place_{*this};
  std::atomic<bool> stopped_{false};
  Guarded<Resuming> resuming_{Resuming::kNo};
  std::jthread janitor_;
};

}  // namespace inductorfs::vfs
