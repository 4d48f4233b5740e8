// SPDX-License-Identifier: Apache-2.0
// Keeps the index of a scope from outliving its blobs, and from being full for good.
#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "remote/formats/group.h"
#include "remote/formats/hash_scan.h"
#include "remote/formats/keys.h"
#include "remote/formats/scripts.h"
#include "remote/operations/blob_shelf.h"
#include "remote/operations/index_remover.h"
#include "remote/operations/redis_operations.h"

namespace inductorfs::remote {
namespace {

using redis::Reply;

/// Entries that one sweep removes beyond the limit; the next one goes on.
constexpr size_t kUnusedMost = 50'000;
/// An index is nearly full when less than a twentieth of the limit is left; then a tenth is made free.
constexpr uint64_t kNearlyFull = 20;
constexpr uint64_t kMadeFree = 10;
/// The sweeper's key between two sweeps.
constexpr std::string_view kRested = "rested";

using Item = IndexItem;

/// The digest of an entry, unless another release wrote it, which alone knows where its digest is.
std::optional<codec::Digest> digest_to_sweep(const std::string& path, const std::string& value) {
  const auto entry = codec::decode_entry(path, value);
  if (!entry && entry.error().code() == ErrorCode::kNotSupported) return std::nullopt;
  return codec::Digest::from_raw(stored_digest(value));  // of a damaged one, too
}

struct UsedLater {
  bool operator()(const Item& a, const Item& b) const { return a.left < b.left; }
};

/// One sweep of one scope. Confined to the calling thread.
class Sweep {
 public:
  Sweep(RedisClient& session, const ScopeId& scope, Deadline deadline)
      : session_(session),
        keys_(session.options().prefix, scope),
        deadline_(deadline),
        remover_(session, keys_, keys_.sweeper) {}

  Result<SweepReport> run(bool wanted) {
    INDUCTORFS_TRY(talk([&](Conversation& channel) { return begin(channel, wanted); }));
    if (!report_.ours) return report_;
    INDUCTORFS_TRY(scan_hash(session_, keys_.index, deadline_,
                             {[this] { begin_pass(); },
                              [this](const std::vector<Reply>& page) {
                                return talk([&](Conversation& channel) { return sweep_page(channel, page); });
                              }}));
    INDUCTORFS_TRY(remove_unused());
    // Whatever others have put in its place, the scope is swept: else every mount would begin anew each hour.
    (void)scan_hash(session_, keys_.covered, deadline_,
                    {[] {},
                     [this](const std::vector<Reply>& page) {
                       return talk([&](Conversation& channel) { return uncover(channel, page); });
                     }});
    INDUCTORFS_TRY(talk([&](Conversation& channel) { return rest(channel); }));
    return report_;
  }

 private:
  using Talk = RedisClient::Talk;
  Result<void> talk(const Talk& what) { return session_.run(Use::kControl, deadline_, what); }

  Result<void> begin(Conversation& channel, bool wanted) {
    const std::string lease = std::to_string(IndexRemover::kLease.count());
    const redis::Command claim = {"SET", keys_.sweeper, remover_.token(), "NX", "GET", "PX", lease};
    auto reply = channel.call(claim);
    if (!reply) return fail(std::move(reply).error());
    if (wanted && reply->kind == Reply::Kind::kString && reply->text == kRested) {
      INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all({{"UNLINK", keys_.sweeper}, claim}));
      reply = std::move(replies.back());
    }
    // An error: this user may only read, and leaves it to others.
    report_.ours = reply->kind == Reply::Kind::kNil;
    if (!report_.ours) return {};
    INDUCTORFS_TRY_ASSIGN(auto entries, channel.call({"HLEN", keys_.index}));
    const auto held = static_cast<uint64_t>(entries.integer);
    const uint64_t limit = session_.options().index_limit;
    const uint64_t target = limit - limit / kMadeFree;
    if (held + limit / kNearlyFull >= limit && held > target) too_many_ = std::min(held - target, kUnusedMost);
    return {};
  }

