// SPDX-License-Identifier: Apache-2.0
#include "remote/formats/head.h"

#include <algorithm>

#include "inductorfs/base/number.h"

namespace inductorfs::remote {
namespace {

/// Heads that a follower asks for in one interval. With more scopes it looks less often, or it would ask more than once
/// a second.
constexpr Milliseconds::rep kHeadsInAnInterval = 10;

/// As the scripts take it (is_number() in scripts.cc).
constexpr size_t kGenerationDigits = 15;

}  // namespace

std::optional<uint64_t> to_generation(std::string_view text) { return number_in<uint64_t>(text); }

Result<Head> head_of(const redis::Reply& reply) {
  if (reply.kind != redis::Reply::Kind::kArray || reply.items.size() != 2) return fail(redis::to_error(reply));
  Head head;
  for (const redis::Reply& field : reply.items) {
    if (field.kind == redis::Reply::Kind::kNil) return head;
    if (field.kind != redis::Reply::Kind::kString) return fail(redis::to_error(field));
  }
  const std::string& text = reply.items[0].text;
  const auto generation = text.size() <= kGenerationDigits ? to_generation(text) : std::nullopt;
  if (!generation) return head;  // a flipped bit: the log tells it, as when meta is gone
  head.exists = true;
  head.position = {*generation, reply.items[1].text};
  return head;
}

std::vector<redis::Command> look_without_meta(const ScopeKeys& keys) {
  return {{"HLEN", keys.index}, {"XREVRANGE", keys.log, "+", "-", "COUNT", "1"}};
}

Result<Head> head_without_meta(const redis::Reply& entries, const redis::Reply& last_record) {
  using Kind = redis::Reply::Kind;
  if (entries.kind != Kind::kInteger) return fail(redis::to_error(entries));
  Head head;
  if (entries.integer == 0) return head;  // whether or not this user may ask for the log
  if (last_record.kind != Kind::kArray) return fail(redis::to_error(last_record));
  head.exists = true;
  head.position = {0, "index of " + std::to_string(entries.integer)};
  if (last_record.items.empty()) return head;
  const redis::Reply& record = last_record.items.front();
  if (record.items.size() != 2) return fail(redis::to_error(record));
  const std::string_view id = record.items[0].text;
  const auto generation = to_generation(id.substr(0, id.find('-')));
  const std::vector<redis::Reply>& fields = record.items[1].items;
  for (size_t i = 0; generation && i + 1 < fields.size(); i += 2) {
    if (fields[i].text == "n") head.position = {*generation, fields[i + 1].text};
  }
  return head;
}

void HeadWatch::confirm(const ScopeId& scope, const Position& position, bool has_meta) {
  state_.with([&](State& state) { state.confirmed[scope] = {position, has_meta}; });
}

bool HeadWatch::has_meta(const ScopeId& scope) const {
  return state_.with([&](const State& state) {
    const auto found = state.confirmed.find(scope);
    return found == state.confirmed.end() || found->second.has_meta;
  });
}

bool HeadWatch::is_confirmed(const ScopeId& scope, const Position& position) const {
  return state_.with([&](const State& state) {
    const auto found = state.confirmed.find(scope);
    return found != state.confirmed.end() && found->second.position == position;
  });
}

void HeadWatch::forget() {
  state_.with([](State& state) { state.confirmed.clear(); });
}

void HeadWatch::keep_only(const std::vector<std::pair<ScopeId, Position>>& scopes) {
  state_.with([&](State& state) {
    std::erase_if(state.confirmed, [&](const auto& known) {
      return std::ranges::none_of(scopes, [&](const auto& scope) { return scope.first == known.first; });
    });
  });
}

SteadyTime HeadWatch::due() const {
  return state_.with([](const State& state) { return state.due; });
}

void HeadWatch::looked(size_t count) {
  const auto least = std::max(interval_, interval_ * static_cast<Milliseconds::rep>(count) / kHeadsInAnInterval);
  state_.with([&](State& state) {
    std::uniform_real_distribution<double> spread(0.8, 1.2);  // a thousand mounts do not ask in step
    const double wait = static_cast<double>(least.count()) * spread(state.random);
    state.due = std::chrono::steady_clock::now() + Milliseconds(static_cast<Milliseconds::rep>(wait));
  });
}

}  // namespace inductorfs::remote
