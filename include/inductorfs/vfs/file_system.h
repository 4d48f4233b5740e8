// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/statvfs.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/catalog/catalog.h"
#include "inductorfs/fingerprint/writers.h"
#include "inductorfs/layout/scope.h"
#include "inductorfs/remote/remote.h"
#include "inductorfs/store/blob_store.h"
#include "inductorfs/takeover/region.h"
#include "inductorfs/vfs/types.h"

/// What a path operation means: the view of one mount over local files and the cluster's entries. Runs without libfuse
/// and without Redis. docs/architecture.md tells the life of a read and of a write.
namespace inductorfs::vfs {

/// What fits this host. It may change while the mount lives; FileSystem::host_changed() says when.
/// Safe for concurrent use.
class Host {
 public:
  virtual ~Host() = default;
  /// The scope of a family, or of its artefacts for one GPU architecture (layout::scope_of); empty id: private.
  [[nodiscard]] virtual layout::Scope scope_of(layout::Family family, std::string_view architecture) const = 0;
  /// Whether a scope's entry at this path is for the host as it is now.
  [[nodiscard]] virtual bool follows(const remote::ScopeId& scope, std::string_view path) const = 0;
  /// Whether an artefact fits its name and this host (layout::check_content). Never blocks.
  [[nodiscard]] virtual Result<void> check(const layout::Place& place, std::string_view bytes, uint64_t size) const = 0;
  /// Who writes; nullptr: every writer has this mount's environment (`writers = "all"` in the configuration).
  [[nodiscard]] virtual fingerprint::Writers* writers() const = 0;
};

/// A file of the mount: its path below it, and the inode number that the mount shows.
struct OpenQuestion {
  std::string path;
  uint64_t inode_number = 0;
};
enum class OpenState {
  kNotForWriting,  ///< no process has it open, or mapped, for writing
  kForWriting,
  kUnknown,   ///< the kernel does not tell
  kLate,      ///< it did not in time
  kNotAsked,  ///< an earlier question took all the time
};

struct FileSystemOptions {
  /// Local directory of this view: `view/` holds private and sealed files as a plain tree, `pending/` and `orphans/`
  /// what has no name in it. Made when missing; lies on the store's file system.
  std::string directory;
  /// Absolute path under which jobs see the mount: Triton's group files are rendered for it.
  std::string mountpoint;
  std::string origin;   ///< "host/mount id"
  uid_t owner_uid = 0;  ///< of entries and directories that come from the cluster
  gid_t owner_gid = 0;
  mode_t root_mode = 0755;          ///< of the root, anew at each mount, and of directories from the cluster
  bool chown_to_caller = false;     ///< the daemon is root: new files belong to who makes them
  Milliseconds quiet_time{2000};    ///< layout::SealSign::kQuiet
  Milliseconds fetch_total{20000};  ///< most that one fetch may take while it makes progress
  /// Most that a lookup waits without progress, over all round trips that it needs; then it is a miss.
  Milliseconds lookup_patience{250};
  size_t fetch_threads = 4;
  uint64_t prefetch_bytes = 512ULL << 20;  ///< of the newest entries, in the background after the mount; 0 = none
  uint64_t artefact_limit = 512ULL << 20;
  size_t descriptor_limit = 512;  ///< local files kept open
  /// Asks the kernel, once for all of them, and answers in the order of the questions. Blocks until a deadline of its
  /// own, or until it is to stop; only one thread calls it. None: nobody can tell, and what was written in place stays
  /// on this host.
  std::function<std::vector<OpenState>(const std::vector<OpenQuestion>&, const std::stop_token&)> who_writes;
  /// Where the table of nodes is noted for the next worker; it outlives the file system. None: nowhere.
  const takeover::Region* region = nullptr;
  /// An earlier worker served this mount: the kernel knows the nodes that it noted, and processes use them.
  bool resume = false;
};

/// What `inductorfs explain` prints about one path.
struct Explanation {
  std::string path;
  std::string canonical;
  std::string family;
  std::string rule;   ///< why the family is shared so, and the source of that
  std::string scope;  ///< id, or empty
  std::string scope_text;
  std::string why_private;
  std::string digest;
  std::string origin;
  std::string made_for;  ///< ids of the scopes whose facts the writers of a local file had, separated by a space
  std::string where;     ///< "local file", "sealed local file", "store", "cluster", "directory", "nowhere"
  bool visible = false;
  std::string why;      ///< why it is visible, or is not
  std::string publish;  ///< "published", "queued: ...", "kept local: ...", or empty
};

struct FileSystemStatus {
  uint64_t nodes = 0;
  uint64_t unsealed = 0;                     ///< files that wait to be sealed
  std::vector<std::string> in_place;         ///< some of those that were written in place: "path: why it waits"
  std::vector<std::string> still_written;    ///< some of those that were never quiet, for which sync() does not wait
  uint64_t contested = 0;                    ///< Triton key directories with an unfinished set of some writer
  std::vector<std::string> refused;          ///< the last 20 refusals: "path: reason"
  uint64_t foreign = 0;                      ///< artefacts that stay here because their writer has another environment
  std::vector<std::string> foreign_reasons;  ///< the last 20 distinct reasons
};

/// One mount's file system. Every operation may block on the local disk; only lookup may need the network, and it
/// then answers later, from another thread, so that no caller's thread waits. The kernel's own locks on directories
/// order concurrent changes of one directory; background threads (sealing, remote changes) are ordered inside.
/// Safe for concurrent use.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// Puts the view in order (unfinished sets, orphans, what a host crash may have torn) and scans for files that were
  /// not sealed yet; of a mount that is resumed it takes over the nodes, and scans later, in the background. All
  /// references must outlive this object. Errors as BlobStore::open.
  [[nodiscard]] static Result<std::unique_ptr<FileSystem>> open(const FileSystemOptions& options, const Host& host,
                                                                catalog::Catalog& catalog, store::BlobStore& store,
                                                                remote::Remote& remote, Counters& counters);
  /// Starts the background threads. Requires: called once, before the first operation.
  virtual void start(KernelCache& kernel) = 0;
  /// After start() of one that resumes: the requests of the earlier worker are answered (fuse::Session::start), and
  /// what else it left is looked after in the background. Until it is called nothing is sealed, because such a request
  /// may have written a part of its bytes, and sync() waits. Any other: no effect.
  virtual void requests_finished() = 0;
  /// A question of FileSystemOptions::who_writes keeps the mount busy. While they are held none is asked; one that is
  /// under way is ended first. Blocks for a moment.
  virtual void hold_questions(bool held) = 0;
  /// Ends them, leaving work that is not done for the next start. Idempotent. The kernel must have been unmounted or
  /// its requests ended before.
  virtual void stop() = 0;

