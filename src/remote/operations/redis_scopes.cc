// SPDX-License-Identifier: Apache-2.0
// What the ids of scopes stand for: a text for each, and one key that names them all, for SCAN walks the whole server.
#include <algorithm>
#include <set>
#include <utility>

#include "remote/formats/group.h"
#include "remote/formats/keys.h"
#include "remote/formats/scope_text.h"
#include "remote/formats/scripts.h"
#include "remote/operations/redis_operations.h"

namespace inductorfs::remote {
namespace {

using redis::Reply;

/// Texts that are asked for at once: kScopesAtOnce * kInformationLimit must fit into the window.
constexpr size_t kScopesAtOnce = 32;
static_assert(kScopesAtOnce * kInformationLimit <= kWindowBytes);

std::string lifetime_of(const RedisClient& session) {
  return std::to_string(std::chrono::duration_cast<Milliseconds>(session.options().blob_lifetime).count());
}

/// Lists the scopes of one cluster. Confined to the calling thread.
class ScopeLister {
 public:
  ScopeLister(RedisClient& session, Conversation& channel, size_t limit)
      : session_(session), channel_(channel), limit_(limit), bad_(session.counters().get("remote.bad_scopes")) {}

  Result<std::vector<ScopeInformation>> run() {
    for (size_t from = 0; from < kAnnouncedScopesLimit && found_.size() < limit_; from += kScopesAtOnce) {
      INDUCTORFS_TRY_ASSIGN(auto ids, ids_from(from));
      INDUCTORFS_TRY(read_texts(ids));
      if (last_page_) break;
    }
    return std::move(found_);
  }

 private:
  // The ids that come next and can be ones. A page may repeat what the one before had, when others announce meanwhile.
  Result<std::vector<ScopeId>> ids_from(size_t from) {
    const std::string registry = scope_registry_key(session_.options().prefix);
    const std::string first = std::to_string(from);
    const std::string last = std::to_string(from + kScopesAtOnce - 1);
    INDUCTORFS_TRY_ASSIGN(auto reply, channel_.call({"ZRANGE", registry, first, last, "REV"}));
    if (reply.kind != Reply::Kind::kArray) return fail(redis::to_error(reply));
    last_page_ = reply.items.size() < kScopesAtOnce;
    std::vector<ScopeId> ids;
    for (Reply& item : reply.items) {
      if (!check_scope(item.text)) {
        bad_.add();
      } else if (seen_.insert(item.text).second) {
        ids.push_back(std::move(item.text));
      }
    }
    return ids;
  }

  Result<void> read_texts(const std::vector<ScopeId>& ids) {
    if (ids.empty()) return {};
    // GETRANGE, not GET: whatever somebody has put there, no more than this comes. One byte more tells what is too
    // long.
    const std::string end = std::to_string(kInformationLimit);
    std::vector<ScopeKeys> keys;
    std::vector<redis::Command> commands;
    for (const ScopeId& id : ids) keys.emplace_back(session_.options().prefix, id);
    for (const ScopeKeys& key : keys) commands.push_back({"GETRANGE", key.about, "0", end});
    return channel_.pipeline(commands, [&](size_t index, Reply&& reply) -> Result<void> {
      if (reply.kind == Reply::Kind::kString && reply.text.empty()) return {};  // its time was over
      auto scope = decode_information(ids[index], reply.text);
      if (!scope || reply.kind != Reply::Kind::kString) {
        bad_.add();
      } else if (found_.size() < limit_) {
        found_.push_back(std::move(*scope));
      }
      return {};
    });
  }

  RedisClient& session_;
  Conversation& channel_;
  const size_t limit_;
  Counter& bad_;
  bool last_page_ = false;
  std::set<ScopeId> seen_;
  std::vector<ScopeInformation> found_;
};

}  // namespace

Result<void> RedisRemote::announce(const ScopeInformation& scope, Deadline deadline) {
  const ScopeKeys keys(session_.options().prefix, scope.id);
  const std::string registry = scope_registry_key(session_.options().prefix);
  const std::string value = encode_information(scope);
  const std::string lifetime = lifetime_of(session_);
  const std::string most = std::to_string(kAnnouncedScopesLimit);
  INDUCTORFS_TRY(session_.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(
        auto replies, channel.call_all({{"SET", keys.about, value, "PX", lifetime},
                                        {"EVAL", register_scope_script(), "1", registry, scope.id, lifetime, most}}));
    for (const Reply& reply : replies) {
      if (reply.is_error()) return fail(redis::to_error(reply));
    }
    return {};
  }));
  session_.counters().get("remote.scopes_announced").add();
  return {};
}

namespace {

Result<void> ask_holders(RedisClient& session, Conversation& channel, const std::string& path,
                         std::span<const ScopeId> scopes, std::vector<ScopeId>& holders) {
  std::vector<ScopeKeys> keys;
  std::vector<redis::Command> commands;
  for (const ScopeId& id : scopes) keys.emplace_back(session.options().prefix, id);
  for (const ScopeKeys& key : keys) {
    commands.push_back({"HEXISTS", key.index, path});
    commands.push_back({"HEXISTS", key.counts, path});
  }
  return channel.pipeline(commands, [&](size_t index, Reply&& reply) -> Result<void> {
    const ScopeId& scope = scopes[index / 2];
    const bool has = reply.kind == Reply::Kind::kInteger && reply.integer == 1;
    if (has && (holders.empty() || holders.back() != scope)) holders.push_back(scope);
    return {};
  });
}

}  // namespace

Result<std::vector<ScopeId>> RedisRemote::scopes_with(const std::string& path, std::span<const ScopeId> scopes,
                                                      Deadline deadline) {
  std::vector<ScopeId> holders;
  INDUCTORFS_TRY(session_.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    holders.clear();
    for (size_t from = 0; from < scopes.size(); from += kScopesAtOnce) {
      const auto some = scopes.subspan(from, std::min(kScopesAtOnce, scopes.size() - from));
      if (Result<void> asked = ask_holders(session_, channel, path, some, holders); !asked) return asked;
    }
    return {};
  }));
  return holders;
}

Result<std::vector<ScopeInformation>> RedisRemote::list_scopes(size_t limit, Deadline deadline) {
  std::vector<ScopeInformation> scopes;
  if (limit == 0) return scopes;
  INDUCTORFS_TRY(session_.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(auto listed, ScopeLister(session_, channel, limit).run());
    scopes = std::move(listed);
    return {};
  }));
  return scopes;
}

}  // namespace inductorfs::remote
