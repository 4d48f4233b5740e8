// SPDX-License-Identifier: Apache-2.0
// Removes what an operator selects.
#include <utility>

#include "remote/formats/group.h"
#include "remote/formats/hash_scan.h"
#include "remote/formats/keys.h"
#include "remote/formats/piece.h"
#include "remote/operations/index_remover.h"
#include "remote/operations/redis_operations.h"

namespace inductorfs::remote {
namespace {

using redis::Reply;
using Selects = std::function<bool(const codec::Entry&)>;

/// One purge of one scope. Confined to the calling thread.
class Purge {
 public:
  Purge(RedisClient& session, const ScopeId& scope, const Selects& selects, bool dry_run, Deadline deadline)
      : session_(session),
        keys_(session.options().prefix, scope),
        selects_(selects),
        dry_run_(dry_run),
        deadline_(deadline),
        // A fence of its own: two purges, or a purge and a sweep, do each other no harm, because what is removed has
        // to have the digest that was read.
        remover_(session, keys_, keys_.purging(random_nonce())) {}

  Result<PurgeReport> run() {
    if (!dry_run_) INDUCTORFS_TRY(talk([&](Conversation& channel) { return begin(channel); }));
    INDUCTORFS_TRY(scan_hash(session_, keys_.index, deadline_,
                             {[this] { begin_pass(); }, [this](const auto& page) { return purge_page(page); }}));
    if (!dry_run_) INDUCTORFS_TRY(talk([&](Conversation& channel) { return end(channel); }));
    return report_;
  }

 private:
  Result<void> talk(const RedisClient::Talk& what) { return session_.run(Use::kControl, deadline_, what); }

  Result<void> begin(Conversation& channel) {
    const std::string lease = std::to_string(IndexRemover::kLease.count());
    INDUCTORFS_TRY_ASSIGN(auto reply, channel.call({"SET", remover_.fence(), remover_.token(), "PX", lease}));
    return reply.is_error() ? fail(redis::to_error(reply)) : Result<void>();
  }
  Result<void> end(Conversation& channel) {
    const auto reply = channel.call({"UNLINK", remover_.fence()});
    return reply ? Result<void>() : fail(reply.error());
  }

  /// What was removed stays counted: it does not come again.
  void begin_pass() {
    if (dry_run_) report_ = {};
    report_.looked_at = report_.removed;
    report_.unknown = 0;
  }

  Result<void> purge_page(const std::vector<Reply>& fields) {
    std::vector<IndexItem> items;
    uint64_t bytes = 0;
    for (size_t i = 0; i + 1 < fields.size(); i += 2) {
      auto entry = codec::decode_entry(fields[i].text, fields[i + 1].text);
      ++report_.looked_at;
      if (!entry) ++report_.unknown;
      if (!entry || !selects_(*entry)) continue;
      bytes += entry->size;
      items.push_back({std::move(entry->path), entry->digest});
    }
    if (!dry_run_) {
      INDUCTORFS_TRY(talk([&](Conversation& channel) {
        return items.empty() ? remover_.hold(channel) : remover_.remove(channel, items, report_.removed);
      }));
    }
    report_.selected += items.size();
    report_.bytes += bytes;
    for (IndexItem& item : items) {
      if (report_.paths.size() < kPurgePaths) report_.paths.push_back(std::move(item.path));
    }
    return {};
  }

  RedisClient& session_;
  const ScopeKeys keys_;
  const Selects& selects_;
  const bool dry_run_;
  const Deadline deadline_;
  IndexRemover remover_;
  PurgeReport report_;
};

}  // namespace

Result<PurgeReport> RedisRemote::purge(const ScopeId& scope, const Selects& selects, bool dry_run, Deadline deadline) {
  if (!dry_run && session_.options().read_only) return no_orders();
  INDUCTORFS_TRY(check_scope(scope));
  return Purge(session_, scope, selects, dry_run, deadline).run();
}

Result<void> RedisRemote::remove_blob(const codec::Digest& digest, Deadline deadline) {
  if (session_.options().read_only) return no_orders();
  // Piece 0 says that the others are there; those go with their lifetime.
  const std::string& prefix = session_.options().prefix;
  const std::string key = piece_key(prefix, digest, 0);
  const std::string end = std::to_string(kMemberValueSize - 1);
  return session_.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    // The bytes of a member are in its block, and go at once all the same: the other members are compiled again.
    INDUCTORFS_TRY_ASSIGN(const auto start, channel.call({"GETRANGE", key, "0", end}));
    if (const auto member = start.is_error() ? std::nullopt : member_in(start.text)) {
      const std::string block = piece_key(prefix, member->block, 0);
      INDUCTORFS_TRY_ASSIGN(auto reply, channel.call({"UNLINK", block}));
      if (reply.is_error()) return fail(redis::to_error(reply));
    }
    INDUCTORFS_TRY_ASSIGN(auto reply, channel.call({"UNLINK", key}));
    return reply.is_error() ? fail(redis::to_error(reply)) : Result<void>();
  });
}

}  // namespace inductorfs::remote
