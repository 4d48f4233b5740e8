// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/defaults.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/layout/layout.h"
#include "inductorfs/layout/selection.h"
#include "inductorfs/remote/index.h"
#include "inductorfs/store/blob_store.h"

/// What this host knows of the cluster, and what it still has to tell the cluster.
namespace inductorfs::catalog {

/// An entry and the scope that it was published in.
struct KnownEntry {
  codec::Entry entry;
  remote::ScopeId scope;
};

struct Child {
  std::string name;
  bool directory = false;
};

/// A group on its way to the cluster.
struct Publish {
  enum class Kind {
    kPlain,        ///< each path on its own; the latest publish wins
    kFirst,        ///< first group under `contest` wins
    kCandidate,    ///< one more candidate under `contest`, unless there is one that the writer was not shown
    kMerge,        ///< entries[0] is merged with the cluster's bytes (layout::merge_system_autotune)
    kFirstOfPath,  ///< one entry; it stays local when the cluster has another origin's bytes under its path
  };
  Kind kind = Kind::kPlain;
  remote::ScopeId scope;
  std::vector<codec::Entry> entries;  ///< their blobs are in the store
  std::string contest;                ///< the key directory's canonical path
  std::vector<std::string> seen{};    ///< kCandidate: entry paths that the writer was shown before it wrote
  std::string root{};                 ///< the cache root in which it was made; what was deleted there is shown again
  bool is_again = false;              ///< nobody has made it anew: what was deleted since stays deleted
};

enum class PublishState { kQueued, kPublished, kKeptLocal, kRefused };

struct PublishReport {
  std::vector<std::string> paths;
  PublishState state = PublishState::kQueued;
  std::string why;  ///< the reason for kKeptLocal and kRefused; the last error while the group is queued
  /// The entry that the cluster has after a kMerge.
  std::optional<codec::Entry> merged;
  /// With kKeptLocal: what the disk of this host kept of the group is damaged. It is to be queued again from those of
  /// its files that are sound.
  bool damaged = false;
};

struct CatalogOptions {
  std::string file;                     ///< SQLite database; made when it is missing
  std::vector<remote::ScopeId> scopes;  ///< the scopes that this host follows, as for Catalog::follow()
  std::string origin;                   ///< the origin of the entries that this host publishes
  Milliseconds poll_interval = defaults::kPollInterval;  ///< the log is read at most twice in this time, jittered
  uint64_t queue_limit = defaults::kQueuedGroups;        ///< groups; beyond it the oldest one is dropped (kept local)
  std::string keeps_local;  ///< why no group is published, for explanations; empty: groups are published
  uint64_t candidates_per_key = 8;
  uint64_t entry_limit = defaults::kEntriesInMemory;     ///< entries in memory, of all scopes together
  uint64_t artefact_limit = defaults::kLargestArtefact;  ///< bytes; larger artefacts stay local
  Milliseconds renew_interval{24 * 3'600'000};  ///< the use of a blob is reported to the cluster at most once in it
  Milliseconds renew_pause{60'000};             ///< the pause between two batches of such reports
  bool is_resumed = false;         ///< jobs have seen the directories: what changed while nobody looked may be anything
  bool awaits_permission = false;  ///< publish only as permit_publishing() allows
  /// Has statements of these entries of a scope written (signing::PublisherSignature::sign), before they are published.
  /// If there is none, they are published unsigned.
  std::function<Result<void>(const remote::ScopeId&, std::span<const codec::Entry>, Deadline)> sign;
  Milliseconds sweep_interval{3'600'000};  ///< how often to ask whether a scope is to be swept, jittered
};

/// Why no entry is shown under a name, or below one that is a directory's.
enum class Absence {
  kNever,    ///< the index has none, and has had none since this worker began
  kRemoved,  ///< the index has none, and had one
  kFrozen,   ///< it has one, and Catalog::freeze() hides it
  kUnread,   ///< the index was not read to its end yet since its scopes are followed
  kDeleted,  ///< Catalog::hide()
  kLost,     ///< Catalog::report_lost()
  kUnfit,    ///< Catalog::set_unfit()
};

struct CatalogStatus {
  uint64_t entries = 0;
  uint64_t hidden = 0;
  uint64_t start_lists = 0;  ///< entries that no root shows by design (layout/start_list.h)
  uint64_t scopes = 0;       ///< that are followed
  uint64_t queued = 0;
  bool frozen = false;   ///< Catalog::freeze()
  bool sending = false;  ///< a group is being published right now, perhaps one that was begun before freeze()
  bool synced = false;   ///< every scope has been read to its end at least once since it was followed
  /// Why followed scopes cannot be read, by their id. A server that is away is no reason of a scope's own.
  std::map<remote::ScopeId, std::string> unread;
  std::string oldest_queued_error;
  std::vector<std::string> queued_paths;  ///< the first 20
};

/// The entries of this host's scopes, in memory and in SQLite, without those that were deleted here. It owns three
/// threads: one follows the cluster's log, one publishes the durable queue, one sweeps scopes. Reads never touch the
/// disk or the network; calls that are durable block on SQLite. Safe for concurrent use.
///
/// An entry is accepted only if layout::classify() puts its path into a shared family of the scope that it came in
/// (`scope_accepts`); all others are counted ("catalog.rejected") and dropped. If two scopes that a cache root shows
/// hold the same path and both entries are accepted, the one whose scope id sorts first is visible there, in whatever
/// order they came.
class Catalog {
 public:
  /// Receives the canonical paths that came, changed or went. It is called from the catalog's threads, from follow()
  /// and from forget_unfit(), with no lock held, after find() shows the change.
  using ChangeListener = std::function<void(const std::vector<std::string>& paths)>;
  using PublishListener = std::function<void(const PublishReport&)>;
  using ScopeAccepts = std::function<bool(const remote::ScopeId&, std::string_view path)>;

