// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "catalog/tree/hidden_marks.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/remote/index.h"

struct sqlite3;

namespace inductorfs::catalog {

/// The catalog's file: what is known of each scope and up to which position, what is hidden, and what is still to be
/// published. It survives kill -9 at any point (WAL; synchronous=NORMAL). A host crash may lose the last commits, which
/// the cluster tells again or the writer's store still has. It never waits for another process: an flock on
/// `<file>.lock` answers kBusy. Its calls block on the local disk. Needs external synchronisation.
class Database {
 public:
  /// Version history: 1, first.
  static constexpr int64_t kVersion = 1;

  /// Opens the file. kCorrupt when it is not a database, or damaged, or when a read failed with EIO (SQLite's unix VFS,
  /// SQLITE_IOERR_CORRUPTFS): the caller opens it once more, and sets it aside when that finds the same.
  /// kNotSupported when a newer version wrote it. kReadOnly when it cannot be written to.
  enum class Use {
    kShared,   ///< another program may read the file meanwhile, unless its file system copies on write
    kAlone,    ///< needs no room on the disk
    kRead,     ///< of a disk that takes no writes: each write opens it anew, and fails with kReadOnly while it has to
    kSalvage,  ///< of a damaged file: to read what can be read, whatever is damaged
  };
  [[nodiscard]] static Result<Database> open(const std::string& file, std::shared_ptr<Fd> lock, Use use = Use::kShared);
  [[nodiscard]] static Result<std::shared_ptr<Fd>> lock(const std::string& file);
  /// Notes on the file that whoever uses it has found it damaged: the next open() has SQLite check all of it.
  [[nodiscard]] static Result<void> note_damaged(const std::string& file);
  /// Renames the file to `<file>.damaged` (over an older one), together with its log.
  [[nodiscard]] static Result<void> set_aside(const std::string& file);

  // ---- At start

  /// Forgets positions when another release of this program wrote them, because this release may accept entries that
  /// the other one did not.
  [[nodiscard]] Result<void> note_release(std::string_view release);
  /// See Catalog::queue_may_be_short(). It is true for a new file.
  [[nodiscard]] Result<bool> queue_may_be_short();
  [[nodiscard]] Result<void> note_queue(bool whole);
  using MarkReader = std::function<void(std::string_view path, std::string_view raw_digest)>;
  [[nodiscard]] Result<void> read_hidden(const MarkReader& reader);
  struct QueueRow {
    int64_t id = 0;
    std::string payload;
    std::string error;
    uint64_t attempts = 0;
  };
  /// Reads the queue in order of age.
  [[nodiscard]] Result<void> read_queue(const std::function<void(QueueRow)>& reader);

  // ---- Scopes

  /// Records that exactly these scopes are followed from now on.
  [[nodiscard]] Result<void> note_followed(const std::vector<remote::ScopeId>& scopes);
  /// Lists scopes of which something may be kept although they are not among `now`, the latest followed first.
  [[nodiscard]] Result<std::vector<remote::ScopeId>> once_followed(const std::vector<remote::ScopeId>& now);
  /// Forgets a scope whose entries have all been forgotten.
  [[nodiscard]] Result<void> forget_scope(const remote::ScopeId& scope);
  [[nodiscard]] Result<std::optional<remote::Position>> position(const remote::ScopeId& scope);
  /// Forgets the position of a scope, because not everything that it covers is kept.
  [[nodiscard]] Result<void> forget_position(const remote::ScopeId& scope);

  /// Lets SQLite check the whole file; returns up to `limit` lines that say what is damaged.
  [[nodiscard]] Result<std::vector<std::string>> damages(size_t limit);
  [[nodiscard]] Result<std::vector<remote::ScopeId>> scopes_with_entries();

  // ---- Entries

  using EntryReader = std::function<void(std::string_view path, std::string_view value)>;
  /// Reads up to `limit` entries of a scope in order of path, those after `after`; returns how many it read.
  [[nodiscard]] Result<size_t> read_entries(const remote::ScopeId& scope, std::string_view after, size_t limit,
                                            const EntryReader& reader);
  /// Counts the entries of a scope that are kept, up to `limit`.
  [[nodiscard]] Result<uint64_t> count_entries(const remote::ScopeId& scope, uint64_t limit);
  /// Applies changes in one transaction. With `position` the scope is then known up to there.
  [[nodiscard]] Result<void> apply(const remote::ScopeId& scope, std::span<const codec::Entry> set,
                                   std::span<const std::string> removed, const remote::Position* position);
  /// Removes up to `limit` entries of a scope and its position; returns true when none is left.
  [[nodiscard]] Result<bool> forget_some(const remote::ScopeId& scope, size_t limit);

  // ---- Hidden

  /// Marks that the disk does not take are kept, and written with the next change that it takes, or by write_left():
  /// what was deleted would show again otherwise.
  [[nodiscard]] Result<void> hide(std::span<const HiddenMark> marks);
  [[nodiscard]] Result<void> write_left();
  [[nodiscard]] Result<void> drop_marks(std::span<const HiddenMark> marks);

  // ---- Queue

  /// Adds a row, and removes other rows and the marks of what it publishes, in one transaction; returns the new id.
  [[nodiscard]] Result<int64_t> enqueue(int kind, std::string_view payload, std::span<const int64_t> replaced,
                                        std::span<const HiddenMark> shown);
  [[nodiscard]] Result<std::optional<std::string>> queued_payload(int64_t id);
  [[nodiscard]] Result<void> note_failure(int64_t id, std::string_view error, uint64_t attempts);
  [[nodiscard]] Result<void> dequeue(int64_t id);

 private:
  struct Close {
    void operator()(sqlite3* handle) const noexcept;
  };
  Database() = default;
  [[nodiscard]] Result<void> prepare_schema(const std::string& file, Use use);
  [[nodiscard]] Result<void> look(const std::string& file);
  [[nodiscard]] Result<void> prepare_to_write();
  [[nodiscard]] Result<void> in_transaction(const std::function<Result<void>()>& work);
  [[nodiscard]] Result<void> in_one_transaction(const std::function<Result<void>()>& work);
  [[nodiscard]] Result<void> insert_marks(std::span<const HiddenMark> marks);
  void take_back(std::span<const HiddenMark> marks);

  std::shared_ptr<Fd> lock_;
  std::unique_ptr<sqlite3, Close> handle_;
  std::string read_only_;         ///< kRead: the file
  std::vector<HiddenMark> left_;  ///< of hide()
};

}  // namespace inductorfs::catalog
