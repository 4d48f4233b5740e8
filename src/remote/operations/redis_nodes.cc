// SPDX-License-Identifier: Apache-2.0
// What mounts tell an operator about themselves, and what an operator tells all mounts.
#include <algorithm>
#include <iterator>
#include <utility>

#include "remote/formats/keys.h"
#include "remote/formats/scripts.h"
#include "remote/operations/redis_operations.h"

namespace inductorfs::remote {
namespace {

using redis::Reply;

/// A registration outlives three of it. A server that has forgotten one is told with the next record.
constexpr Milliseconds kRegisterInterval{300'000};

/// Records that are asked for at once: kRecordsAtOnce * kNodeRecordLimit must fit into the window.
constexpr size_t kRecordsAtOnce = 256;
static_assert(kRecordsAtOnce * kNodeRecordLimit <= kWindowBytes);
/// Outlives some registrations (kRegisterInterval). The registry may name mounts whose record is gone; nobody is shown
/// them.
constexpr Milliseconds kRegistryLifetime = 10 * kNodeLifetime;

Result<void> check_node(const std::string& id) {
  const bool good = !id.empty() && id.size() <= kNodeIdLimit && id.find_first_not_of("0123456789abcdef") == id.npos;
  return good ? Result<void>() : fail(ErrorCode::kInvalid, "no id of a mount");
}

/// Two bytes more than may be: what is too long is told from what is not.
const std::string& last_byte_of_orders() {
  static const std::string last = std::to_string(kOrdersLimit);
  return last;
}

/// Something that is no text of orders says nothing, whoever has put it there.
std::string orders_in(const Reply& reply) {
  return reply.kind == Reply::Kind::kString && reply.text.size() <= kOrdersLimit ? reply.text : std::string();
}

bool is_of_wrong_type(const Reply& reply) { return reply.is_error() && reply.text.starts_with("WRONGTYPE"); }

/// Of a heartbeat. A user may lack the right to these keys alone, and then publishes all the same; a server that wants
/// a password now, or that does not write, takes nothing of what is published either.
void note_writes(const std::vector<Reply>& replies, bool writes, WriteCondition& condition) {
  const bool no_password = replies[0].is_error() && replies[0].text.starts_with("NOAUTH ");
  const Reply& last = no_password ? replies[0] : replies[writes ? 1 : 0];
  if (no_password || refuses_writes(last)) {
    condition.refused(WriteCondition::Write::kRecord, redis::to_error(last));
  } else if (writes && !last.is_error()) {
    condition.taken(WriteCondition::Write::kRecord);
  }
}

/// Puts a mount into a set of mounts by time, and begins its lifetime anew. Returns why the server refused; empty if it
/// took it.
Result<std::string> put_into(Conversation& channel, const std::string& key, const std::string& member,
                             Milliseconds lifetime) {
  const std::string lives = std::to_string(lifetime.count());
  const std::string most = std::to_string(kNodesLimit);
  const std::vector<redis::Command> commands = {{"EVAL", register_scope_script(), "1", key, member, lives, most},
                                                {"PEXPIRE", key, lives}};
  INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all(commands));
  // A key of another type is nobody's of ours, and would keep every mount out for good.
  if (replies[0].is_error() && replies[0].text.find("WRONGTYPE") != std::string::npos) {
    INDUCTORFS_TRY_ASSIGN(auto again, channel.call_all({{"UNLINK", key}, commands[0], commands[1]}));
    replies[0] = std::move(again[1]);
  }
  return replies[0].is_error() ? redis::to_error(replies[0]).what() : std::string();
}

/// The answer to TIME in milliseconds since 1970.
Result<int64_t> time_in(const Reply& reply) {
  if (reply.kind != Reply::Kind::kArray || reply.items.size() != 2) return fail(redis::to_error(reply));
  constexpr int64_t kMost = int64_t{1} << 40;  // seconds
  const int64_t seconds = std::strtoll(reply.items[0].text.c_str(), nullptr, 10);
  const int64_t microseconds = std::strtoll(reply.items[1].text.c_str(), nullptr, 10);
  return std::clamp<int64_t>(seconds, 0, kMost) * 1000 + std::clamp<int64_t>(microseconds, 0, 999'999) / 1000;
}

}  // namespace

Result<BeatAnswer> RedisRemote::beat(const std::string& id, std::string_view record, Deadline deadline) {
  INDUCTORFS_TRY(check_node(id));
  if (record.size() > kNodeRecordLimit) return fail(ErrorCode::kInvalid, "the record of a mount is too long");
  const bool writes = !record.empty() && !session_.options().read_only;
  const NodeKeys keys(session_.options().prefix);
  const std::string node = keys.node(id);
  const std::string lifetime = std::to_string(kNodeLifetime.count());
  std::vector<redis::Command> commands = {{"GETRANGE", keys.orders, "0", last_byte_of_orders()}};
  if (writes) {
    commands.push_back({"SET", node, record, "PX", lifetime});
    commands.push_back({"ZSCORE", keys.registry, id});
  }
  const auto now = std::chrono::steady_clock::now();
  const bool registers = !record.empty() && shared_->registered.with([&](const SteadyTime& last) {
    return last == SteadyTime{} || now - last >= kRegisterInterval;
  });
  BeatAnswer answer;
  INDUCTORFS_TRY(session_.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    answer = {};
    INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all(commands));
    note_writes(replies, writes, *writes_);
    if (replies[0].is_error() && !is_of_wrong_type(replies[0])) return fail(redis::to_error(replies[0]));
    answer.orders = orders_in(replies[0]);
    if (!writes) return {};
    if (replies[1].is_error()) {
      answer.not_listed = redis::to_error(replies[1]).what();
      return {};
    }
    // A server that was emptied, or has evicted the registry, names nobody; what it may not be asked is not known.
    const bool is_named = replies[2].kind == Reply::Kind::kString;
    if (!registers && is_named) return {};
    INDUCTORFS_TRY_ASSIGN(answer.not_listed, put_into(channel, keys.registry, id, kRegistryLifetime));
    return {};
  }));
  if (registers) shared_->registered.with([&](SteadyTime& last) { last = now; });
  return answer;
}