  virtual ~Catalog() = default;

  /// Opens the database. Errors: kBusy, kNotSupported (the file of a newer version), kNoSpace, kReadOnly. A damaged
  /// file is set aside (`<file>.damaged`), counted, and made anew: everything but the publish queue comes again from
  /// the cluster. `remote`, `store` and `counters` must outlive this object.
  [[nodiscard]] static Result<std::unique_ptr<Catalog>> open(const CatalogOptions& options, remote::Blobs& blobs,
                                                             remote::Index& index, store::BlobStore& store,
                                                             ScopeAccepts scope_accepts, Counters& counters);

  /// Starts the threads. Must be called once, after the listeners are known.
  virtual void start(ChangeListener on_change, PublishListener on_publish) = 0;
  /// Called once, from any thread, when the database turns out damaged while it is used. enqueue() then may fail with
  /// kUnavailable; the next open() sets the file aside, as one that is damaged. To be set before start().
  virtual void set_damage_listener(std::function<void()> listener) = 0;
  /// Ends the threads; what is queued stays queued on disk. Idempotent.
  virtual void stop() = 0;
  /// Follows exactly these scopes from now on. `scope_accepts` must know them already, and must still accept the
  /// earlier ones, because changes of those may be on their way in. When this returns, entries of scopes that are no
  /// longer followed are invisible and the listener has been told. Entries of new scopes come soon after: first those
  /// that the disk still has, then those that are read from the log; until then `synced` is false. Before start() the
  /// disk is read in this call. Groups that are
  /// queued for a scope that is no longer followed are still published. Hidden entries stay hidden in every scope, by
  /// path and digest. Durable: what is known of scopes that are no longer followed is kept for their return, within
  /// limits.
  virtual void follow(const std::vector<remote::ScopeId>& scopes) = 0;
  /// Shows only these of the followed scopes in a cache root (layout::Name). The scopes of the mountpoint, the empty
  /// root, are also those of each root without scopes of its own; until it has any, such roots show all that is
  /// followed. If the root had scopes of its own before, the canonical paths that came there or went are returned: the
  /// listener is not told, because no other root is concerned, and because a request may wait for the caller. Not
  /// durable.
  virtual std::vector<std::string> show(const std::string& root, const std::vector<remote::ScopeId>& scopes) = 0;
  /// Ends show() for a root, which is not the mountpoint, and whose names nobody knows.
  virtual void forget_shown(std::string_view root) = 0;
  /// Waits until every scope has been read once, and returns true; returns false at the deadline. The mount calls it so
  /// that a first job finds what the cluster has.
  [[nodiscard]] virtual bool wait_synced(Deadline deadline) = 0;

  [[nodiscard]] virtual std::optional<KnownEntry> find(const layout::Name& name) const = 0;
  /// Says whether the index has an entry here that the root would show if nothing were hidden; also while frozen.
  [[nodiscard]] virtual bool knows(const layout::Name& name) const = 0;
  /// Says whether some visible entry lies below this directory.
  [[nodiscard]] virtual bool has_directory(const layout::Name& directory) const = 0;
  /// Lists the visible children of a directory in name order; the list is empty when there are none.
  [[nodiscard]] virtual std::vector<Child> list(const layout::Name& directory) const = 0;
  /// Lists the visible entries directly in a directory: those that are prefetched with it.
  [[nodiscard]] virtual std::vector<KnownEntry> entries_in(const layout::Name& directory) const = 0;
  /// Returns when names that some root may show in this directory came or went last, in nanoseconds since 1970: another
  /// time after each such change. Empty where nothing of the cluster is.
  [[nodiscard]] virtual std::optional<int64_t> names_changed(const layout::Name& directory) const = 0;
  /// Finds the start list for this key (layout/start_list.h) in the root's scopes. The other calls show no such list.
  [[nodiscard]] virtual std::optional<KnownEntry> start_list(const std::string& root, std::string_view key) const = 0;
  /// Lists the visible entries of all roots, newest first, at most `limit`.
  [[nodiscard]] virtual std::vector<KnownEntry> newest(size_t limit) const = 0;

