// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "inductorfs/remote/rights.h"
#include "remote/operations/redis_operations.h"

namespace inductorfs::remote {
namespace {

/// What was announced is said again when a quarter of its lifetime has passed: a server that was away for a while, or
/// one announcement that failed, does not make a scope in use look unused.
constexpr int kAnnouncementsPerLifetime = 4;

}  // namespace

RedisRemote::Shared::Shared(const RemoteOptions& options)
    : writes({Milliseconds(1000), Milliseconds(60000)}),
      announcements(std::chrono::duration_cast<Milliseconds>(options.blob_lifetime) / kAnnouncementsPerLifetime),
      heads(options.head_interval),
      keeper(std::chrono::duration_cast<Milliseconds>(options.blob_lifetime) / kRenewalsPerLifetime) {}

tl::unexpected<Error> RedisRemote::read_only() {
  return fail(ErrorCode::kNotPermitted, "the remote is opened read-only");
}

/// No time mends it: an operator has asked the wrong mount.
tl::unexpected<Error> RedisRemote::no_orders() {
  return fail(ErrorCode::kInvalid,
              "the mount or configuration that is named is --read-only, and changes nothing in the cluster: name the "
              "cluster with --remote URL instead");
}

Result<void> RedisRemote::announce_scope(const ScopeInformation& scope, Deadline deadline) {
  INDUCTORFS_TRY(check_information(scope));
  if (session_.options().read_only) return {};
  if (!shared_->announcements.claim(scope, std::chrono::steady_clock::now())) return {};
  auto outcome = announce(scope, deadline);
  if (outcome) return {};
  shared_->announcements.failed(scope.id);
  session_.counters().get("remote.announce_failed").add();
  return outcome;
}

void RedisRemote::announce_again(const ScopeId& scope, Deadline deadline) {
  const auto due = shared_->announcements.due(scope, std::chrono::steady_clock::now());
  // What is lost with it is a line in a listing, until the next time.
  if (due && !announce(*due, deadline)) session_.counters().get("remote.announce_failed").add();
}

Result<Remote> open_redis(const RemoteOptions& options, Counters& counters, std::shared_ptr<WriteCondition> writes) {
  INDUCTORFS_TRY_ASSIGN(auto endpoint, endpoint_of(options));
  if (!is_good_prefix(options.prefix)) {
    return fail(ErrorCode::kInvalid, "the key prefix is 1 to 64 letters, digits, and - _ .");
  }
  if (options.blob_lifetime.count() <= 0) return fail(ErrorCode::kInvalid, "the lifetime of blobs must be positive");
  if (!writes) writes = std::make_shared<WriteCondition>();
  auto all = std::make_shared<RedisRemote>(RedisClient(options, std::move(endpoint), counters),
                                           std::make_shared<RedisRemote::Shared>(options), std::move(writes));
  return Remote{all, all, all, all, all};
}

}  // namespace inductorfs::remote
