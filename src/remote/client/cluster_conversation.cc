// SPDX-License-Identifier: Apache-2.0
#include "remote/client/cluster_conversation.h"

#include <algorithm>
#include <optional>
#include <random>
#include <thread>
#include <utility>

namespace inductorfs::remote {
namespace {

using redis::Reply;
using Freshness = ConnectionPool::Freshness;

/// How often one command is sent to another node, because a node has redirected it or could not be reached.
constexpr int kRedirectsMost = 5;
/// How often a command is sent again whose keys are moving just now, after pauses that double: 0.6 s in all.
constexpr int kTriesMost = 6;
constexpr Milliseconds kFirstPause{10};

/// One command of the pipeline that has not been answered.
struct Item {
  size_t index;
  uint16_t slot;
  int redirects = 0;
  int tries = 0;
  std::optional<redis::HostPort> ask{};  ///< the node that is to be asked this once
};

/// The commands that go to one server in one round.
struct Group {
  Shards::Link link;
  std::vector<Item> items;
};

/// A group that is under way.
struct Running {
  Group group;
  ServerTurn turn;
  std::vector<std::optional<size_t>> places{};  ///< of each reply in `items`; empty for that to ASKING
  size_t replied = 0;
  bool is_second_try = false;
  std::optional<Error> refusal{};
};

/// One pipeline, in rounds: each sends what is not answered to the server that the map names then. Confined to the
/// calling thread.
class SplitPipeline {
 public:
  SplitPipeline(Shards& shards, const CallTerms& terms, Counter& redirects, const std::vector<redis::Command>& commands,
                const Conversation::OnReply& on_reply)
      : shards_(shards), terms_(terms), redirects_(redirects), commands_(commands), on_reply_(on_reply) {}

  Result<void> run() {
    std::vector<Item> items = all_items();
    while (!items.empty() && !ended_) {
      if (terms_.is_cancelled()) return fail(ErrorCode::kUnavailable, "cancelled");
      if (is_late()) {
        lose(items, Error(ErrorCode::kTimedOut, "no time left"));
        break;
      }
      run_round(std::move(items));
      items = std::exchange(again_, {});
      std::ranges::sort(items, {}, &Item::index);
      if (std::exchange(wants_pause_, false)) pause(items);
    }
    if (ended_) return fail(*ended_);
    return conclude();
  }

 private:
  struct Lost {
    size_t index;
    Error why;
  };

  [[nodiscard]] bool is_late() const {
    return terms_.deadline.passed() || (terms_.budget != nullptr && terms_.budget->end().passed());
  }

  // A command without a key goes where its neighbours go.
  [[nodiscard]] std::vector<Item> all_items() const {
    std::optional<uint16_t> last;
    for (size_t i = 0; i < commands_.size() && !last; ++i) last = slot_of(commands_[i]);
    std::vector<Item> items;
    for (size_t i = 0; i < commands_.size(); ++i) {
      if (const auto slot = slot_of(commands_[i])) last = slot;
      items.push_back({.index = i, .slot = last.value_or(0)});
    }
    return items;
  }

  // Servers with an idle connection work at the same time; the others come after them one by one, those that answered
  // last first: a server that is down must not keep the healthy ones from being asked.
  void run_round(std::vector<Item> items) {
    std::vector<Running> ready;
    std::vector<Running> rest;
    std::vector<Group> groups = groups_of(std::move(items));
    std::stable_partition(groups.begin(), groups.end(),
                          [](const Group& group) { return group.link->condition().reachable; });
    for (Group& group : groups) {
      ServerTurn turn(*group.link, terms_);
      if (auto admitted = turn.admit(); !admitted) {
        reroute(group, std::move(group.items), admitted.error());
        continue;
      }
      const bool idle = turn.take_idle();
      (idle ? ready : rest).push_back({std::move(group), std::move(turn)});
    }
    std::vector<Running> dead;
    exchange(ready, dead);
    ready.clear();  // no connection is held while another one is waited for
    for (Running& one : dead) converse_alone(std::move(one), Freshness::kNew);
    for (Running& one : rest) converse_alone(std::move(one), Freshness::kAny);
  }

