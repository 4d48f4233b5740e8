// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <utility>

#include "inductorfs/base/fd.h"
#include "redis_operations.h"

namespace inductorfs::remote {
namespace {

constexpr uint64_t kSecretLimit = 4096;
constexpr size_t kPrefixLimit = 64;

/// A cluster behind one Redis server. Safe for concurrent use.
class RedisRemote final : public Remote {
 public:
  RedisRemote(RemoteOptions options, redis::Endpoint endpoint, Counters& counters)
      : session_(std::move(options), std::move(endpoint), counters),
        writes_({Milliseconds(1000), Milliseconds(60000)}) {}

  void fetch(std::span<const codec::Digest> digests, BlobSink& sink, Deadline deadline) override {
    fetch_blobs(session_, digests, sink, deadline);
  }
  Result<PublishOutcome> publish(const PublishGroup& group, BlobSource& source, Deadline deadline) override {
    return publish_group(session_, writes_, group, source, deadline);
  }
  Result<Delta> read_changes(const ScopeId& scope, const Position& from, Deadline deadline) override {
    return read_scope(session_, scope, from, deadline);
  }
  Result<void> wait_for_changes(const std::vector<std::pair<ScopeId, Position>>& scopes, Milliseconds most,
                                const std::function<bool()>& cancelled) override {
    return wait_for_scopes(session_, scopes, most, cancelled);
  }
  Result<void> report_lost(const ScopeId& scope, const std::string& path, const codec::Digest& digest,
                           Deadline deadline) override {
    return report_lost_entry(session_, scope, path, digest, deadline);
  }
  Result<ServerFacts> probe(Deadline deadline) override { return probe_server(session_, deadline); }
  Health health() const override { return session_.health(); }

 private:
  Session session_;
  Breaker writes_;  // publishing only: a server without memory for writes still answers reads
};

Result<std::string> read_secret(const std::string& path) {
  auto text = read_file(AT_FDCWD, path, kSecretLimit);
  if (!text)
    return fail(ErrorCode::kInvalid, "cannot read the password file " + path + ": " + text.error().to_string());
  const size_t end = text->find_last_not_of("\r\n");
  text->resize(end == std::string::npos ? 0 : end + 1);
  if (text->empty()) return fail(ErrorCode::kInvalid, "the password file " + path + " is empty");
  return text;
}

bool is_good_prefix(const std::string& prefix) {
  return !prefix.empty() && prefix.size() <= kPrefixLimit &&
         prefix.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
             std::string::npos;
}

}  // namespace

Result<std::unique_ptr<Remote>> open_redis(const RemoteOptions& options, Counters& counters) {
  auto endpoint = redis::parse_url(options.url);
  if (!endpoint) return fail(std::move(endpoint).error());
  if (!is_good_prefix(options.prefix)) {
    return fail(ErrorCode::kInvalid, "the key prefix is 1 to 64 letters, digits, and - _ .");
  }
  if (options.blob_lifetime.count() <= 0) return fail(ErrorCode::kInvalid, "the lifetime of blobs must be positive");
  if (!options.password_file.empty()) {
    auto secret = read_secret(options.password_file);
    if (!secret) return fail(std::move(secret).error());
    endpoint->password = std::move(*secret);
  }
  endpoint->ca_file = options.ca_file;
  endpoint->certificate_file = options.certificate_file;
  endpoint->key_file = options.key_file;
  endpoint->client_name = options.client_name;
  return std::make_unique<RedisRemote>(options, std::move(*endpoint), counters);
}

}  // namespace inductorfs::remote