  /// The host's facts have changed: local artefacts of another scope than their family's leave the view for new lookups
  /// (their published entries are shown again when the facts return); open files stay. Blocks for a walk of the local
  /// tree.
  virtual void host_changed() = 0;

  /// Something of this host may be another although its facts are the same, a library perhaps: what was found unfit for
  /// it is looked at again. host_changed() does this too.
  virtual void judge_again() = 0;

  /// To be handed to Catalog::start.
  virtual void on_catalog_change(const std::vector<std::string>& paths) = 0;
  virtual void on_published(const catalog::PublishReport& report) = 0;

  // Whose call gives a file of a shared family its name, or changes its bytes, is taken for its writer
  // (Host::writers()): nothing leaves the host that another environment wrote.

  // ---- names
  virtual void lookup(NodeId parent, std::string_view name, const Caller& caller, LookupDone done) = 0;
  virtual void forget(NodeId node, uint64_t count) = 0;
  [[nodiscard]] virtual Result<Found> create(NodeId parent, std::string_view name, mode_t mode, const Caller&) = 0;
  [[nodiscard]] virtual Result<Found> make_node(NodeId parent, std::string_view name, mode_t mode, dev_t device,
                                                const Caller&) = 0;
  [[nodiscard]] virtual Result<Found> make_directory(NodeId parent, std::string_view name, mode_t mode,
                                                     const Caller&) = 0;
  [[nodiscard]] virtual Result<Found> make_symlink(NodeId parent, std::string_view name, const std::string& target,
                                                   const Caller&) = 0;
  [[nodiscard]] virtual Result<Found> link(NodeId node, NodeId new_parent, std::string_view new_name,
                                           const Caller&) = 0;
  [[nodiscard]] virtual Result<void> unlink(NodeId parent, std::string_view name) = 0;
  [[nodiscard]] virtual Result<void> remove_directory(NodeId parent, std::string_view name, const Caller&) = 0;
  [[nodiscard]] virtual Result<void> rename(NodeId parent, std::string_view name, NodeId new_parent,
                                            std::string_view new_name, RenameMode mode, const Caller&) = 0;
  [[nodiscard]] virtual Result<std::string> read_link(NodeId node) = 0;