  void converse_alone(Running one, Freshness freshness) {
    if (ended_) return;
    // The time was used up by another server: this one must not be blamed for it.
    if (is_late()) return lose(one.group.items, Error(ErrorCode::kTimedOut, "no time left"));
    if (auto connected = one.turn.connect(freshness); !connected) {
      return reroute(one.group, std::move(one.group.items), connected.error());
    }
    std::vector<Running> alone;
    alone.push_back(std::move(one));
    std::vector<Running> dead;
    exchange(alone, dead);
    for (Running& again : dead) converse_alone(std::move(again), Freshness::kNew);
  }

  std::vector<Group> groups_of(std::vector<Item> items) {
    std::vector<Group> groups;
    for (Item& item : items) {
      Shards::Link link = item.ask ? shards_.at(*item.ask) : shards_.of(item.slot);
      if (link == nullptr) {
        shards_.doubt();
        lost_.push_back({item.index, Error(ErrorCode::kUnavailable,
                                           "no server of the Redis Cluster serves slot " + std::to_string(item.slot))});
        continue;
      }
      auto group = std::ranges::find(groups, link, &Group::link);
      if (group == groups.end()) group = groups.insert(groups.end(), Group{std::move(link), {}});
      group->items.push_back(std::move(item));
    }
    return groups;
  }

  // `dead` gets those whose idle connection was dead before.
  void exchange(std::vector<Running>& all, std::vector<Running>& dead) {
    if (all.empty()) return;
    std::vector<redis::Exchange> exchanges;
    exchanges.reserve(all.size());
    redis::Patience patience = all.front().turn.patience();
    for (Running& one : all) exchanges.push_back(exchange_of(one));
    redis::exchange_all(exchanges, patience);
    for (size_t i = 0; i < all.size(); ++i) {
      if (exchanges[i].outcome) {
        all[i].turn.succeed();
        if (all[i].refusal) all[i].group.link->refused(*all[i].refusal);
      } else {
        fail_one(all[i], exchanges[i].outcome.error(), dead);
      }
    }
  }

  redis::Exchange exchange_of(Running& one) {
    redis::Exchange exchange;
    exchange.connection = &one.turn.connection();
    one.places.clear();
    one.replied = 0;
    for (size_t i = 0; i < one.group.items.size(); ++i) {
      const Item& item = one.group.items[i];
      if (item.ask) {
        exchange.commands.push_back({"ASKING"});
        one.places.emplace_back();
      }
      exchange.commands.push_back(commands_[item.index]);
      one.places.emplace_back(i);
    }
    exchange.on_reply = [this, &one](size_t place, Reply&& reply) -> Result<void> {
      one.turn.hear();
      ++one.replied;
      if (!one.places[place]) return {};
      return take(one, one.group.items[*one.places[place]], std::move(reply));
    };
    return exchange;
  }

  Result<void> take(Running& one, Item& item, Reply&& reply) {
    if (ended_) return fail(*ended_);
    if (reply.is_error() && is_sent_again(one, item, reply)) return {};
    answered_ = true;
    auto taken = on_reply_(item.index, std::move(reply));
    if (!taken) ended_ = taken.error();
    return taken;
  }

  // Whether the reply only says that the command has to be sent again.
  bool is_sent_again(Running& one, Item& item, const Reply& reply) {
    const auto& endpoint = one.group.link->endpoint();
    const std::string_view text = reply.text;
    if (const auto redirect = parse_redirect(text, {endpoint.host, endpoint.port})) {
      const bool asks = redirect->kind == Redirect::Kind::kAsk;
      if (!asks) shards_.moved(redirect->slot, redirect->to);
      if (item.redirects++ >= kRedirectsMost) return false;
      redirects_.add();
      Item again = item;
      again.ask = asks ? std::optional(redirect->to) : std::nullopt;
      again_.push_back(std::move(again));
      return true;
    }
    if (text.starts_with("TRYAGAIN ") && item.tries++ < kTriesMost) {
      Item again = item;
      again.ask.reset();
      again_.push_back(std::move(again));
      wants_pause_ = true;
      return true;
    }
    const bool wrong_node = text.starts_with("CLUSTERDOWN ") || text.starts_with("MASTERDOWN ") ||
                            text.starts_with("READONLY ") || text.starts_with("MOVED ") || text.starts_with("ASK ");
    if (wrong_node) shards_.doubt();
    const ErrorCode code = redis::to_error(reply).code();
    const bool refuses = code == ErrorCode::kUnavailable || code == ErrorCode::kNotPermitted;
    if (terms_.use == Use::kFetch && refuses && !wrong_node) one.refusal = redis::to_error(reply);
    return false;
  }

