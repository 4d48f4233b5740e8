// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "inductorfs/base/budget.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/redis/master_watch.h"
#include "inductorfs/redis/url.h"
#include "inductorfs/remote/operators.h"
#include "inductorfs/remote/options.h"
#include "remote/client/channel_listeners.h"
#include "remote/client/conversation.h"
#include "remote/client/server_link.h"
#include "remote/client/shards.h"

namespace inductorfs::remote {

/// Returns the address in the URL with what the options add: the password of the file, certificates, the client's name.
/// kInvalid when the URL is not one, or the password cannot be read.
[[nodiscard]] Result<redis::Endpoint> endpoint_of(const RemoteOptions& options);

/// The way in which all operations of the Redis remote reach the server, or the shards of a Redis Cluster. It owns the
/// links, with their connections, breakers and health, and tries once more when an idle connection turns out to be
/// dead. Calls block up to their deadline. Safe for concurrent use.
class RedisClient {
 public:
  RedisClient(RemoteOptions options, redis::Endpoint endpoint, Counters& counters);
  /// Returns a session with the same links, whose calls end soon with kUnavailable once `cancelled` says so.
  [[nodiscard]] RedisClient cancellable(std::function<bool()> cancelled) const;

  using Talk = std::function<Result<void>(Conversation&)>;
  /// Runs a conversation. `talk` may be called a second time, from its start, when the first connection was dead before
  /// any reply. With a `budget` both tries together take no longer than the budget.
  [[nodiscard]] Result<void> run(Use use, Deadline deadline, const Talk& talk, Budget* budget = nullptr);
  /// Runs a conversation over one connection to the server that has `key`, for what must not be continued at another
  /// server, as the pages of a scan. On a cluster `talk` begins anew when the key's slot moves.
  [[nodiscard]] Result<void> run_at(std::string_view key, Use use, Deadline deadline, const Talk& talk);
  using ServerTalk = std::function<Result<void>(ServerConversation&)>;
  /// Runs a conversation in which the server may be waited for. Requires: this is no cluster.
  [[nodiscard]] Result<void> run_blocking(Use use, Deadline deadline, const ServerTalk& talk);
  /// Runs a conversation with each master of a cluster, or with the one server, whose address is passed too. Errors are
  /// the talk's to keep; kUnavailable when there is no map of the cluster.
  using EachTalk = std::function<void(const std::string& address, const std::function<Result<void>(const Talk&)>& run)>;
  [[nodiscard]] Result<void> for_each_server(Use use, Deadline deadline, const EachTalk& talk);

  /// Notes that the server answers but refuses to give what is fetched: a round trip for each lookup would not change
  /// that. (The shards of a cluster are noted one by one, during the conversation.)
  void refused(const Error& error);
  /// Says whether a fetch would be refused at once.
  [[nodiscard]] bool resting() const;
  /// Makes the next call of this use open a new connection, and so resolve the server's name anew.
  void hang_up(Use use);
  /// Closes connections that were unused for RemoteOptions::idle_lifetime.
  void close_idle();

  [[nodiscard]] const RemoteOptions& options() const { return shared_->options; }
  [[nodiscard]] Counters& counters() const { return shared_->counters; }
  [[nodiscard]] Operators::Health health() const;
  /// Index::server_changes() and Index::confirm_server().
  [[nodiscard]] uint64_t server_changes() const { return shared_->masters ? shared_->masters->changes() : 0; }
  [[nodiscard]] Result<void> confirm_server(Deadline deadline) const {
    return shared_->masters ? shared_->masters->ask_now(deadline) : Result<void>();
  }
  /// Returns the shards; nullptr when this is no cluster.
  [[nodiscard]] Shards* shards() const { return shared_->shards.get(); }
  /// Lends what listens to the shards between two waits. Requires: this is a cluster.
  [[nodiscard]] std::unique_ptr<ChannelListeners> take_listeners();
  void put_back(std::unique_ptr<ChannelListeners> listeners);

 private:
  struct Shared {
    Shared(RemoteOptions given, redis::Endpoint to, Counters& all);
    ~Shared();
    const RemoteOptions options;
    const std::string address;  ///< without secrets
    Counters& counters;
    Counter& breaker_open;
    Counter& redirects;
    std::unique_ptr<redis::MasterWatch> masters;  ///< with Sentinels
    std::unique_ptr<ServerLink> server;           ///< or
    std::unique_ptr<Shards> shards;
    Guarded<std::unique_ptr<ChannelListeners>> listeners;
  };

  [[nodiscard]] bool cancelled() const { return cancelled_ && cancelled_(); }
  [[nodiscard]] CallTerms terms(Use use, Deadline deadline, Budget* budget = nullptr) const;
  [[nodiscard]] Result<void> check_time(Deadline deadline) const;
  [[nodiscard]] Result<void> finish(Result<void> outcome) const;
  static Result<void> run_on(ServerLink& link, const CallTerms& terms, const ServerTalk& talk);
  [[nodiscard]] Result<void> run_at_once(uint16_t slot, const CallTerms& terms, const Talk& talk, bool& moved);

  std::shared_ptr<Shared> shared_;
  std::function<bool()> cancelled_;
};

}  // namespace inductorfs::remote
