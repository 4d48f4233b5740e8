// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/remote/remote.h"

/// Each of these passes every call on to another one. What differs from another one in a few calls derives from it and
/// overrides those. Only blobs_until() and index_until() are not passed on: the other one's handle would go past the
/// overrides, so a class whose inner one may block for long makes its own. Safe for concurrent use.
namespace inductorfs::remote {

/// Lends what stands elsewhere, and outlives who has it.
template <typename One>
std::shared_ptr<One> lent(One& one) {
  return {std::shared_ptr<One>(), &one};
}

/// A class that overrides fetch() must override fetch_within() too, because fetch_within() does not go through fetch().
class ForwardingBlobs : public Blobs {
 public:
  explicit ForwardingBlobs(std::shared_ptr<Blobs> inner) : inner_(std::move(inner)) {}

  void fetch(std::span<const codec::Digest> digests, BlobSink& sink, Deadline deadline) override {
    inner_->fetch(digests, sink, deadline);
  }
  void fetch_within(std::span<const codec::Digest> digests, BlobSink& sink, Budget& budget) override {
    inner_->fetch_within(digests, sink, budget);
  }
  [[nodiscard]] bool resting() const override { return inner_->resting(); }
  [[nodiscard]] Result<void> renew(std::span<const codec::Digest> digests, Deadline deadline) override {
    return inner_->renew(digests, deadline);
  }
  [[nodiscard]] Result<GatherReport> gather(std::span<const codec::Digest> digests, Deadline deadline) override {
    return inner_->gather(digests, deadline);
  }

 protected:
  [[nodiscard]] Blobs& inner() { return *inner_; }

 private:
  const std::shared_ptr<Blobs> inner_;
};

class ForwardingIndex : public Index {
 public:
  explicit ForwardingIndex(std::shared_ptr<Index> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] Result<PublishOutcome> publish(const PublishGroup& group, BlobSource& source,
                                               Deadline deadline) override {
    return inner_->publish(group, source, deadline);
  }
  [[nodiscard]] Result<Delta> read_changes(const ScopeId& scope, const Position& from, Deadline deadline) override {
    return inner_->read_changes(scope, from, deadline);
  }
  [[nodiscard]] Result<std::vector<ScopeId>> wait_for_changes(const std::vector<std::pair<ScopeId, Position>>& scopes,
                                                              Milliseconds most,
                                                              const std::function<bool()>& cancelled) override {
    return inner_->wait_for_changes(scopes, most, cancelled);
  }
  void wake_waiters() override { inner_->wake_waiters(); }
  [[nodiscard]] Result<void> report_lost(const ScopeId& scope, const std::string& path, const codec::Digest& digest,
                                         Deadline deadline) override {
    return inner_->report_lost(scope, path, digest, deadline);
  }
  [[nodiscard]] Result<SweepReport> sweep(const ScopeId& scope, bool wanted, Deadline deadline) override {
    return inner_->sweep(scope, wanted, deadline);
  }
  [[nodiscard]] Result<void> announce_scope(const ScopeInformation& scope, Deadline deadline) override {
    return inner_->announce_scope(scope, deadline);
  }
  [[nodiscard]] Result<std::vector<ScopeInformation>> list_scopes(size_t limit, Deadline deadline) override {
    return inner_->list_scopes(limit, deadline);
  }
  [[nodiscard]] Result<std::vector<ScopeId>> scopes_with(const std::string& path, std::span<const ScopeId> scopes,
                                                         Deadline deadline) override {
    return inner_->scopes_with(path, scopes, deadline);
  }
  [[nodiscard]] uint64_t server_changes() const override { return inner_->server_changes(); }
  [[nodiscard]] Result<void> confirm_server(Deadline deadline) override { return inner_->confirm_server(deadline); }

 protected:
  [[nodiscard]] Index& inner() { return *inner_; }

 private:
  const std::shared_ptr<Index> inner_;
};

class ForwardingOperators : public Operators {
 public:
  explicit ForwardingOperators(std::shared_ptr<Operators> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] Result<BeatAnswer> beat(const std::string& id, std::string_view record, Deadline deadline) override {
    return inner_->beat(id, record, deadline);
  }
  void leave(const std::string& id, Deadline deadline) override { inner_->leave(id, deadline); }
  [[nodiscard]] Result<std::vector<NodeRecord>> list_nodes(size_t limit, Deadline deadline) override {
    return inner_->list_nodes(limit, deadline);
  }
  [[nodiscard]] Result<void> remember_node(const std::string& name, Deadline deadline) override {
    return inner_->remember_node(name, deadline);
  }
  void forget_node(const std::string& name, Deadline deadline) override { inner_->forget_node(name, deadline); }
  [[nodiscard]] Result<std::vector<MissingNode>> list_missing_nodes(Milliseconds least, Deadline deadline) override {
    return inner_->list_missing_nodes(least, deadline);
  }
  [[nodiscard]] Result<OrdersNow> read_orders(Deadline deadline) override { return inner_->read_orders(deadline); }
  [[nodiscard]] Result<bool> replace_orders(const std::string& before, const std::string& after,
                                            Deadline deadline) override {
    return inner_->replace_orders(before, after, deadline);
  }
  [[nodiscard]] Result<PurgeReport> purge(const ScopeId& scope, const std::function<bool(const codec::Entry&)>& selects,
                                          bool dry_run, Deadline deadline) override {
    return inner_->purge(scope, selects, dry_run, deadline);
  }
  [[nodiscard]] Result<void> remove_blob(const codec::Digest& digest, Deadline deadline) override {
    return inner_->remove_blob(digest, deadline);
  }
  [[nodiscard]] Result<ServerFacts> probe(Deadline deadline) override { return inner_->probe(deadline); }
  [[nodiscard]] Health health() const override { return inner_->health(); }

 protected:
  [[nodiscard]] Operators& inner() { return *inner_; }

 private:
  const std::shared_ptr<Operators> inner_;
};

}  // namespace inductorfs::remote