void RedisRemote::leave(const std::string& id, Deadline deadline) {
  if (session_.options().read_only || !check_node(id)) return;
  const NodeKeys keys(session_.options().prefix);
  const std::string node = keys.node(id);
  // Should it fail, the record goes with its lifetime.
  (void)session_.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    const auto replies = channel.call_all({{"UNLINK", node}, {"ZREM", keys.registry, id}});
    return replies ? Result<void>() : fail(replies.error());
  });
}

Result<std::vector<NodeRecord>> RedisRemote::list_nodes(size_t limit, Deadline deadline) {
  const NodeKeys keys(session_.options().prefix);
  const std::string last = std::to_string(kNodesLimit - 1);
  const std::string end = std::to_string(kNodeRecordLimit - 1);
  std::vector<NodeRecord> found;
  INDUCTORFS_TRY(session_.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    found.clear();
    INDUCTORFS_TRY_ASSIGN(auto listed, channel.call({"ZRANGE", keys.registry, "0", last, "REV"}));
    if (is_of_wrong_type(listed)) return {};  // the next registration mends it
    if (listed.kind != Reply::Kind::kArray) return fail(redis::to_error(listed));
    std::vector<std::string> ids;
    for (Reply& item : listed.items) {
      if (check_node(item.text)) {
        ids.push_back(std::move(item.text));
      } else {
        session_.counters().get("remote.bad_nodes").add();
      }
    }
    for (size_t from = 0; from < ids.size() && found.size() < limit; from += kRecordsAtOnce) {
      const size_t to = std::min(ids.size(), from + kRecordsAtOnce);
      std::vector<std::string> names;
      std::vector<redis::Command> commands;
      for (size_t i = from; i < to; ++i) names.push_back(keys.node(ids[i]));
      for (const std::string& name : names) {
        commands.push_back({"PTTL", name});
        commands.push_back({"GETRANGE", name, "0", end});
      }
      INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all(commands));
      for (size_t i = 0; i + 1 < replies.size() && found.size() < limit; i += 2) {
        const bool lives = replies[i].kind == Reply::Kind::kInteger && replies[i].integer != -2;
        if (!lives || replies[i + 1].kind != Reply::Kind::kString) continue;
        const auto left = Milliseconds(std::clamp<int64_t>(replies[i].integer, 0, kNodeLifetime.count()));
        found.push_back({ids[from + i / 2], std::move(replies[i + 1].text), kNodeLifetime - left});
      }
    }
    return {};
  }));
  return found;
}

