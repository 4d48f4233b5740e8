// SPDX-License-Identifier: Apache-2.0
#include "remote/client/conversation.h"

#include <utility>

namespace inductorfs::remote {

Result<std::vector<redis::Reply>> Conversation::call_all(const std::vector<redis::Command>& commands) {
  std::vector<redis::Reply> replies;
  replies.reserve(commands.size());
  INDUCTORFS_TRY(pipeline(commands, [&](size_t, redis::Reply&& reply) -> Result<void> {
    replies.push_back(std::move(reply));
    return {};
  }));
  return replies;
}

Result<redis::Reply> Conversation::call(const redis::Command& command) {
  INDUCTORFS_TRY_ASSIGN(auto replies, call_all({command}));
  return std::move(replies.front());
}

Result<void> ServerConversation::pipeline(const std::vector<redis::Command>& commands, const OnReply& on_reply) {
  if (deadline_.passed()) return fail(ErrorCode::kTimedOut, "no time left");
  return turn_.connection().pipeline(commands, turn_.patience(), [&](size_t index, redis::Reply&& reply) {
    turn_.hear();
    return on_reply(index, std::move(reply));
  });
}

Result<redis::Reply> ServerConversation::call_blocking(const redis::Command& command, Milliseconds block,
                                                       const std::function<bool()>& cancelled) {
  auto reply = turn_.connection().call_blocking(command, block, cancelled);
  if (reply) turn_.hear();
  return reply;
}

}  // namespace inductorfs::remote
