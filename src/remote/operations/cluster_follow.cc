// SPDX-License-Identifier: Apache-2.0
// The wait for scopes of a Redis Cluster: messages say which of them to look at.
#include <algorithm>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "remote/client/channel_listeners.h"
#include "remote/operations/redis_operations.h"
#include "remote/operations/scope_looks.h"

namespace inductorfs::remote {
namespace {

/// Between two looks at a scope that no shard can tell of, because the user may not listen or the slot is moving.
constexpr Milliseconds kUnheardInterval{1'000};
constexpr Milliseconds kLookPatience{5'000};
/// After a look that a message asked for in vain, so that nobody can make this host ask without a break.
constexpr Milliseconds kInVainPause{50};

/// Waits on several scopes. Confined to the calling thread.
class ClusterWaiter {
 public:
  ClusterWaiter(RedisClient& session, HeadWatch& heads, const std::vector<std::pair<ScopeId, Position>>& scopes,
                const std::function<bool()>& cancelled)
      : session_(session),
        heads_(heads),
        cancelled_(cancelled),
        looks_(session.options().prefix, heads, scopes),
        listeners_(session.take_listeners()) {
    for (const ScopeKeys& keys : looks_.keys()) channels_.insert(keys.meta);
  }
  ~ClusterWaiter() { session_.put_back(std::move(listeners_)); }
  ClusterWaiter(const ClusterWaiter&) = delete;
  ClusterWaiter& operator=(const ClusterWaiter&) = delete;

  Result<std::vector<ScopeId>> run(Deadline deadline) {
    std::vector<size_t> places = looks_.unconfirmed();
    bool asked_for = false;
    while (true) {
      INDUCTORFS_TRY(session_.run(Use::kControl, deadline.earlier(kLookPatience),
                                  [&](Conversation& channel) { return look(channel, places); }));
      if (!moved_.empty() || deadline.passed() || cancelled_()) return std::move(moved_);
      if (asked_for) std::this_thread::sleep_for(std::min(kInVainPause, deadline.left()));
      session_.close_idle();
      listeners_->listen_to(channels_, deadline, cancelled_);
      const auto named = listeners_->wait(Deadline(next_look(deadline)), cancelled_);
      asked_for = !named.empty();
      places = places_to_look_at(named);
      if (deadline.passed() || cancelled_()) return std::vector<ScopeId>();
    }
  }

 private:
  Result<void> look(Conversation& channel, const std::vector<size_t>& places) {
    INDUCTORFS_TRY_ASSIGN(moved_, looks_.look_at(channel, places));
    return {};
  }

  [[nodiscard]] bool hears_all() const {
    return std::ranges::all_of(channels_, [&](const std::string& channel) { return listeners_->hears(channel); });
  }

  SteadyTime next_look(Deadline deadline) {
    const SteadyTime due = std::min(deadline.at(), heads_.due());
    return hears_all() ? due : std::min(due, std::chrono::steady_clock::now() + kUnheardInterval);
  }

  std::vector<size_t> places_to_look_at(const std::set<std::string>& named) {
    const auto now = std::chrono::steady_clock::now();
    std::vector<size_t> places = looks_.all();
    if (now >= heads_.due()) return places;
    const bool unheard_due = now >= unheard_at_;
    if (unheard_due) unheard_at_ = now + kUnheardInterval;
    std::erase_if(places, [&](size_t i) {
      const std::string& channel = looks_.keys()[i].meta;
      return !named.contains(channel) && !(unheard_due && !listeners_->hears(channel));
    });
    return places;
  }

  RedisClient& session_;
  HeadWatch& heads_;
  const std::function<bool()>& cancelled_;
  ScopeLooks looks_;
  std::unique_ptr<ChannelListeners> listeners_;
  std::set<std::string> channels_;
  std::vector<ScopeId> moved_;
  SteadyTime unheard_at_{};
};

}  // namespace

Result<std::vector<ScopeId>> wait_on_cluster(RedisClient& session, HeadWatch& heads,
                                             const std::vector<std::pair<ScopeId, Position>>& scopes, Deadline deadline,
                                             const std::function<bool()>& cancelled) {
  return ClusterWaiter(session, heads, scopes, cancelled).run(deadline);
}

}  // namespace inductorfs::remote