  /// Items after `cookie` (0: from the start), until `take` answers false. Cookies stay valid while the kernel knows
  /// the directory, whatever is created or removed meanwhile. Includes "." and "..".
  [[nodiscard]] virtual Result<void> read_directory(NodeId directory, uint64_t cookie,
                                                    const std::function<bool(const DirectoryItem&)>& take) = 0;

  // ---- attributes
  [[nodiscard]] virtual Result<Attributes> get_attributes(NodeId node) = 0;
  [[nodiscard]] virtual Result<Attributes> set_attributes(NodeId node, const AttributeChange& change,
                                                          const Caller&) = 0;
  [[nodiscard]] virtual Result<std::string> get_xattr(NodeId node, const std::string& name) = 0;
  [[nodiscard]] virtual Result<std::vector<std::string>> list_xattrs(NodeId node) = 0;
  /// `flags`: XATTR_CREATE, XATTR_REPLACE. Names under "user.inductorfs." are read-only: kNotPermitted.
  [[nodiscard]] virtual Result<void> set_xattr(NodeId node, const std::string& name, std::string_view value,
                                               int flags) = 0;
  [[nodiscard]] virtual Result<void> remove_xattr(NodeId node, const std::string& name) = 0;
  [[nodiscard]] virtual Result<struct statvfs> statistics() = 0;

  // ---- data
  [[nodiscard]] virtual Result<size_t> read(NodeId node, char* out, size_t size, uint64_t offset) = 0;
  [[nodiscard]] virtual Result<void> write(NodeId node, std::string_view bytes, uint64_t offset, const Caller&) = 0;
  [[nodiscard]] virtual Result<void> allocate(NodeId node, int mode, uint64_t offset, uint64_t length,
                                              const Caller&) = 0;
  /// How much was copied, which may be less than `length` before the end of the file, too: the caller asks again.
  [[nodiscard]] virtual Result<size_t> copy_range(NodeId from, uint64_t from_offset, NodeId to, uint64_t to_offset,
                                                  size_t length, const Caller&) = 0;
  /// Data to the local disk: what a local file system would promise.
  [[nodiscard]] virtual Result<void> sync_file(NodeId node, bool data_only) = 0;

  // ---- for the operator
  /// Waits until all that was written is sealed and published. kTimedOut or kUnavailable with what is not, and why;
  /// kNoSpace with what the store has no room for, once all the rest is published.
  [[nodiscard]] virtual Result<void> sync(Deadline deadline) = 0;
  /// `path` relative to the mount. Needs no bytes: never fetches.
  [[nodiscard]] virtual Explanation explain(std::string_view path) = 0;
  [[nodiscard]] virtual FileSystemStatus status() const = 0;
};

}  // namespace inductorfs::vfs
