// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/remote/remote.h"

namespace inductorfs::catalog {

/// Another remote, but for calls that are cancelled: `answers` waits until one may go on, or says that it may not. Safe
/// for concurrent use.
class CancellableFake final : public remote::Remote {
 public:
  CancellableFake(remote::Remote& inner, std::function<bool(Deadline)> answers)
      : inner_(inner), answers_(std::move(answers)) {}

  void fetch(std::span<const codec::Digest> digests, remote::BlobSink& sink, Deadline deadline) override {
    if (answers_(deadline)) return inner_.fetch(digests, sink, deadline);
    for (const auto& digest : digests) sink.done(digest, cancelled());
  }
  Result<remote::PublishOutcome> publish(const remote::PublishGroup& group, remote::BlobSource& source,
                                         Deadline deadline) override {
    if (!answers_(deadline)) return cancelled();
    return inner_.publish(group, source, deadline);
  }
  Result<void> renew(std::span<const codec::Digest> digests, Deadline deadline) override {
    if (!answers_(deadline)) return cancelled();
    return inner_.renew(digests, deadline);
  }
  Result<remote::SweepReport> sweep(const remote::ScopeId& id, bool wanted, Deadline deadline) override {
    if (!answers_(deadline)) return cancelled();
    return inner_.sweep(id, wanted, deadline);
  }
  Result<remote::Delta> read_changes(const remote::ScopeId& id, const remote::Position& from,
                                     Deadline deadline) override {
    if (!answers_(deadline)) return cancelled();
    return inner_.read_changes(id, from, deadline);
  }
  Result<std::vector<remote::ScopeId>> wait_for_changes(
      const std::vector<std::pair<remote::ScopeId, remote::Position>>& scopes, Milliseconds most,
      const std::function<bool()>& stop) override {
    return inner_.wait_for_changes(scopes, most, stop);
  }
  Result<void> report_lost(const remote::ScopeId& id, const std::string& path, const codec::Digest& digest,
                           Deadline deadline) override {
    if (!answers_(deadline)) return cancelled();
    return inner_.report_lost(id, path, digest, deadline);
  }
  Result<void> announce_scope(const remote::ScopeInformation& scope, Deadline deadline) override {
    return inner_.announce_scope(scope, deadline);
  }
  Result<std::vector<remote::ScopeInformation>> list_scopes(size_t limit, Deadline deadline) override {
    return inner_.list_scopes(limit, deadline);
  }
  Result<remote::ServerFacts> probe(Deadline deadline) override { return inner_.probe(deadline); }
  Health health() const override { return inner_.health(); }

 private:
  static tl::unexpected<Error> cancelled() { return fail(ErrorCode::kUnavailable, "cancelled"); }

  remote::Remote& inner_;
  const std::function<bool(Deadline)> answers_;
};

}  // namespace inductorfs::catalog
