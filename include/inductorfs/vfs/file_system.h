// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/defaults.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/catalog/catalog.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/fingerprint/writers.h"
#include "inductorfs/layout/scope.h"
#include "inductorfs/layout/selection.h"
#include "inductorfs/remote/index.h"
#include "inductorfs/remote/leases.h"
#include "inductorfs/store/blob_store.h"
#include "inductorfs/takeover/region.h"
#include "inductorfs/vfs/operations.h"
#include "inductorfs/vfs/report.h"
#include "inductorfs/vfs/types.h"

/// What a path operation means: the view of one mount over local files and the cluster's entries. This module runs
/// without libfuse and without Redis. docs/architecture.md describes the life of a read and the life of a write.
namespace inductorfs::vfs {

/// What a cache root shares, and with whom: the scopes of its artefacts. Safe for concurrent use.
class RootEnvironment {
 public:
  virtual ~RootEnvironment() = default;
  /// Returns the scope of a family, or of its artefacts for one GPU architecture (layout::scope_of). A scope with an
  /// empty id means that the family is private.
  [[nodiscard]] virtual layout::Scope scope_of(layout::Family family, std::string_view architecture) const = 0;
  /// Says whether a job of this environment uses an entry of this scope at this path.
  [[nodiscard]] virtual bool follows(const remote::ScopeId& scope, std::string_view path) const = 0;
  /// Returns the ids of all its scopes.
  [[nodiscard]] virtual std::vector<remote::ScopeId> scope_ids() const = 0;
  /// Returns who shares it: the trust facet (fingerprint/trust.h).
  [[nodiscard]] virtual fingerprint::Fact shared_with() const = 0;
  /// Returns the facts that the writer of a shared artefact has to have.
  [[nodiscard]] virtual std::shared_ptr<const fingerprint::ExpectedFacts> expected() const = 0;
};

/// Which environment the program behind a request has (Host::job_of). Immutable value.
struct Job {
  enum class Kind {
    kNone,     ///< it is neither torch nor Triton, and was started by none
    kUnknown,  ///< it could not be found out, and stays so for as long as the process lives
    kLater,    ///< it could not be found out yet: the process has made nothing, and finds nothing so far
    kKnown,
  };
  Kind kind = Kind::kNone;
  std::string environment;  ///< of kKnown: kEnvironmentIdLength hex digits; equal ids are equal environments
};
inline constexpr size_t kEnvironmentIdLength = 16;

/// This host as the file system sees it: its scopes, its checks of artefacts, and its writers. As a RootEnvironment it
/// is that of the mountpoint, and of each root that shares with the same users. The answers may change while the mount
/// lives; the owner then calls FileSystem::host_changed(). Safe for concurrent use.
class Host : public RootEnvironment {
 public:
  /// Returns the environment of the cache roots with this owner; nullptr when it is the mountpoint's. Equal owners get
  /// the same object. It may block for `patience`, when it has to ask for a name. `job` is a Job::environment, or empty
  /// for the mount's own environment; one that this host does not know any more shares nothing (RootEnvironment::
  /// shared_with() is not known).
  [[nodiscard]] virtual std::shared_ptr<const RootEnvironment> environment_of(const RootAccess& root,
                                                                              std::string_view job,
                                                                              Milliseconds patience) const = 0;
  /// Says whether each program has the environment that is learned from it, and not the mount's. It never changes.
  [[nodiscard]] virtual bool learns() const = 0;
  /// Finds out which environment a program has (fingerprint::Writers::job_of). It blocks for some seconds at most, and
  /// only when the program's packages were never seen on this host. `makes`: the program is about to make something, so
  /// that its environment has to be settled; the answer is not kLater then. Only where learns().
  [[nodiscard]] virtual Job job_of(pid_t thread, bool makes) const = 0;
  /// Tells that this program uses the mount, so that its packages are read before it asks for a name of its
  /// environment. Only where learns().
  virtual void expect_job(pid_t thread) const = 0;
  /// Returns what a Job::environment is, in a few words: "torch 2.15.0, triton 3.9.0, cpython-311".
  [[nodiscard]] virtual std::string environment_text(std::string_view job) const = 0;
  /// Says whether the owner of such a root is being asked for, so that environment_of() has another answer soon.
  [[nodiscard]] virtual bool is_asking(const RootAccess& root) const = 0;
  /// Says whether what this user puts into such a root is shared by those who share the root. kAnyUser for everybody.
  [[nodiscard]] virtual bool may_share(const RootAccess& root, uid_t user) const = 0;
  /// The same of every member of a group.
  [[nodiscard]] virtual bool may_group_share(const RootAccess& root, gid_t group) const = 0;
  /// Returns another number when environment_of() may have another answer, because users may have other names.
  [[nodiscard]] virtual uint64_t accounts() const = 0;
  /// Says whether environment_of() can be another one than the mountpoint's.
  [[nodiscard]] virtual bool parts_roots() const = 0;
  /// Checks whether an artefact fits its name and this host (layout::check_content): each of the environments that use
  /// one of these scopes, or any environment where none is in use that does. Never blocks.
  [[nodiscard]] virtual Result<void> check(const layout::Classification& classified, std::string_view bytes,
                                           uint64_t size, std::span<const remote::ScopeId> scopes) const = 0;
  /// Rises when an environment comes into use, so that check() may answer otherwise.
  [[nodiscard]] virtual uint64_t environments_made() const = 0;
  /// Finds out which environment a writing process has. nullptr means that every writer counts as having this mount's
  /// environment (`writers = "all"` in the configuration).
  [[nodiscard]] virtual fingerprint::Writers* writers() const = 0;
};

/// A file of the mount: its path relative to the mount, and the inode number that the mount shows for it.
struct OpenQuestion {
  std::string path;
  uint64_t inode_number = 0;
};
enum class OpenState {
  kNotForWriting,  ///< no process has the file open, or mapped, for writing
  kForWriting,
  kUnknown,   ///< the kernel does not tell
  kLate,      ///< the kernel did not tell in time
  kNotAsked,  ///< an earlier question used up all the time
};

inline constexpr Milliseconds kForgetWait{100};

struct FileSystemOptions {
  /// The local directory of this view. `view/` holds private and sealed files as a plain tree; `pending/` and
  /// `orphans/` hold files that have no name in that tree. It is made when it is missing, and lies on the store's file
  /// system.
  std::string directory;
  /// The absolute path under which jobs see the mount, as far as where_seen does not tell another one.
  std::string mountpoint;
  std::string origin;   ///< "host/mount id"
  uid_t owner_uid = 0;  ///< owner of entries and directories that come from the cluster
  gid_t owner_gid = 0;
  mode_t root_mode = 0755;       ///< mode of the root, set at each mount, and of directories from the cluster
  bool chown_to_caller = false;  ///< new files belong to their maker's user; set when the daemon is root
  Milliseconds quiet_time = defaults::kQuietTime;  ///< layout::SealSign::kQuiet
  Milliseconds fetch_total{20000};                 ///< the longest that one fetch may take while it makes progress
  /// The longest that a lookup waits without progress, over all round trips that it needs; then it is a miss.
  Milliseconds lookup_patience = defaults::kLookupPatience;
  /// The longest that a lookup waits for the kernel, which forgets a name in less than a millisecond (GroupViews).
  Milliseconds forget_wait = kForgetWait;
  /// The longest that a process waits for another one of the cluster that compiles the same graph, and the longest that
  /// one is waited for. 0: nobody waits.
  Milliseconds compile_once{0};
  /// A sealed tuning of this host leaves the view when the cluster shows another one under its name.
  bool cluster_winners = false;
  size_t fetch_threads = 4;
  uint64_t prefetch_bytes =
      defaults::kPrefetchBytes;  ///< of the newest entries, in the background after the mount; 0 disables
  uint64_t artefact_limit = defaults::kLargestArtefact;
  /// What one user but root may have on the local disk; 0: no limit.
  uint64_t user_bytes = defaults::kHalfOfDisk;
  uint64_t user_files = defaults::kUserFiles;
  size_t descriptor_limit = 512;  ///< local files kept open
  /// Asks the kernel whether files are open for writing: once for all of them, and answers in the order of the
  /// questions. It blocks until a deadline of its own, or until the stop token asks it to stop; only one thread calls
  /// it. If there is none, nobody can tell, and files that were written in place stay on this host.
  std::function<std::vector<OpenState>(const std::vector<OpenQuestion>&, const std::stop_token&)> who_writes;
  /// Where the host examines no writers: a file that any program wrote in place is complete when it has been quiet and
  /// nobody has it open for writing. False where all programs are torch and Triton, which give other signs.
  bool quiet_is_complete = true;
  /// Returns the absolute path under which a thread (Caller::pid) sees a path of the mount, for which Triton's group
  /// files are rendered; empty for who_writes' own processes, which are to meet the files themselves. It may block on
  /// nothing but the kernel's own lists. If there is none, everybody sees the mount at `mountpoint`.
  std::function<std::string(pid_t thread, std::string_view path)> where_seen;
  /// Is told what programs ask for and make, by the threads of their requests, before these are answered. It must not
  /// block. If there is none, nobody counts.
  std::function<void(UseNotice&&)> used;
  /// The directories of the mount that are shown at further places (--also), relative to the mount. Where environments
  /// are learned, all programs see each of these directories as one, and each environment has names of its own in it.
  std::vector<std::string> further_places;
  /// Is told when a directory was removed that is called as one of these, wherever. It must not block. If there is
  /// none, nobody is told.
  std::function<void()> place_removed;
  /// The memory in which the node table is recorded for the next worker; it outlives the file system. nullptr: the
  /// table is not recorded.
  const takeover::Region* region = nullptr;
  /// An earlier worker served this mount: the kernel knows the nodes that it recorded, and processes use them.
  bool resume = false;
};

/// What the daemon tells of a file system. Blocks on the local disk. Safe for concurrent use.
class Inspection {
 public:
  virtual ~Inspection() = default;
  /// Explains one path, relative to the mount. Needs no bytes and never fetches.
  [[nodiscard]] virtual Explanation explain(std::string_view path) = 0;
  /// Returns the file with this name, `depth` directories below this one, that was written last of those that lie on
  /// this host, whether they are published or not.
  [[nodiscard]] virtual std::optional<OwnFile> newest_own(const std::string& directory, int depth,
                                                          const std::string& name, uint64_t limit) = 0;
  /// Says whether every directory above this path lets such a user in.
  [[nodiscard]] virtual bool lets_in(std::string_view path, uid_t user, std::span<const gid_t> groups) const = 0;
  [[nodiscard]] virtual FileSystemStatus status() const = 0;
};

/// One mount's file system. It owns the view's local directory and its background threads; it does not own the catalog,
/// the store or the remote. Safe for concurrent use.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// Opens the view. A new mount puts the view in order (pending sets, orphans, files that a host crash may have
  /// torn) and scans for files that have not been sealed; a resumed mount takes over the nodes, and scans later, in the
  /// background. All references must outlive this object. Errors are those of BlobStore::open.
  [[nodiscard]] static Result<std::unique_ptr<FileSystem>> open(const FileSystemOptions& options, const Host& host,
                                                                catalog::Catalog& catalog, store::BlobStore& store,
                                                                remote::Blobs& blobs, remote::Leases& leases,
                                                                Counters& counters);
  /// What belongs to this object, and lives as long.
  [[nodiscard]] virtual Operations operations() = 0;
  [[nodiscard]] virtual Inspection& inspection() = 0;