Result<void> RedisRemote::remember_node(const std::string& name, Deadline deadline) {
  if (session_.options().read_only) return no_orders();
  if (name.empty() || name.size() > kNodeNameLimit) return fail(ErrorCode::kInvalid, "no name of a mount");
  const NodeKeys keys(session_.options().prefix);
  return session_.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(const auto why, put_into(channel, keys.seen, name, kMissingLifetime));
    return why.empty() ? Result<void>() : fail(ErrorCode::kNotPermitted, why);
  });
}

void RedisRemote::forget_node(const std::string& name, Deadline deadline) {
  if (session_.options().read_only) return;
  const NodeKeys keys(session_.options().prefix);
  (void)session_.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    const auto reply = channel.call({"ZREM", keys.seen, name});
    return reply ? Result<void>() : fail(reply.error());
  });
}

Result<std::vector<MissingNode>> RedisRemote::list_missing_nodes(Milliseconds least, Deadline deadline) {
  if (session_.options().read_only) return no_orders();  // its user need not have the right to TIME
  const NodeKeys keys(session_.options().prefix);
  std::vector<MissingNode> found;
  INDUCTORFS_TRY(session_.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    found.clear();
    INDUCTORFS_TRY_ASSIGN(const auto time, channel.call({"TIME"}));
    INDUCTORFS_TRY_ASSIGN(const int64_t now, time_in(time));
    INDUCTORFS_TRY_ASSIGN(
        auto listed, channel.call({"ZRANGE", keys.seen, "-inf", std::to_string(now - least.count()), "BYSCORE", "LIMIT",
                                   "0", std::to_string(kNodesLimit), "WITHSCORES"}));
    if (is_of_wrong_type(listed)) return {};  // the next mount that is remembered mends it
    if (listed.kind != Reply::Kind::kArray) return fail(redis::to_error(listed));
    for (size_t i = 0; i + 1 < listed.items.size(); i += 2) {
      const int64_t at = std::clamp<int64_t>(std::strtoll(listed.items[i + 1].text.c_str(), nullptr, 10), 0, now);
      if (listed.items[i].text.size() > kNodeNameLimit) continue;
      found.push_back({std::move(listed.items[i].text), Milliseconds(now - at)});
    }
    return {};
  }));
  return found;
}

Result<OrdersNow> RedisRemote::read_orders(Deadline deadline) {
  const NodeKeys keys(session_.options().prefix);
  OrdersNow now;
  INDUCTORFS_TRY(session_.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(auto replies,
                          channel.call_all({{"TIME"}, {"GETRANGE", keys.orders, "0", last_byte_of_orders()}}));
    INDUCTORFS_TRY_ASSIGN(now.server_time, time_in(replies[0]));
    if (replies[1].is_error() && !is_of_wrong_type(replies[1])) return fail(redis::to_error(replies[1]));
    now.text = orders_in(replies[1]);
    return {};
  }));
  return now;
}

Result<bool> RedisRemote::replace_orders(const std::string& before, const std::string& after, Deadline deadline) {
  if (session_.options().read_only) return no_orders();
  if (after.size() > kOrdersLimit) return fail(ErrorCode::kInvalid, "the orders are too long");
  const NodeKeys keys(session_.options().prefix);
  const Lifetime lifetime = Lifetime::of_scopes(session_.options());
  bool replaced = false;
  INDUCTORFS_TRY(session_.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(auto reply, channel.call({"EVAL", replace_script(), "1", keys.orders, before, after,
                                                    lifetime.text, std::to_string(kOrdersLimit)}));
    if (reply.kind != Reply::Kind::kInteger) return fail(redis::to_error(reply));
    replaced = reply.integer == 1;
    return {};
  }));
  return replaced;
}

}  // namespace inductorfs::remote
