// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/remote/statements.h"

#include <algorithm>
#include <utility>

#include "remote/formats/group.h"
#include "remote/formats/keys.h"
#include "remote/operations/redis_operations.h"

namespace inductorfs::remote {

using redis::Reply;

namespace {

/// Statements in one pipeline of answers: their bytes fit into a window.
constexpr size_t kReadAtOnce = kWindowBytes / kStatementLimit;

Result<void> check_keys(std::span<const std::string> keys) {
  if (keys.size() > kCoveredLimit) return fail(ErrorCode::kInvalid, "too many entries for one statement");
  if (std::ranges::any_of(keys, [](const std::string& key) { return key.size() != kCoverKeySize; })) {
    return fail(ErrorCode::kInvalid, "no key of an entry that a statement covers");
  }
  return {};
}

}  // namespace

std::string statement_id(std::string_view bytes) {
  return std::string(codec::digest_of(bytes).raw().substr(0, kStatementIdSize));
}

Result<void> check_statement(std::string_view bytes, std::span<const std::string> keys) {
  if (bytes.empty() || bytes.size() > kStatementLimit) return fail(ErrorCode::kInvalid, "no statement, or too long");
  if (keys.empty()) return fail(ErrorCode::kInvalid, "a statement that covers nothing");
  return check_keys(keys);
}

Result<void> RedisRemote::put_statement(const std::string& scope, std::string_view bytes,
                                        std::span<const std::string> keys, Milliseconds lifetime, Deadline deadline) {
  if (session_.options().read_only) return read_only();
  INDUCTORFS_TRY(check_scope(scope));
  INDUCTORFS_TRY(check_statement(bytes, keys));
  if (lifetime.count() <= 0) return fail(ErrorCode::kInvalid, "the lifetime of a statement must be positive");
  const ScopeKeys names(session_.options().prefix, scope);
  const std::string id = statement_id(bytes);
  const std::string statement = names.statement(id);
  const std::string milliseconds = std::to_string(lifetime.count());
  const Lifetime of_scopes = Lifetime::of_scopes(session_.options());
  redis::Command covers = {"HSET", names.covered};
  for (const std::string& key : keys) {
    covers.push_back(key);
    covers.push_back(id);
  }
  // The statement first: whoever finds its id finds it, too.
  const std::vector<redis::Command> commands = {
      {"SET", statement, bytes, "PX", milliseconds}, std::move(covers), {"PEXPIRE", names.covered, of_scopes.text}};
  return session_.run(Use::kPublish, deadline, [&](Conversation& channel) -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(const auto replies, channel.call_all(commands));
    for (const Reply& reply : replies) {
      if (reply.is_error()) return fail(redis::to_error(reply));
    }
    return {};
  });
}

Result<std::vector<std::string>> RedisRemote::find_statements(const std::string& scope,
                                                              std::span<const std::string> keys, Deadline deadline) {
  INDUCTORFS_TRY(check_scope(scope));
  INDUCTORFS_TRY(check_keys(keys));
  if (keys.empty()) return std::vector<std::string>{};
  const ScopeKeys names(session_.options().prefix, scope);
  redis::Command command = {"HMGET", names.covered};
  command.insert(command.end(), keys.begin(), keys.end());
  std::vector<std::string> ids;
  INDUCTORFS_TRY(session_.run(Use::kFetch, deadline, [&](Conversation& channel) -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(auto reply, channel.call(command));
    if (reply.kind != Reply::Kind::kArray || reply.items.size() != keys.size()) return fail(redis::to_error(reply));
    ids.clear();
    for (Reply& item : reply.items) {
      ids.push_back(item.text.size() == kStatementIdSize ? std::move(item.text) : std::string());
    }
    return {};
  }));
  return ids;
}

Result<std::vector<std::string>> RedisRemote::read_statements(const std::string& scope,
                                                              std::span<const std::string> ids, Deadline deadline) {
  INDUCTORFS_TRY(check_scope(scope));
  if (ids.size() > kCoveredLimit) return fail(ErrorCode::kInvalid, "too many statements at once");
  const ScopeKeys names(session_.options().prefix, scope);
  const std::string last =
      std::to_string(kStatementLimit);  // one byte too many is enough to see that it is no statement
  std::vector<std::string> all;
  INDUCTORFS_TRY(session_.run(Use::kFetch, deadline, [&](Conversation& channel) -> Result<void> {
    all.clear();
    for (size_t at = 0; at < ids.size(); at += kReadAtOnce) {
      const auto some = ids.subspan(at, std::min(kReadAtOnce, ids.size() - at));
      std::vector<std::string> keys;
      std::vector<redis::Command> commands;
      keys.reserve(some.size());  // the commands refer to them
      for (const std::string& id : some) {
        keys.push_back(names.statement(id));
        commands.push_back({"GETRANGE", keys.back(), "0", last});
      }
      INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all(commands));
      for (size_t i = 0; i < some.size(); ++i) {
        // An error: another program's key, or a user who may not read it. Neither is a statement.
        const bool is_it = !replies[i].is_error() && statement_id(replies[i].text) == some[i];
        all.push_back(is_it ? std::move(replies[i].text) : std::string());
      }
    }
    return {};
  }));
  return all;
}

}  // namespace inductorfs::remote
