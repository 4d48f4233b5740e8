// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/remote/remote.h"
#include "inductorfs/store/blob_store.h"

/// What this host knows of the cluster, and what it still has to tell it.
namespace inductorfs::catalog {

/// An entry and the scope that it was published in.
struct Known {
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
    kPlain,        ///< each path on its own, latest wins
    kFirst,        ///< first group under `contest` wins
    kCandidate,    ///< one more candidate under `contest`, unless there is one that the writer had not seen
    kMerge,        ///< entries[0] is merged with the cluster's bytes (layout::merge_system_autotune)
    kFirstOfPath,  ///< one entry; stays local when the cluster has another origin's bytes under its path
  };
  Kind kind = Kind::kPlain;
  remote::ScopeId scope;
  std::vector<codec::Entry> entries;  ///< their blobs are in the store
  std::string contest;                ///< the key directory's canonical path
  std::vector<std::string> seen;      ///< kCandidate: entry paths that the writer was shown before it wrote
};

enum class PublishState { kQueued, kPublished, kKeptLocal, kRefused };

struct PublishReport {
  std::vector<std::string> paths;
  PublishState state = PublishState::kQueued;
  std::string why;  ///< for kKeptLocal and kRefused, and the last error while queued
  /// kMerge: what the cluster has now.
  std::optional<codec::Entry> merged;
};

struct CatalogOptions {
  std::string file;                     ///< SQLite database; made when it is missing
  std::vector<remote::ScopeId> scopes;  ///< what this host follows, as follow() takes it
  std::string origin;                   ///< stamped on what it publishes
  Milliseconds poll_interval{1000};     ///< at most two reads of the log in this time, jittered
  uint64_t queue_limit = 100'000;       ///< groups; the oldest is dropped (kept local) beyond it
  uint64_t candidates_per_key = 8;
  uint64_t entry_limit = 2'000'000;             ///< entries in memory, all scopes
  uint64_t artefact_limit = 512ULL << 20;       ///< larger ones stay local
  Milliseconds renew_interval{24 * 3'600'000};  ///< a blob's use is told to the cluster at most once in it
  Milliseconds renew_pause{60'000};             ///< between two batches of them
  Milliseconds sweep_interval{3'600'000};       ///< between two questions whether a scope is to be swept, jittered
};

struct CatalogStatus {
  uint64_t entries = 0;
  uint64_t hidden = 0;
  uint64_t queued = 0;
  bool synced = false;  ///< every scope has been read to its end at least once since it is followed
  std::string oldest_queued_error;
  std::vector<std::string> queued_paths;  ///< the first 20
};

/// Entries of this host's scopes in memory and in SQLite, minus what was deleted here; one thread follows the cluster's
/// log, one publishes the durable queue. Reads never touch the disk or the network. Safe for concurrent use.
///
/// Only entries are accepted whose path layout::classify() puts into a shared family of the scope that they came in
/// (`scope_accepts`); all others are counted ("catalog.rejected") and dropped. Where two followed scopes hold the same
/// path and both are accepted, the one whose id sorts first is seen, in whatever order they came.
class Catalog {
 public:
  /// Called from the catalog's threads, follow() and forget_unfit() with no lock held, after the change can be seen
  /// through find(): canonical paths that came, changed or went.
  using ChangeListener = std::function<void(const std::vector<std::string>& paths)>;
  using PublishListener = std::function<void(const PublishReport&)>;
  using ScopeAccepts = std::function<bool(const remote::ScopeId&, std::string_view path)>;

  virtual ~Catalog() = default;

  /// Errors: kBusy, kNotSupported (a newer version's file), kNoSpace, kReadOnly. A damaged file is set aside
  /// (`<file>.damaged`), counted, and made anew: all but the publish queue comes again from the cluster.
  [[nodiscard]] static Result<std::unique_ptr<Catalog>> open(const CatalogOptions& options, remote::Remote& remote,
                                                             store::BlobStore& store, ScopeAccepts scope_accepts,
                                                             Counters& counters);

  /// Starts the threads. Requires: called once, after the listeners are known.
  virtual void start(ChangeListener on_change, PublishListener on_publish) = 0;
  /// Ends the threads; what is queued stays queued on disk. Idempotent.
  virtual void stop() = 0;
  /// From now on follows these scopes; `scope_accepts` must know them already, and go on accepting those of before:
  /// what the log says of them may be on its way in. Entries of others can no longer be seen when this returns, and the
  /// listener has been told; those of new ones come soon after, first what the disk still has of them, then as they are
  /// read, and until then `synced` is false. What is queued for a scope that is no longer followed is still published.
  /// What was hidden stays so in every scope, by path and digest. Durable: what is known of scopes that are not
  /// followed any more is kept for their return, within limits.
  virtual void follow(const std::vector<remote::ScopeId>& scopes) = 0;
  /// Waits until every scope has been read once, or the deadline: true when it has. For mount, so that a first job
  /// finds what the cluster has.
  [[nodiscard]] virtual bool wait_synced(Deadline deadline) = 0;

  [[nodiscard]] virtual std::optional<Known> find(std::string_view path) const = 0;
  /// Whether some visible entry lies below this directory.
  [[nodiscard]] virtual bool has_directory(std::string_view directory) const = 0;
  /// Visible children of a directory, in name order; empty when there are none.
  [[nodiscard]] virtual std::vector<Child> list(std::string_view directory) const = 0;
  /// Visible entries directly in a directory: what is prefetched with it.
  [[nodiscard]] virtual std::vector<Known> entries_in(std::string_view directory) const = 0;
  /// All visible entries, newest first, at most `limit`.
  [[nodiscard]] virtual std::vector<Known> newest(size_t limit) const = 0;

  /// Hides this entry, as it is now, from this mount; durable. A later entry of the same path with another digest is
  /// visible again.
  virtual void hide(std::string_view path) = 0;

  /// This host cannot use these bytes under this path: the entry is hidden here, in memory only, and nobody else is
  /// told. Until forget_unfit(), or until the path has other bytes. Nothing when no entry has them.
  virtual void set_unfit(const std::string& path, const codec::Digest& digest, const std::string& why) = 0;
  /// Why the path's entry is hidden by set_unfit(); empty when it is not.
  [[nodiscard]] virtual std::string why_unfit(std::string_view path) const = 0;
  /// What this host can use may be something else now: all of them are seen again, and the listener is told.
  virtual void forget_unfit() = 0;

  /// Durable when it returns success (survives kill -9). Replaces what is queued for exactly the same paths.
  [[nodiscard]] virtual Result<void> enqueue(const Publish& publish) = 0;
  /// Whether groups may be missing from the queue that were acknowledged as queued: the database was begun anew, or
  /// lost its last commits with the host. Durable, until note_queue(true) says that all has been queued again.
  [[nodiscard]] virtual bool queue_may_be_short() const = 0;
  virtual void note_queue(bool whole) = 0;
  [[nodiscard]] virtual std::optional<PublishReport> publish_state(std::string_view path) const = 0;
  /// Waits until the queue is empty. kTimedOut or kUnavailable with what is left and why.
  [[nodiscard]] virtual Result<void> drain(Deadline deadline) = 0;
  /// A job was shown this blob of the cluster: its lifetime there is renewed, soon and without anybody waiting.
  virtual void note_use(const codec::Digest& digest) = 0;
  /// An entry's bytes could not be had or were wrong: hidden here at once, reported to the cluster in the background
  /// unless the failure was only temporary.
  virtual void report_lost(const Known& known) = 0;

  [[nodiscard]] virtual CatalogStatus status() const = 0;
};

}  // namespace inductorfs::catalog