  /// What has gone stays counted: it does not come again.
  void begin_pass() {
    report_.looked_at = report_.gone;
    report_.unknown = 0;
    unused_ = {};
  }

  Result<void> sweep_page(Conversation& channel, const std::vector<Reply>& fields) {
    std::vector<Item> items;
    for (size_t i = 0; i + 1 < fields.size(); i += 2) {
      const auto digest = digest_to_sweep(fields[i].text, fields[i + 1].text);
      const bool usable = digest && codec::is_clean_path(fields[i].text);
      if (usable) items.push_back({fields[i].text, *digest});
      if (!usable) ++report_.unknown;
    }
    report_.looked_at += items.size();
    auto gone = take_gone(channel, items);
    if (!gone) return fail(std::move(gone).error());
    for (Item& item : items) note_use(std::move(item));
    // Once more: what was sent again meanwhile stays.
    std::vector<Item> again = std::move(*gone);
    gone = take_gone(channel, again);
    if (!gone) return fail(std::move(gone).error());
    return remover_.remove(channel, *gone, report_.gone);
  }

  // Takes those out of `items` whose blobs the server has not; the others get what they have left.
  Result<std::vector<Item>> take_gone(Conversation& channel, std::vector<Item>& items) {
    std::vector<Item> gone;
    if (items.empty()) return gone;
    std::vector<codec::Digest> digests;
    for (const Item& item : items) digests.push_back(item.digest);
    BlobShelf shelf(session_, channel, std::move(digests), BlobShelf::Renew::kNo);
    INDUCTORFS_TRY(shelf.look());
    for (size_t i = 0; i < items.size(); ++i) items[i].left = shelf.left()[i];
    const std::set<codec::Digest> missing(shelf.missing().begin(), shelf.missing().end());
    const auto is_gone = [&](const Item& item) { return missing.contains(item.digest); };
    std::ranges::copy_if(items, std::back_inserter(gone), is_gone);
    std::erase_if(items, is_gone);
    return gone;
  }

  void note_use(Item item) {
    if (too_many_ == 0) return;
    unused_.push(std::move(item));
    if (unused_.size() > too_many_) unused_.pop();
  }

  Result<void> remove_unused() {
    std::vector<Item> items;
    for (; !unused_.empty(); unused_.pop()) items.push_back(unused_.top());
    // What went because its blob is gone has made room as well.
    const uint64_t need = too_many_ > report_.gone ? too_many_ - report_.gone : 0;
    std::ranges::reverse(items);  // the least recently used first
    if (items.size() > need) items.resize(need);
    if (items.empty()) return {};
    INDUCTORFS_TRY(add_groups(items));
    return talk([&](Conversation& channel) { return remover_.remove(channel, items, report_.unused); });
  }

  // A group is of use as a whole only: of those that lose a file the others go too.
  Result<void> add_groups(std::vector<Item>& items) {
    std::set<std::string> groups;
    INDUCTORFS_TRY(talk([&](Conversation& channel) { return groups_of(channel, items, groups); }));
    if (groups.empty()) return {};
    std::set<std::string> chosen;
    std::set<std::string> others;
    for (const Item& item : items) chosen.insert(item.path);
    const auto note = [&](const std::vector<Reply>& fields) -> Result<void> {
      for (size_t i = 0; i + 1 < fields.size() && others.size() < kUnusedMost; i += 2) {
        const std::string& path = fields[i].text;
        const bool is_path = !path.starts_with('/');
        if (is_path && groups.contains(fields[i + 1].text) && !chosen.contains(path)) others.insert(path);
      }
      return {};
    };
    INDUCTORFS_TRY(scan_hash(session_, keys_.owners, deadline_, {[] {}, note}));
    return talk([&](Conversation& channel) -> Result<void> {
      for (const std::string& path : others) {
        INDUCTORFS_TRY_ASSIGN(auto value, channel.call({"HGET", keys_.index, path}));
        const auto digest = digest_to_sweep(path, value.text);
        if (digest) items.push_back({path, *digest});
      }
      return {};
    });
  }

