// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "inductorfs/base/log.h"
#include "remote/formats/group.h"
#include "remote/formats/hash_scan.h"
#include "remote/formats/head.h"
#include "remote/formats/keys.h"
#include "remote/operations/redis_operations.h"

// A snapshot and a tail that agree although others write meanwhile, although the log is
// trimmed, and although a failover may have lost the end of the history.
namespace inductorfs::remote {
namespace {

using redis::Reply;

constexpr uint64_t kScanCount = 1000;  // HGETALL would stall the server for 0.8 s at a million entries
/// Entries of an index that is read rather than a long log: they come well within any caller's deadline.
constexpr uint64_t kEntriesAtOnce = 10'000;
constexpr int kBootstrapAttempts = 5;
/// A server runs a pipeline that came in one packet without a break: even the second attempt is rare.
constexpr int kMomentAttempts = 20;
/// Damaged entries that one read of an index has removed; the next one finds the others.
constexpr size_t kDamagedAtOnce = 16;
constexpr int kSecondsBetweenSkips = 600;

struct Record {
  uint64_t generation = 0;
  std::string before;
  std::string nonce;
  std::string bytes;
};

struct Step {
  Head head;
  uint64_t entries = 0;
  std::vector<Record> records;
};

tl::unexpected<Error> unexpected_reply(const Reply& reply) { return fail(redis::to_error(reply)); }

Result<Record> record_of(const Reply& item) {
  const auto bad = [] { return fail(ErrorCode::kCorrupt, "a record of the log has not the form of one"); };
  if (item.items.size() != 2) return bad();
  const std::string& id = item.items[0].text;
  const size_t dash = id.find('-');
  const auto generation = to_generation(std::string_view(id).substr(0, dash));
  if (!generation || dash == std::string::npos) return bad();
  Record record;
  record.generation = *generation;
  const std::vector<Reply>& fields = item.items[1].items;
  for (size_t i = 0; i + 1 < fields.size(); i += 2) {
    if (fields[i].text == "p") record.before = fields[i + 1].text;
    if (fields[i].text == "n") record.nonce = fields[i + 1].text;
    if (fields[i].text == "r") record.bytes = fields[i + 1].text;
  }
  return record;
}

// XREAD's answer for one stream: nil when there is nothing, else [[key, [[id, [field, value, ...]], ...]]].
Result<std::vector<Record>> records_of(const Reply& reply) {
  std::vector<Record> records;
  if (reply.kind == Reply::Kind::kNil) return records;
  if (reply.kind != Reply::Kind::kArray || reply.items.size() != 1 || reply.items[0].items.size() != 2) {
    return unexpected_reply(reply);
  }
  for (const Reply& item : reply.items[0].items[1].items) {
    INDUCTORFS_TRY_ASSIGN(auto record, record_of(item));
    records.push_back(std::move(record));
  }
  return records;
}

/// What was asked for and the head that it belongs to.
struct Moment {
  Head head;
  std::vector<Reply> replies;
};

struct Damaged {
  std::string path;
  codec::Digest digest;
};

/// Reads one scope. Confined to the calling thread.
class ScopeReader {
 public:
  ScopeReader(RedisClient& session, Rereads& rereads, const ScopeId& scope, Conversation& channel)
      : session_(session),
        rereads_(rereads),
        scope_(scope),
        keys_(session.options().prefix, scope),
        channel_(channel) {}

  Result<Delta> read(const Position& from) {
    // Most scopes of a new mount have no history: that takes one round trip, for all that may tell one is asked for.
    const bool is_new = from == Position{};
    without_meta_ = is_new;
    INDUCTORFS_TRY_ASSIGN(auto step, read_step(from.generation));
    if (is_new) without_meta_ = false;  // where it is missing, the next look finds out again
    if (step.entries > session_.options().index_limit) return too_large();
    entries_ = step.entries;
    if (!step.head.exists) return Delta{from != Position{}, {}, {}, {}, true};
    DeltaFold fold;
    Position position = from;
    // A page of the index has more than a step of the log. A large index is left to those who have the time for it.
    const bool is_far =
        is_new && step.head.position.generation > kRecordsPerRead && step.entries > 0 && step.entries <= kEntriesAtOnce;
    const bool goes_on = !is_far && (step.head.position == from || follows(step, position, fold));
    const bool again = goes_on && rereads_.claim(scope_, std::chrono::steady_clock::now());
    if (goes_on && !again) {
      const bool at_head = position == step.head.position;
      Delta delta = std::move(fold).finish(false, std::move(position));
      delta.at_head = at_head;
      return delta;
    }
    auto whole = snapshot();
    if (!whole && again) rereads_.owe(scope_);
    return whole;
  }

  /// Entries of the index that nobody can read, not those of a newer version.
  [[nodiscard]] const std::vector<Damaged>& damaged() const { return damaged_; }

