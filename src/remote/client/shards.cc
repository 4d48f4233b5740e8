// SPDX-License-Identifier: Apache-2.0
#include "remote/client/shards.h"

#include <algorithm>
#include <utility>

namespace inductorfs::remote {
namespace {

using redis::HostPort;

/// Between two questions for the map, with jitter, so that the mounts of a cluster that has lost a master do not ask in
/// step.
constexpr Milliseconds kAskInterval{1000};
constexpr Milliseconds kLeastPerNode{50};
/// The longest that a caller with a map waits for a new one: most are served by the old one.
constexpr Milliseconds kAskPatience{1000};
/// Links of one cluster, those that a redirection has named and no map among them.
constexpr size_t kLinksLimit = 2 * kMastersLimit;

constexpr std::string_view kNoCluster = "cluster support disabled";

}  // namespace

Shards::Shards(redis::Endpoint endpoint, const RemoteOptions& options, Counters& counters)
    : endpoint_(std::move(endpoint)),
      options_(options),
      counters_(counters),
      asked_(counters.get("remote.slot_maps")) {}

Shards::Link Shards::link_to(State& state, const HostPort& node) {
  const auto found = state.links.find(node);
  if (found != state.links.end()) return found->second;
  if (state.links.size() >= kLinksLimit) return nullptr;
  redis::Endpoint endpoint = endpoint_;
  endpoint.cluster.clear();
  endpoint.host = node.host;
  endpoint.port = node.port;
  return state.links.emplace(node, std::make_shared<ServerLink>(std::move(endpoint), options_, counters_))
      .first->second;
}

Shards::Link Shards::of(uint16_t slot) const {
  return state_.with([&](const State& state) -> Link {
    const uint16_t owner = state.map.owners[slot];
    return owner == SlotMap::kNobody ? nullptr : state.links.at(state.map.masters[owner]);
  });
}

Shards::Link Shards::at(const HostPort& node) {
  return state_.with([&](State& state) { return link_to(state, node); });
}

std::vector<Shards::Link> Shards::masters() const {
  return state_.with([](const State& state) {
    std::vector<Link> links;
    for (const HostPort& master : state.map.masters) links.push_back(state.links.at(master));
    return links;
  });
}

size_t Shards::uncovered() const {
  return state_.with([](const State& state) { return state.map.uncovered(); });
}

void Shards::moved(uint16_t slot, const HostPort& to) {
  state_.with([&](State& state) {
    state.doubted = true;
    if (link_to(state, to) == nullptr) return;
    auto& masters = state.map.masters;
    auto place = std::ranges::find(masters, to);
    if (place == masters.end()) {
      if (masters.size() >= kMastersLimit) return;
      place = masters.insert(masters.end(), to);
    }
    state.map.owners[slot] = static_cast<uint16_t>(place - masters.begin());
  });
}

void Shards::doubt() {
  state_.with([](State& state) { state.doubted = true; });
}

Result<void> Shards::prepare(const CallTerms& terms) {
  enum class Duty { kNone, kAsk, kWait };
  while (true) {
    const Duty duty = state_.with([](State& state) {
      if (state.told && (!state.doubted || state.asking || std::chrono::steady_clock::now() < state.next)) {
        return Duty::kNone;
      }
      return std::exchange(state.asking, true) ? Duty::kWait : Duty::kAsk;
    });
    if (duty == Duty::kNone) return {};
    if (duty == Duty::kAsk) break;
    // Without a map nobody can go on; who has the turn has a deadline as well.
    const Deadline slice = terms.deadline.earlier(Milliseconds(100));
    state_.wait_until(
        slice.at(), [](const State& state) { return !state.asking; }, [](const State&) {});
    if (terms.is_cancelled()) return fail(ErrorCode::kUnavailable, "cancelled");
    if (terms.deadline.passed()) return fail(ErrorCode::kTimedOut, "no time left");
    if (terms.budget != nullptr && terms.budget->end().passed()) return fail(ErrorCode::kTimedOut, "no time left");
  }
  auto map = ask(terms);
  return state_.notify_with([&](State& state) -> Result<void> {
    state.asking = false;
    std::uniform_int_distribution<Milliseconds::rep> jitter(0, kAskInterval.count() / 2);
    state.next = std::chrono::steady_clock::now() + kAskInterval + Milliseconds(jitter(state.random));
    if (map) {
      adopt(state, std::move(*map));
      return {};
    }
    state.error = map.error().text();
    return state.told ? Result<void>() : fail(map.error());
  });
}

// Those that answered last come first: a node that has just died is asked by nobody but its own callers.
std::vector<Shards::Link> Shards::candidates() {
  std::vector<Link> links = state_.with([&](State& state) {
    std::vector<Link> all;
    const auto add = [&](const HostPort& node) {
      Link link = link_to(state, node);
      if (link != nullptr && std::ranges::find(all, link) == all.end()) all.push_back(std::move(link));
    };
    std::vector<HostPort> masters = state.map.masters;
    std::ranges::shuffle(masters, state.random);
    std::ranges::for_each(masters, add);
    std::ranges::for_each(endpoint_.cluster, add);
    return all;
  });
  std::stable_partition(links.begin(), links.end(), [](const Link& link) { return link->condition().reachable; });
  return links;
}

Result<SlotMap> Shards::ask(const CallTerms& terms) {
  const std::vector<Link> links = candidates();
  const bool has_map = state_.with([](const State& state) { return state.told.has_value(); });
  const Deadline most = has_map ? terms.deadline.earlier(kAskPatience) : terms.deadline;
  std::string told;
  std::optional<Error> wrong;
  for (size_t i = 0; i < links.size() && !most.passed() && !terms.is_cancelled(); ++i) {
    // Each gets its share, so that a silent first one leaves time for the others.
    const auto share = most.left() / static_cast<Milliseconds::rep>(links.size() - i);
    CallTerms one = terms;
    one.use = Use::kControl;
    one.deadline = most.earlier(std::max(share, kLeastPerNode));
    auto map = ask_one(*links[i], one);
    if (map) return map;
    const ErrorCode code = map.error().code();
    if (!wrong && code != ErrorCode::kUnavailable && code != ErrorCode::kTimedOut) wrong = map.error();
    told += (told.empty() ? "" : "; ") + links[i]->endpoint().to_string() + " " + map.error().what();
  }
  if (terms.is_cancelled()) return fail(ErrorCode::kUnavailable, "cancelled");
  // A password that is refused, or a server that is no cluster, is an operator's to change.
  if (wrong) return fail(*wrong);
  return fail(ErrorCode::kUnavailable, "no node of the Redis Cluster tells who serves its slots: " + told);
}

Result<SlotMap> Shards::ask_one(ServerLink& link, const CallTerms& terms) {
  ServerTurn turn(link, terms);
  INDUCTORFS_TRY(turn.admit());
  for (const auto freshness : {ConnectionPool::Freshness::kAny, ConnectionPool::Freshness::kNew}) {
    INDUCTORFS_TRY(turn.connect(freshness));
    asked_.add();
    auto reply = turn.connection().call({"CLUSTER", "SLOTS"}, turn.patience());
    if (!reply && turn.died_before(reply.error()) && freshness == ConnectionPool::Freshness::kAny) continue;
    if (!reply) return fail(turn.end(reply.error()));
    turn.hear();
    turn.succeed();
    if (reply->is_error() && reply->text.find(kNoCluster) != std::string::npos) {
      return fail(ErrorCode::kNotSupported, "the server is not part of a Redis Cluster: write redis:// in --remote");
    }
    if (reply->is_error()) return fail(redis::to_error(*reply));
    INDUCTORFS_TRY_ASSIGN(auto map, parse_slots(*reply, {link.endpoint().host, link.endpoint().port}));
    if (map.masters.empty()) return fail(ErrorCode::kUnavailable, "knows no master (has the cluster been created?)");
    return map;
  }
  return fail(ErrorCode::kUnavailable);
}

void Shards::adopt(State& state, SlotMap&& map) {
  state.error.clear();
  // A node that lags behind tells what was true before: that must not undo what another one has redirected since.
  if (state.told != map) {
    state.map = map;
    state.told = std::move(map);
  }
  const auto& masters = state.map.masters;
  std::erase_if(state.links, [&](const auto& known) {
    return std::ranges::find(masters, known.first) == masters.end() &&
           std::ranges::find(endpoint_.cluster, known.first) == endpoint_.cluster.end();
  });
  bool failing = false;
  for (const HostPort& master : masters) {
    const Link link = link_to(state, master);
    INDUCTORFS_CHECK(link != nullptr);  // the limit of links is above that of masters
    failing = failing || link->troubled();
  }
  state.doubted = failing || state.map != *state.told || state.map.uncovered() > 0;
}

template <typename Says>
bool Shards::all_of_them(const Says& says) const {
  return state_.with([&](const State& state) {
    if (!state.told) {
      return std::ranges::all_of(endpoint_.cluster, [&](const HostPort& node) {
        const auto link = state.links.find(node);
        return link != state.links.end() && says(*link->second);
      });
    }
    return std::ranges::all_of(state.map.masters,
                               [&](const HostPort& master) { return says(*state.links.at(master)); });
  });
}

bool Shards::resting() const {
  return all_of_them([](const ServerLink& link) { return link.resting(); });
}

bool Shards::troubled() const {
  return !all_of_them([](const ServerLink& link) { return !link.troubled(); });
}

void Shards::ended(const Result<void>& outcome) {
  state_.with([&](State& state) {
    if (outcome) {
      state.said.clear();
    } else if (outcome.error().code() != ErrorCode::kBusy) {
      state.said = outcome.error().text();
    }
  });
}

ServerLink::Condition Shards::condition() const {
  return state_.with([&](const State& state) {
    ServerLink::Condition all{false, state.error};
    for (const auto& [node, link] : state.links) {
      const auto one = link->condition();
      const bool is_master = std::ranges::find(state.map.masters, node) != state.map.masters.end();
      all.reachable = all.reachable || (one.reachable && (is_master || !state.told));
      if (all.last_error.empty() && !one.last_error.empty() && is_master) {
        all.last_error = node.to_string() + ": " + one.last_error;
      }
    }
    if (all.last_error.empty()) all.last_error = state.said;
    return all;
  });
}

void Shards::close_idle(Milliseconds lifetime) {
  const auto links = state_.with([](const State& state) {
    std::vector<Link> all;
    for (const auto& [node, link] : state.links) all.push_back(link);
    return all;
  });
  for (const Link& link : links) link->pool().drop_unused(lifetime);
}

}  // namespace inductorfs::remote