  /// Starts the background threads. Must be called once, before the first operation.
  virtual void start(KernelCache& kernel) = 0;
  /// Tells a resumed file system, after start(), that the requests of the earlier worker have been answered
  /// (fuse::Session::start); what else that worker left is then finished in the background. Until this call nothing is
  /// sealed, because such a request may have written only a part of its bytes, and sync() waits. Has no effect on a
  /// mount that is not resumed.
  virtual void requests_finished() = 0;
  /// Forbids (`held`) or allows questions to FileSystemOptions::who_writes; such a question keeps the mount busy. When
  /// it forbids them it also ends one that is under way, for which it blocks briefly.
  virtual void hold_questions(bool held) = 0;
  /// Ends the background threads and leaves what is not done to the next start. Idempotent. Before the call the kernel
  /// must have been unmounted, or its requests must have ended.
  virtual void stop() = 0;

  /// Tells that the host's facts have changed: the catalog follows their scopes from now on. Local artefacts whose
  /// scope is no longer their family's leave the view for new lookups; their published entries are shown again when the
  /// facts return. Open files stay. Blocks while it walks the local tree.
  virtual void host_changed() = 0;

  /// Tells that something on this host, perhaps a library, may have changed although the facts have not: artefacts that
  /// were found unfit are checked again at their next use. host_changed() does this too.
  virtual void judge_again() = 0;
  /// Takes selected sealed artefacts, and sets of the cluster with a selected file, out of the view for new lookups.
  /// Open files stay. Returns how many local files went; nothing if `cancelled`, which is asked for each file, ended
  /// the walk. What went stays away. Blocks while it walks the local tree.
  [[nodiscard]] virtual std::optional<uint64_t> purge(const layout::Selection& selection,
                                                      const std::function<bool()>& cancelled) = 0;
  /// The two listeners to hand to Catalog::start.
  virtual void on_catalog_change(const std::vector<std::string>& paths) = 0;
  virtual void on_published(const catalog::PublishReport& report) = 0;

  /// Notes a start of a job for the next one elsewhere: publishes a start list (layout/start_list.h), unless the
  /// cluster has such a one. Returns false when it is to be told again, because artefacts of it are on their way to the
  /// cluster. Blocks on the local disk.
  [[nodiscard]] virtual bool note_start(const JobStart& start) = 0;

  /// Waits until everything that was written is sealed and published. kTimedOut or kUnavailable say what is not
  /// published, and why; kNoSpace says what the store has no room for, once all the rest is published.
  [[nodiscard]] virtual Result<void> sync(Deadline deadline) = 0;
};

}  // namespace inductorfs::vfs