 private:
  Result<Delta> snapshot() {
    session_.counters().get("remote.resyncs").add();
    for (int i = 0; i < kBootstrapAttempts; ++i) {
      INDUCTORFS_TRY_ASSIGN(auto delta, bootstrap());
      if (delta) return std::move(*delta);
    }
    return fail(ErrorCode::kUnavailable, "scope " + scope_ + " changed its history while it was read");
  }

  /// Another release can read it: to read the whole index anew for each of its records would tell no more of them.
  void skip(const Record& record, const Error& why) {
    rereads_.owe(scope_);
    session_.counters().get("remote.skipped_records").add();
    log::write_limited(log::Level::kWarning, "remote.record_skipped",
                       {{"scope", scope_}, {"generation", record.generation}, {"why", why.to_string()}},
                       kSecondsBetweenSkips);
  }

  void note_damaged(const std::string& path, std::string_view value, const Error& error) {
    const auto digest = codec::Digest::from_raw(stored_digest(value));
    if (error.code() != ErrorCode::kCorrupt || !digest || damaged_.size() == kDamagedAtOnce) return;
    damaged_.push_back({path, *digest});
  }

  // What tells the head.
  [[nodiscard]] std::vector<redis::Command> look() const {
    std::vector<redis::Command> commands = {{"HMGET", keys_.meta, "gen", "nonce"}};
    if (without_meta_) std::ranges::move(look_without_meta(keys_), std::back_inserter(commands));
    return commands;
  }

  Result<Head> head_in(std::span<const Reply> looked) const {
    auto head = head_of(looked.front());
    return head && !head->exists && without_meta_ ? head_without_meta(looked[1], looked[2]) : head;
  }

  // The commands between two looks at the head: when both are equal nothing was published in between, for each publish
  // draws a new nonce. Not MULTI: a server over its maxmemory refuses to queue any command, reads too (redis
  // server.c, processCommand: reject_cmd_on_oom), and reading must go on then.
  Result<Moment> at_one_moment(const std::vector<redis::Command>& commands) {
    for (int i = 0; i < kMomentAttempts; ++i) {
      const std::vector<redis::Command> looked = look();
      std::vector<redis::Command> all = looked;
      all.insert(all.end(), commands.begin(), commands.end());
      all.insert(all.end(), looked.begin(), looked.end());
      INDUCTORFS_TRY_ASSIGN(auto replies, channel_.call_all(all));
      INDUCTORFS_TRY_ASSIGN(const auto before, head_in(std::span(replies).first(looked.size())));
      INDUCTORFS_TRY_ASSIGN(auto after, head_in(std::span(replies).last(looked.size())));
      const auto first = replies.begin() + static_cast<ptrdiff_t>(looked.size());
      const auto end = replies.end() - static_cast<ptrdiff_t>(looked.size());
      for (const Reply& reply : std::span(first, end)) {
        if (reply.is_error()) return unexpected_reply(reply);
      }
      if (before.exists != after.exists || before.position != after.position) continue;
      if (!after.exists && !std::exchange(without_meta_, true)) continue;  // the index alone may be there
      return Moment{std::move(after), {std::make_move_iterator(first), std::make_move_iterator(end)}};
    }
    return fail(ErrorCode::kUnavailable, "the scope changes faster than it can be read");
  }

  tl::unexpected<Error> too_large() const {
    return fail(ErrorCode::kTooLarge, "scope " + scope_ + " holds more than index_limit = " +
                                          std::to_string(session_.options().index_limit) + " entries");
  }

  Result<Step> read_step(uint64_t generation) {
    const std::string count = std::to_string(kRecordsPerRead);
    const std::string after = std::to_string(generation) + "-0";
    INDUCTORFS_TRY_ASSIGN(
        auto moment, at_one_moment({{"XREAD", "COUNT", count, "STREAMS", keys_.log, after}, {"HLEN", keys_.index}}));
    Step step;
    step.head = std::move(moment.head);
    step.entries = static_cast<uint64_t>(moment.replies[1].integer);
    // A record that cannot be read breaks the chain like one that is missing: the index has the truth.
    if (auto records = records_of(moment.replies[0])) step.records = std::move(*records);
    return step;
  }

  // Applies the records to `fold` and moves `position`; false when they are not the history that continues there.
  bool follows(Step& step, Position& position, DeltaFold& fold) {
    if (step.records.empty() || step.head.position.generation <= position.generation) return false;
    for (Record& record : step.records) {
      if (record.generation != position.generation + 1 || record.before != position.nonce) return false;
      auto changes = codec::decode_record(record.bytes);
      if (!changes && changes.error().code() != ErrorCode::kNotSupported) return false;
      if (changes) {
        fold.apply(std::move(*changes));
      } else {
        skip(record, changes.error());
      }
      position = {record.generation, std::move(record.nonce)};
    }
    session_.counters().get("remote.records").add(step.records.size());
    if (position.generation == step.head.position.generation) return position == step.head.position;
    return position.generation < step.head.position.generation;
  }