  /// Hides the current entry of this path in its root; durable. A later entry of the same path with another digest is
  /// visible again. With a file of a Triton set its whole set is hidden, and a later set is visible when one of its
  /// files has another digest.
  virtual void hide(const layout::Name& name) = 0;
  /// Shows all again that was hidden in this root and in the roots below it, which have been removed; durable. `root`
  /// is not empty.
  virtual void forget_hidden(std::string_view root) = 0;

  /// Hides an entry whose bytes this host cannot use under this path. It is hidden here, in memory only, and nobody
  /// else is told. It stays hidden until forget_unfit(), or until the path has other bytes. No effect when no entry has
  /// these bytes.
  virtual void set_unfit(const std::string& path, const codec::Digest& digest, const std::string& why) = 0;
  /// Returns why the entry that the root would show there, or below, is hidden by set_unfit(); empty when none is.
  [[nodiscard]] virtual std::string why_unfit(const layout::Name& name) const = 0;
  /// Says why there is none, when nothing is shown there. Of several reasons the first that is found.
  [[nodiscard]] virtual Absence why_absent(const layout::Name& name) const = 0;
  /// Shows all unfit entries again, because this host may be able to use other bytes now, and tells the listener.
  virtual void forget_unfit() = 0;

  /// Queues a group. It is durable when this returns success: it survives kill -9. It replaces what is queued for
  /// exactly the same paths. A damaged database is no verdict about the group: kUnavailable.
  [[nodiscard]] virtual Result<void> enqueue(const Publish& publish) = 0;
  /// Says whether groups may be missing from the queue although enqueue() acknowledged them: the database was begun
  /// anew, or lost its last commits in a host crash; or the cluster has lost what was published, see lost_tails().
  /// Durable, until note_queue(true) says that everything has been queued again.
  [[nodiscard]] virtual bool queue_may_be_short() const = 0;
  virtual void note_queue(bool whole) = 0;
  /// Returns how often the cluster may have lost the end of what it had acknowledged: its history began anew, or
  /// another server has taken the place of the last one. What this host has made is in the index then, or has to be
  /// queued again; wait_synced() tells when the index is known again.
  [[nodiscard]] virtual uint64_t lost_tails() const = 0;
  /// Has every scope read again; the ticket for wait_read_again(). Does not block.
  virtual uint64_t read_again() = 0;
  /// Waits until that is done: lost_tails() then tells of all that the server lost before the ticket was taken, also of
  /// one that came back with less a moment ago. kTimedOut when it does not answer. A scope whose answer nobody can read
  /// (CatalogStatus::unread) counts as read.
  [[nodiscard]] virtual Result<void> wait_read_again(uint64_t ticket, Deadline deadline) = 0;
  [[nodiscard]] virtual std::optional<PublishReport> publish_state(std::string_view path) const = 0;
  /// Waits until the queue is empty. kTimedOut or kUnavailable say what is left, and why.
  [[nodiscard]] virtual Result<void> drain(Deadline deadline) = 0;
  /// Notes that a job was shown this blob of the cluster: the blob's lifetime there is renewed soon, in the background.
  virtual void note_use(const codec::Digest& digest) = 0;
  /// Notes that an entry's bytes could not be had or were wrong: the entry is hidden here at once, and reported to the
  /// cluster in the background unless the failure was only temporary.
  virtual void report_lost(const KnownEntry& known) = 0;

  /// While frozen, find() and the calls like it show nothing, nothing is published or reported, and drain() answers
  /// kUnavailable at once; the queue keeps its groups. The listener, if there is one, has been told all paths when this
  /// returns. Not durable.
  virtual void freeze(bool frozen) = 0;
  [[nodiscard]] virtual bool frozen() const = 0;
  /// With CatalogOptions::awaits_permission: the queue may be published until then. Whoever permits it has heard the
  /// orders that concern the queue.
  virtual void permit_publishing(SteadyTime until) = 0;
  /// Takes the queued groups that have a selected entry out of the queue for good; durable. Returns false when such a
  /// group is being published right now, the disk refuses, or `cancelled` answers true: the caller tries again.
  [[nodiscard]] virtual bool drop_queued(const layout::Selection& selection,
                                         const std::function<bool()>& cancelled) = 0;

  [[nodiscard]] virtual CatalogStatus status() const = 0;
};

}  // namespace inductorfs::catalog