  Result<void> groups_of(Conversation& channel, std::span<const Item> items, std::set<std::string>& groups) {
    for (size_t at = 0; at < items.size(); at += kRemovedAtOnce) {
      redis::Command command = {"HMGET", keys_.owners};
      for (const Item& item : items.subspan(at, std::min(items.size() - at, kRemovedAtOnce))) {
        command.push_back(item.path);
      }
      INDUCTORFS_TRY_ASSIGN(const auto owners, channel.call(command));
      for (const Reply& owner : owners.items) {
        if (owner.kind == Reply::Kind::kString) groups.insert(owner.text);
      }
    }
    return {};
  }

  // What a statement covers that has ended is covered by nothing. One that is written meanwhile has another id, or is
  // there at the second look.
  Result<void> uncover(Conversation& channel, const std::vector<Reply>& fields) {
    std::map<std::string, bool> gone;  // by id
    for (size_t i = 1; i < fields.size(); i += 2) gone.emplace(fields[i].text, false);
    if (gone.empty()) return {};
    std::deque<std::string> statements;  // the commands have views of them
    std::vector<redis::Command> looks;
    for (const auto& [id, _] : gone) looks.push_back({"EXISTS", statements.emplace_back(keys_.statement(id))});
    INDUCTORFS_TRY_ASSIGN(const auto found, channel.call_all(looks));
    size_t at = 0;
    for (auto& [_, is_gone] : gone) {
      is_gone = found[at].kind == Reply::Kind::kInteger && found[at].integer == 0;
      ++at;
    }
    std::vector<redis::Command> removals;
    for (size_t i = 0; i + 1 < fields.size(); i += 2) {
      const std::string& id = fields[i + 1].text;
      if (!gone[id]) continue;
      removals.push_back({"EVAL", uncover_script(), "2", keys_.covered, statements.emplace_back(keys_.statement(id)),
                          fields[i].text, id});
    }
    INDUCTORFS_TRY_ASSIGN(const auto replies, channel.call_all(removals));
    for (const Reply& reply : replies) report_.uncovered += reply.integer == 1 ? 1 : 0;
    return remover_.hold(channel);
  }

  // Nobody needs to come again before a day has passed, unless there is more to remove.
  Result<void> rest(Conversation& channel) {
    if (report_.unused >= kUnusedMost) return talk_done(channel.call({"UNLINK", keys_.sweeper}));
    const auto day = std::chrono::duration_cast<Milliseconds>(session_.options().blob_lifetime) / kRenewalsPerLifetime;
    const std::string lease = std::to_string(std::max(day, Milliseconds(1)).count());
    INDUCTORFS_TRY(remover_.hold(channel));
    // Here, and not in each heartbeat: who may set the lifetime of orders could end them.
    const NodeKeys nodes(session_.options().prefix);
    const Lifetime lifetime = Lifetime::of_scopes(session_.options());
    INDUCTORFS_TRY(talk_done(channel.call({"PEXPIRE", nodes.orders, lifetime.text})));
    return talk_done(channel.call({"SET", keys_.sweeper, kRested, "PX", lease}));
  }

  static Result<void> talk_done(Result<Reply> reply) { return reply ? Result<void>() : fail(std::move(reply).error()); }

  RedisClient& session_;
  const ScopeKeys keys_;
  const Deadline deadline_;
  IndexRemover remover_;
  SweepReport report_;
  uint64_t too_many_ = 0;  ///< how many have to go beyond the limit
  std::priority_queue<Item, std::vector<Item>, UsedLater> unused_;
};

}  // namespace

Result<SweepReport> RedisRemote::sweep(const ScopeId& scope, bool wanted, Deadline deadline) {
  if (session_.options().read_only) return SweepReport{};
  INDUCTORFS_TRY(check_scope(scope));
  auto report = Sweep(session_, scope, deadline).run(wanted);
  if (!report || !report->ours) return report;
  session_.counters().get("remote.swept_entries").add(report->looked_at);
  session_.counters().get("remote.swept_unknown").add(report->unknown);
  session_.counters().get("remote.swept_gone").add(report->gone);
  session_.counters().get("remote.swept_unused").add(report->unused);
  return report;
}

}  // namespace inductorfs::remote