  // A whole snapshot; nothing when the history changed under it.
  Result<std::optional<Delta>> bootstrap() {
    heads_.clear();
    unreadable_ = damage_ = 0;
    INDUCTORFS_TRY_ASSIGN(auto first, at_one_moment({}));
    if (!first.head.exists) return std::optional(Delta{true, {}, {}, {}, true});
    Position position = first.head.position;
    heads_[position.generation] = position.nonce;
    DeltaFold fold;
    fold.expect(entries_);
    INDUCTORFS_TRY_ASSIGN(auto scanned, scan(fold));
    if (!scanned || heads_.begin()->first < position.generation) return std::optional<Delta>();
    INDUCTORFS_TRY_ASSIGN(auto replayed, replay(position, fold));
    if (!replayed) return std::optional<Delta>();
    Delta delta = std::move(fold).finish(true, std::move(position));
    delta.at_head = at_head_;
    if (!rereads_.note_whole(scope_, unreadable_, damage_))
      damaged_.clear();  // the next reading says so, too, or does not
    return std::optional(std::move(delta));
  }

  // False: a head was seen that contradicts another.
  Result<bool> scan(DeltaFold& fold) {
    std::string cursor = "0";
    Counter& bad = session_.counters().get("remote.bad_entries");
    const std::string count = std::to_string(kScanCount);
    ScanLimit limit(entries_, kScanCount);
    do {
      INDUCTORFS_TRY(limit.next());
      INDUCTORFS_TRY_ASSIGN(auto moment, at_one_moment({{"HSCAN", keys_.index, cursor, "COUNT", count}}));
      const Position& head = moment.head.position;
      if (!moment.head.exists) return false;
      const auto [seen, added] = heads_.try_emplace(head.generation, head.nonce);
      if (!added && seen->second != head.nonce) return false;
      Reply& page = moment.replies[0];
      if (page.items.size() != 2) return unexpected_reply(page);
      std::vector<Reply>& fields = page.items[1].items;
      for (size_t i = 0; i + 1 < fields.size(); i += 2) {
        auto entry = codec::decode_entry(fields[i].text, fields[i + 1].text);
        if (!entry) {
          bad.add();
          const size_t which = std::hash<std::string>()(fields[i].text + '/' + fields[i + 1].text);
          unreadable_ ^= which;
          if (entry.error().code() == ErrorCode::kCorrupt) damage_ ^= which;
          note_damaged(fields[i].text, fields[i + 1].text, entry.error());
          continue;
        }
        fold.set(std::move(*entry));
      }
      if (fold.size() > session_.options().index_limit) return too_large();
      cursor = page.items[0].text;
    } while (cursor != "0");
    return true;
  }

  // From the head before the scan to past the last one seen. The log must hold each head that was seen: else what the
  // scan found may be of a history that a failover has undone (a "ghost" that nobody would ever remove).
  Result<bool> replay(Position& position, DeltaFold& fold) {
    at_head_ = true;
    while (position.generation < heads_.rbegin()->first) {
      INDUCTORFS_TRY_ASSIGN(auto step, read_step(position.generation));
      if (!step.head.exists) return false;
      for (const Record& record : step.records) {
        const auto seen = heads_.find(record.generation);
        if (seen != heads_.end() && seen->second != record.nonce) return false;
      }
      if (!follows(step, position, fold)) return false;
      at_head_ = position == step.head.position;
    }
    return true;
  }

  RedisClient& session_;
  Rereads& rereads_;
  const ScopeId& scope_;
  const ScopeKeys keys_;
  Conversation& channel_;
  bool without_meta_ = false;              // meta was not there: the head may be told without it
  std::map<uint64_t, std::string> heads_;  // what each generation's nonce was when it was seen
  bool at_head_ = false;                   // replay() came to the head that it saw last
  std::vector<Damaged> damaged_;
  uint64_t unreadable_ = 0;  // a hash of the entries that the scan could not read
  uint64_t damage_ = 0;      // of those of them that no release can read
  uint64_t entries_ = 0;     // of the index, when the log was read
};

}  // namespace

Result<Delta> RedisRemote::read_changes(const ScopeId& scope, const Position& from, Deadline deadline) {
  INDUCTORFS_TRY(check_scope(scope));
  Delta delta;
  std::vector<Damaged> damaged;
  // At one server: the cursor of a scan means nothing to another one.
  const ScopeKeys keys(session_.options().prefix, scope);
  INDUCTORFS_TRY(session_.run_at(keys.index, Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    ScopeReader reader(session_, shared_->rereads, scope, channel);
    INDUCTORFS_TRY_ASSIGN(auto read, reader.read(from));
    delta = std::move(read);
    damaged = reader.damaged();
    return {};
  }));
  for (const Damaged& entry : damaged) {
    // Of a contest it would keep its place for ever, and nobody could publish the key again. What this user may not do
    // another one may.
    (void)report_lost(scope, entry.path, entry.digest, deadline);
  }
  if (delta.at_head) shared_->heads.confirm(scope, delta.position);
  if (delta.position != Position{}) keep({scope}, deadline);  // else there is nothing to keep
  announce_again(scope, deadline);
  return delta;
}

}  // namespace inductorfs::remote
