// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "remote/forwarding_remote.h"

namespace inductorfs::catalog {

/// Another cluster, but for calls that are cancelled: `answers` waits until one may go on, or says that it may not.
/// Safe for concurrent use.
class CancellableFake final : public remote::ForwardingBlobs, public remote::ForwardingIndex {
 public:
  CancellableFake(remote::Blobs& blobs, remote::Index& index, std::function<bool(Deadline)> answers)
      : ForwardingBlobs(remote::lent(blobs)), ForwardingIndex(remote::lent(index)), answers_(std::move(answers)) {}

  void fetch(std::span<const codec::Digest> digests, remote::BlobSink& sink, Deadline deadline) override {
    if (answers_(deadline)) return ForwardingBlobs::fetch(digests, sink, deadline);
    for (const auto& digest : digests) sink.done(digest, cancelled());
  }
  void fetch_within(std::span<const codec::Digest> digests, remote::BlobSink& sink, Budget& budget) override {
    fetch(digests, sink, budget.total());
  }
  Result<remote::PublishOutcome> publish(const remote::PublishGroup& group, remote::BlobSource& source,
                                         Deadline deadline) override {
    if (!answers_(deadline)) return cancelled();
    return ForwardingIndex::publish(group, source, deadline);
  }
  Result<void> renew(std::span<const codec::Digest> digests, Deadline deadline) override {
    if (!answers_(deadline)) return cancelled();
    return ForwardingBlobs::renew(digests, deadline);
  }
  Result<remote::SweepReport> sweep(const remote::ScopeId& id, bool wanted, Deadline deadline) override {
    if (!answers_(deadline)) return cancelled();
    return ForwardingIndex::sweep(id, wanted, deadline);
  }
  Result<remote::Delta> read_changes(const remote::ScopeId& id, const remote::Position& from,
                                     Deadline deadline) override {
    if (!answers_(deadline)) return cancelled();
    return ForwardingIndex::read_changes(id, from, deadline);
  }
  Result<void> report_lost(const remote::ScopeId& id, const std::string& path, const codec::Digest& digest,
                           Deadline deadline) override {
    if (!answers_(deadline)) return cancelled();
    return ForwardingIndex::report_lost(id, path, digest, deadline);
  }

 private:
  static tl::unexpected<Error> cancelled() { return fail(ErrorCode::kUnavailable, "cancelled"); }

  const std::function<bool(Deadline)> answers_;
};

}  // namespace inductorfs::catalog
