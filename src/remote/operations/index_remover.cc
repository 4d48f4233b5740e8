// SPDX-License-Identifier: Apache-2.0
#include "remote/operations/index_remover.h"

#include <algorithm>
#include <utility>

#include "remote/formats/group.h"
#include "remote/formats/scripts.h"

namespace inductorfs::remote {

using redis::Reply;

IndexRemover::IndexRemover(RedisClient& session, const ScopeKeys& keys, std::string fence)
    : log_length_(std::to_string(session.options().log_length)),
      keys_(keys),
      lifetime_(Lifetime::of_scopes(session.options())),
      fence_(std::move(fence)),
      token_(random_nonce()) {}

Result<void> IndexRemover::remove(Conversation& channel, std::span<const IndexItem> items, uint64_t& removed) {
  for (size_t at = 0; at < items.size(); at += kRemovedAtOnce) {
    INDUCTORFS_TRY(remove_some(channel, items.subspan(at, std::min(kRemovedAtOnce, items.size() - at)), removed));
  }
  return {};
}

Result<void> IndexRemover::remove_some(Conversation& channel, std::span<const IndexItem> items, uint64_t& removed) {
  INDUCTORFS_TRY_ASSIGN(auto status, evaluate(channel, items));
  if (status == "REMOVED") removed += items.size();
  if (status != "OTHER" || items.size() == 1) return {};
  for (size_t i = 0; i < items.size(); ++i) INDUCTORFS_TRY(remove_some(channel, items.subspan(i, 1), removed));
  return {};
}

Result<void> IndexRemover::hold(Conversation& channel) {
  const auto held = evaluate(channel, {});
  return held ? Result<void>() : fail(held.error());
}

Result<std::string> IndexRemover::evaluate(Conversation& channel, std::span<const IndexItem> items) {
  codec::LogRecord record;
  for (const IndexItem& item : items) record.removed.push_back(item.path);
  const std::string encoded = codec::encode_record(record);
  const std::string nonce = random_nonce();
  const std::string lease = std::to_string(kLease.count());
  redis::Command command = {"EVAL",
                            sweep_script(),
                            "6",
                            keys_.meta,
                            keys_.index,
                            keys_.counts,
                            keys_.owners,
                            keys_.log,
                            fence_,
                            nonce,
                            log_length_,
                            encoded,
                            token_,
                            lease,
                            lifetime_.text,
                            lifetime_.renew_below_text};
  for (const IndexItem& item : items) {
    command.push_back(item.path);
    command.push_back(item.digest.raw());
  }
  const bool removes = !items.empty();
  std::vector<redis::Command> commands = {std::move(command)};
  if (removes) tell_followers(channel, keys_, commands);
  INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all(commands));
  const Reply& reply = replies.front();
  if (reply.kind != Reply::Kind::kArray || reply.items.empty()) return fail(redis::to_error(reply));
  if (reply.items.front().text == "FENCED") return fail(ErrorCode::kBusy, "another mount sweeps this scope");
  return reply.items.front().text;
}

}  // namespace inductorfs::remote
