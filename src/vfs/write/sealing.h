// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "vfs/nodes/notifier.h"
#include "vfs/origin/origin.h"
#include "vfs/origin/refusals.h"
#include "vfs/tree/context.h"
#include "vfs/tree/parcel_files.h"
#include "vfs/write/in_place.h"
#include "vfs/write/removal.h"
#include "vfs/write/seal_queue.h"

namespace inductorfs::vfs {

/// A file, or a parcel, that has become a blob.
struct Sealed {
  std::string path;  ///< in the mount
  codec::Entry entry;
  Fd file;
  bool shares_inode = false;  ///< the file shares its inode with the blob, so it must never be written to again
  bool is_parcel = false;     ///< `file` is the directory, or the index, of a parcel
};

/// Judges whether a private file may be sealed, once a sign says that it is complete (docs/architecture.md, the life of
/// a write), and makes it an immutable blob with an entry, which is queued for the cluster. seal() hashes whole files
/// and runs on the `seal` thread; all other calls are quick. Safe for concurrent use.
class Sealing : Context {
 public:
  explicit Sealing(const Context& context) : Context(context) {}

  /// Seals one item: SealQueue::Seal.
  SealOutcome seal(const SealItem& item);

  /// Returns what the disk said when something was left for another try (SealOutcome::kNoRoom).
  [[nodiscard]] std::optional<Error> last_failure() const;

  /// Queues a file that got its final name, if that shows it to be complete.
  void seal_if_final(const NodePtr& node, const std::string& path);
  /// Notes the writer of everything that this process gave a final name by renaming a directory or a file, and queues
  /// it.
  void saw_writer_below(const std::string& path, pid_t writer);
  /// Queues what a compiler built, because its build directory was removed.
  void seal_after_build(const std::string& directory_path, const Caller& builder);
  /// Queues a file that was found on the disk.
  void seal_later(const std::string& path) { add_found(path, false); }
  /// Queues what was sealed before for the cluster once more.
  void publish_again(const std::string& path) { add_found(path, true); }
  /// Says of a sealed file that neither the queue nor the cluster has it. What is hidden here is in the cluster.
  [[nodiscard]] bool is_unpublished(const std::string& path) const;
  /// The same, and only when the queue may have lost rows.
  [[nodiscard]] bool may_be_unpublished(const std::string& path) const;

  /// FileSystem::on_published.
  void on_published(const catalog::PublishReport& report);
  /// Rises when on_published() has files sealed once more.
  [[nodiscard]] uint64_t queued_again() const { return queued_again_.load(); }
  /// FileSystemOptions::cluster_winners: these canonical paths may have got another tuning from the cluster.
  void adopt_winners(const std::vector<std::string>& canonical_paths);
  /// Says whether a file at this path gives way to the cluster's.
  [[nodiscard]] bool gives_way(std::string_view path) const;

 private:
  void add_found(const std::string& path, bool is_again);
  void refuse(const std::string& path, const std::string& why);
  [[nodiscard]] SealOutcome not_sealed(const std::string& path, const Error& error);
  [[nodiscard]] SealOutcome seal_group(const SealItem& item);
  [[nodiscard]] SealOutcome tell_of_no_sign(const SealItem& item);
  [[nodiscard]] Result<Sealed> seal_file(const NodePtr& node, const std::string& path);
  [[nodiscard]] Result<codec::Entry> store_file(const Fd& file, const std::string& path,
                                                const layout::Classification& classified, bool shares_inode);
  // parcel_seal.cc
  [[nodiscard]] Result<Sealed> seal_parcel(const NodePtr& node, const std::string& path, const std::string& scope);
  [[nodiscard]] Result<void> judge_makers(const ParcelFiles& files, const std::string& path);
  [[nodiscard]] Result<void> judge_members(const ParcelFiles& files, const std::string& path, const std::string& scope);
  void mark_parcel(const Sealed& sealed);
  [[nodiscard]] Result<codec::Digest> store_parcel(const ParcelFiles& files, const std::string& path);
  [[nodiscard]] Result<Sealed> seal_member(const std::string& path, const std::string& key);
  [[nodiscard]] Result<Sealed> seal_group_file(const std::string& path, const std::string& key);
  [[nodiscard]] codec::Entry entry_of(const std::string& path, const struct stat& status, const codec::Digest& digest,
                                      uint64_t size) const;
  [[nodiscard]] Result<bool> enqueue(catalog::Publish publish, std::span<const Sealed> members);
  [[nodiscard]] Result<bool> has_name(const Sealed& sealed) const;
  void mark_sealed(const Sealed& sealed);
  // merges.cc
  void queue_again(const catalog::PublishReport& report);
  [[nodiscard]] std::set<std::string> places_of(const std::string& canonical) const;
  void adopt_merged(const codec::Entry& merged);
  void adopt_merged(const std::string& path);

  Guarded<std::optional<Error>> last_failure_;
  std::atomic<uint64_t> queued_again_{0};
};

}  // namespace inductorfs::vfs
