// SPDX-License-Identifier: Apache-2.0
#include "remote/client/channel_listeners.h"

#include <algorithm>
#include <utility>

namespace inductorfs::remote {
namespace {

using redis::Reply;

/// Before a shard that could not be reached, or that has sent a channel elsewhere, is asked again.
constexpr Milliseconds kRetry{1'000};
/// Before a server is asked again that refuses the channel to this user.
constexpr Milliseconds kRefusedRetry{60'000};
/// How long a server may take to answer a PING, or to take a command.
constexpr Milliseconds kAnswerPatience{2'000};

SteadyTime now() { return std::chrono::steady_clock::now(); }

}  // namespace

void ChannelListeners::listen_to(const std::set<std::string>& channels, Deadline deadline,
                                 const std::function<bool()>& cancelled) {
  std::map<Shards::Link, std::set<std::string>> wanted;
  for (const std::string& channel : channels) {
    if (const auto link = shards_.of(slot_of_key(channel))) {
      wanted[link].insert(channel);
    } else {
      shards_.doubt();
    }
  }
  std::erase_if(lines_, [&](const Line& line) { return !wanted.contains(line.link); });
  for (const auto& [link, some] : wanted) {
    Line& line = line_to(link);
    if (line.listener != nullptr) leave_others(line, some, deadline);
    for (const std::string& channel : some) {
      const auto refused = line.refused.find(channel);
      const bool known = line.heard.contains(channel) || std::ranges::find(line.pending, channel) != line.pending.end();
      if (known || (refused != line.refused.end() && now() < refused->second)) continue;
      if (line.listener == nullptr && !connect(line, deadline, cancelled)) break;
      subscribe(line, channel, deadline);
    }
  }
}

bool ChannelListeners::hears(const std::string& channel) const {
  return std::ranges::any_of(lines_, [&](const Line& line) { return line.heard.contains(channel); });
}

ChannelListeners::Line& ChannelListeners::line_to(const Shards::Link& link) {
  const auto found = std::ranges::find(lines_, link, &Line::link);
  if (found != lines_.end()) return *found;
  Line& line = lines_.emplace_back();
  line.link = link;
  return line;
}

bool ChannelListeners::connect(Line& line, Deadline deadline, const std::function<bool()>& cancelled) const {
  if (now() < line.retry_at || line.link->resting()) return false;
  line.retry_at = now() + kRetry;
  auto opened = redis::Listener::open(line.link->endpoint(), deadline.earlier(options_.connect_patience), &cancelled);
  if (!opened) {
    shards_.doubt();
    return false;
  }
  line.listener = std::move(*opened);
  line.last = now();
  line.pinged = false;
  return true;
}

void ChannelListeners::subscribe(Line& line, const std::string& channel, Deadline deadline) {
  if (line.listener == nullptr) return;
  line.refused.erase(channel);
  if (!line.listener->send({"SSUBSCRIBE", channel}, deadline.earlier(kAnswerPatience))) return lose(line);
  line.pending.push_back(channel);
}

// What is pending is left when its answer has come.
void ChannelListeners::leave_others(Line& line, const std::set<std::string>& wanted, Deadline deadline) {
  std::vector<std::string> left;
  std::ranges::set_difference(line.heard, wanted, std::back_inserter(left));
  for (const std::string& channel : left) {
    line.heard.erase(channel);
    if (!line.listener->send({"SUNSUBSCRIBE", channel}, deadline.earlier(kAnswerPatience))) return lose(line);
  }
  std::erase_if(line.refused, [&](const auto& one) { return !wanted.contains(one.first); });
}

std::set<std::string> ChannelListeners::wait(Deadline deadline, const std::function<bool()>& cancelled) {
  while (true) {
    SteadyTime until = deadline.at();
    std::vector<redis::Listener*> listeners;
    for (Line& line : lines_) {
      if (line.listener != nullptr) drain(line);
      if (line.listener != nullptr) until = std::min(until, ping(line));
      if (line.listener != nullptr) listeners.push_back(line.listener.get());
    }
    if (!named_.empty() || std::exchange(changed_, false) || deadline.passed() || cancelled()) {
      return std::exchange(named_, {});
    }
    if (!redis::Listener::wait(listeners, Deadline(until), cancelled)) return {};
  }
}

void ChannelListeners::drain(Line& line) {
  while (line.listener != nullptr) {
    auto message = line.listener->next();
    if (!message) return lose(line);
    if (!*message) return;
    line.last = now();
    line.pinged = false;
    take(line, std::move(**message));
  }
}

// ["ssubscribe", channel, count], ["sunsubscribe", channel, count], ["smessage", channel, text], an answer to PING, or
// an error, which is the answer to the first channel that is pending.
void ChannelListeners::take(Line& line, Reply&& message) {
  if (message.is_error()) return take_refusal(line, message);
  if (message.kind != Reply::Kind::kArray || message.items.size() < 2) return;
  const std::string& kind = message.items[0].text;
  std::string& channel = message.items[1].text;
  if (kind == "smessage") {
    if (line.heard.contains(channel)) named_.insert(std::move(channel));
  } else if (kind == "ssubscribe") {
    if (line.pending.empty() || line.pending.front() != channel) return lose(line);
    line.pending.pop_front();
    line.heard.insert(channel);
    named_.insert(std::move(channel));
  } else if (kind == "sunsubscribe" && line.heard.erase(channel) > 0) {
    // Nobody has asked for it: the slot has moved to another shard.
    line.refused[channel] = now() + kRetry;
    shards_.doubt();
    changed_ = true;
  }
}

void ChannelListeners::take_refusal(Line& line, const Reply& reply) {
  if (line.pending.empty()) return;
  const std::string channel = std::move(line.pending.front());
  line.pending.pop_front();
  const auto& endpoint = line.link->endpoint();
  const auto redirect = parse_redirect(reply.text, {endpoint.host, endpoint.port});
  if (redirect && redirect->kind == Redirect::Kind::kMoved) shards_.moved(redirect->slot, redirect->to);
  const bool may_not = redis::to_error(reply).code() == ErrorCode::kNotPermitted;
  line.refused[channel] = now() + (may_not ? kRefusedRetry : kRetry);
  changed_ = true;
}

void ChannelListeners::lose(Line& line) {
  line.listener.reset();
  line.heard.clear();
  line.pending.clear();
  shards_.doubt();
  changed_ = true;
}

SteadyTime ChannelListeners::ping(Line& line) {
  const SteadyTime due = line.last + options_.follow_rest + (line.pinged ? kAnswerPatience : Milliseconds(0));
  if (now() < due) return due;
  if (line.pinged || !line.listener->send({"PING"}, Deadline::after(kAnswerPatience))) {
    lose(line);
    return now();
  }
  line.pinged = true;
  return now() + kAnswerPatience;
}

}  // namespace inductorfs::remote
