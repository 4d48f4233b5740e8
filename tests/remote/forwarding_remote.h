// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/remote/remote.h"

namespace inductorfs::remote {

/// Passes every call on to another remote. A remote that differs from another one in a few calls derives from this
/// class and overrides those. A class that overrides fetch() must override fetch_within() too, because fetch_within()
/// does not go through fetch(). Only cancellable() is not passed on: the other remote's handle would go past the
/// overrides, so a class whose inner remote may block for long makes its own. Safe for concurrent use.
class ForwardingRemote : public Remote {
 public:
  /// `inner` must outlive this object.
  explicit ForwardingRemote(Remote& inner) : inner_(inner) {}
  explicit ForwardingRemote(std::unique_ptr<Remote> inner) : owned_(std::move(inner)), inner_(*owned_) {}

  void fetch(std::span<const codec::Digest> digests, BlobSink& sink, Deadline deadline) override {
    inner_.fetch(digests, sink, deadline);
  }
  void fetch_within(std::span<const codec::Digest> digests, BlobSink& sink, Budget& budget) override {
    inner_.fetch_within(digests, sink, budget);
  }
  [[nodiscard]] bool resting() const override { return inner_.resting(); }
  [[nodiscard]] Result<PublishOutcome> publish(const PublishGroup& group, BlobSource& source,
                                               Deadline deadline) override {
    return inner_.publish(group, source, deadline);
  }
  [[nodiscard]] Result<void> renew(std::span<const codec::Digest> digests, Deadline deadline) override {
    return inner_.renew(digests, deadline);
  }
  [[nodiscard]] Result<GatherReport> gather(std::span<const codec::Digest> digests, Deadline deadline) override {
    return inner_.gather(digests, deadline);
  }
  [[nodiscard]] Result<Delta> read_changes(const ScopeId& scope, const Position& from, Deadline deadline) override {
    return inner_.read_changes(scope, from, deadline);
  }
  [[nodiscard]] Result<std::vector<ScopeId>> wait_for_changes(const std::vector<std::pair<ScopeId, Position>>& scopes,
                                                              Milliseconds most,
                                                              const std::function<bool()>& cancelled) override {
    return inner_.wait_for_changes(scopes, most, cancelled);
  }
  void wake_waiters() override { inner_.wake_waiters(); }
  [[nodiscard]] Result<void> report_lost(const ScopeId& scope, const std::string& path, const codec::Digest& digest,
                                         Deadline deadline) override {
    return inner_.report_lost(scope, path, digest, deadline);
  }
  [[nodiscard]] Result<SweepReport> sweep(const ScopeId& scope, bool wanted, Deadline deadline) override {
    return inner_.sweep(scope, wanted, deadline);
  }
  [[nodiscard]] Result<void> announce_scope(const ScopeInformation& scope, Deadline deadline) override {
    return inner_.announce_scope(scope, deadline);
  }
  [[nodiscard]] Result<std::vector<ScopeInformation>> list_scopes(size_t limit, Deadline deadline) override {
    return inner_.list_scopes(limit, deadline);
  }
  [[nodiscard]] Result<std::vector<ScopeId>> scopes_with(const std::string& path, std::span<const ScopeId> scopes,
                                                         Deadline deadline) override {
    return inner_.scopes_with(path, scopes, deadline);
  }
  [[nodiscard]] Result<BeatAnswer> beat(const std::string& id, std::string_view record, Deadline deadline) override {
    return inner_.beat(id, record, deadline);
  }
  void leave(const std::string& id, Deadline deadline) override { inner_.leave(id, deadline); }
  [[nodiscard]] Result<std::vector<NodeRecord>> list_nodes(size_t limit, Deadline deadline) override {
    return inner_.list_nodes(limit, deadline);
  }
  [[nodiscard]] Result<OrdersNow> read_orders(Deadline deadline) override { return inner_.read_orders(deadline); }
  [[nodiscard]] Result<bool> replace_orders(const std::string& before, const std::string& after,
                                            Deadline deadline) override {
    return inner_.replace_orders(before, after, deadline);
  }
  [[nodiscard]] Result<PurgeReport> purge(const ScopeId& scope, const std::function<bool(const codec::Entry&)>& selects,
                                          bool dry_run, Deadline deadline) override {
    return inner_.purge(scope, selects, dry_run, deadline);
  }
  [[nodiscard]] Result<void> remove_blob(const codec::Digest& digest, Deadline deadline) override {
    return inner_.remove_blob(digest, deadline);
  }
  [[nodiscard]] Result<std::vector<Lease>> hold_leases(std::span<const LeaseName> names, const std::string& holder,
                                                       Milliseconds lifetime, Deadline deadline) override {
    return inner_.hold_leases(names, holder, lifetime, deadline);
  }
  [[nodiscard]] Result<ServerFacts> probe(Deadline deadline) override { return inner_.probe(deadline); }
  [[nodiscard]] Health health() const override { return inner_.health(); }
  [[nodiscard]] uint64_t server_changes() const override { return inner_.server_changes(); }
  [[nodiscard]] Result<void> confirm_server(Deadline deadline) override { return inner_.confirm_server(deadline); }

 protected:
  [[nodiscard]] Remote& inner() { return inner_; }

 private:
  const std::unique_ptr<Remote> owned_;  // empty if another object owns `inner_`
  Remote& inner_;
};

}  // namespace inductorfs::remote
