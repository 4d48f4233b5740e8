// SPDX-License-Identifier: Apache-2.0
#include "remote/operations/scope_looks.h"

namespace inductorfs::remote {
namespace {

Result<Head> look_at_index(Conversation& channel, const ScopeKeys& keys) {
  INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all(look_without_meta(keys)));
  return head_without_meta(replies[0], replies[1]);
}

}  // namespace

ScopeLooks::ScopeLooks(const std::string& prefix, HeadWatch& heads,
                       const std::vector<std::pair<ScopeId, Position>>& scopes)
    : heads_(heads), scopes_(scopes) {
  for (const auto& [scope, position] : scopes) keys_.emplace_back(prefix, scope);
}

std::vector<size_t> ScopeLooks::all() const {
  std::vector<size_t> places(scopes_.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = i;
  return places;
}

std::vector<size_t> ScopeLooks::unconfirmed() const {
  std::vector<size_t> places = all();
  std::erase_if(places, [&](size_t i) { return heads_.is_confirmed(scopes_[i].first, scopes_[i].second); });
  return places;
}

/// Leaves out the scopes in which nobody has published, if that still is so: one command tells it of all of them. Those
/// of a Redis Cluster have no server in common.
Result<std::vector<size_t>> ScopeLooks::with_history(Conversation& channel, const std::vector<size_t>& places) {
  const auto is_empty = [&](size_t i) { return scopes_[i].second == Position{}; };
  redis::Command command = {"EXISTS"};
  for (const size_t i : places) {
    if (is_empty(i)) command.push_back(keys_[i].meta);
  }
  if (command.size() == 1 || channel.spans_servers()) return places;
  INDUCTORFS_TRY_ASSIGN(auto reply, channel.call(command));
  if (reply.kind != redis::Reply::Kind::kInteger) return fail(redis::to_error(reply));
  if (reply.integer != 0) return places;
  std::vector<size_t> others;
  for (const size_t i : places) {
    if (is_empty(i)) {
      heads_.confirm(scopes_[i].first, {});
    } else {
      others.push_back(i);
    }
  }
  return others;
}

Result<std::vector<ScopeId>> ScopeLooks::look_at(Conversation& channel, const std::vector<size_t>& places) {
  std::vector<ScopeId> moved;
  if (places.empty()) return moved;
  INDUCTORFS_TRY_ASSIGN(const auto asked, with_history(channel, places));
  std::vector<redis::Command> commands;
  commands.reserve(asked.size());
  for (const size_t i : asked) commands.push_back({"HMGET", keys_[i].meta, "gen", "nonce"});
  INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all(commands));
  for (size_t i = 0; i < replies.size(); ++i) {
    const auto& [scope, position] = scopes_[asked[i]];
    auto head = head_of(replies[i]);
    const bool has_meta = head && (head->exists || position == Position{});
    if (head && !has_meta) head = look_at_index(channel, keys_[asked[i]]);
    if (!head) return fail(std::move(head).error());
    // Also of one that has moved: whoever waits again at the old position is told again.
    heads_.confirm(scope, head->position, has_meta);
    if (head->position != position) moved.push_back(scope);
  }
  if (places.size() == scopes_.size()) heads_.looked(scopes_.size());
  return moved;
}

}  // namespace inductorfs::remote