  void fail_one(Running& one, const Error& error, std::vector<Running>& dead) {
    if (ended_) {
      (void)one.turn.end(error);
      return;
    }
    if (one.turn.died_before(error) && !one.is_second_try) {
      one.is_second_try = true;
      one.turn.give_back();
      dead.push_back(std::move(one));
      return;
    }
    const Error told = named(one.group, one.turn.end(error));
    std::vector<Item> left;
    for (size_t i = one.replied; i < one.places.size(); ++i) {
      if (one.places[i]) left.push_back(one.group.items[*one.places[i]]);
    }
    shards_.doubt();
    lose(left, told);
  }

  // A server that could not even be asked: perhaps another one serves its slots by now.
  void reroute(const Group& group, std::vector<Item> items, const Error& why) {
    shards_.doubt();
    if (!terms_.is_cancelled() && !is_late()) (void)shards_.prepare(terms_);
    std::vector<Item> lost;
    for (Item& item : items) {
      item.ask.reset();
      const Shards::Link now = shards_.of(item.slot);
      const bool moves = now != nullptr && now != group.link && item.redirects++ < kRedirectsMost;
      (moves ? again_ : lost).push_back(item);
    }
    lose(lost, named(group, why));
  }

  static Error named(const Group& group, const Error& error) {
    return Error(error.code(), group.link->endpoint().to_string() + ": " + error.what());
  }

  void lose(const std::vector<Item>& items, const Error& why) {
    for (const Item& item : items) lost_.push_back({item.index, why});
  }

  void pause(const std::vector<Item>& items) const {
    static thread_local std::minstd_rand random{std::random_device{}()};
    int tries = 1;
    for (const Item& item : items) tries = std::max(tries, item.tries);
    const Milliseconds most = kFirstPause * (int64_t{1} << (tries - 1));
    std::uniform_int_distribution<Milliseconds::rep> jitter(most.count() / 2, most.count());
    std::this_thread::sleep_for(std::min(Milliseconds(jitter(random)), terms_.deadline.left()));
  }

  Result<void> conclude() {
    if (lost_.empty()) return {};
    if (!answered_) return fail(lost_.front().why);
    for (const Lost& one : lost_) INDUCTORFS_TRY(on_reply_(one.index, redis::unreachable(one.why)));
    return {};
  }

  Shards& shards_;
  const CallTerms& terms_;
  Counter& redirects_;
  const std::vector<redis::Command>& commands_;
  const Conversation::OnReply& on_reply_;
  std::vector<Item> again_;  ///< of the next round
  std::vector<Lost> lost_;
  std::optional<Error> ended_;  ///< by the caller
  bool answered_ = false;
  bool wants_pause_ = false;
};

}  // namespace

Result<void> ClusterConversation::pipeline(const std::vector<redis::Command>& commands, const OnReply& on_reply) {
  std::vector<Reply> replies(commands.size());
  std::vector<bool> came(commands.size());
  size_t next = 0;
  const OnReply in_order = [&](size_t index, Reply&& reply) -> Result<void> {
    replies[index] = std::move(reply);
    came[index] = true;
    for (; next < came.size() && came[next]; ++next) INDUCTORFS_TRY(on_reply(next, std::move(replies[next])));
    return {};
  };
  return pipeline_in_any_order(commands, in_order);
}

Result<void> ClusterConversation::pipeline_in_any_order(const std::vector<redis::Command>& commands,
                                                        const OnReply& on_reply) {
  if (terms_.deadline.passed()) return fail(ErrorCode::kTimedOut, "no time left");
  if (commands.empty()) return {};
  INDUCTORFS_TRY(shards_.prepare(terms_));
  return SplitPipeline(shards_, terms_, redirects_, commands, on_reply).run();
}

}  // namespace inductorfs::remote
