// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <utility>

#include "inductorfs/base/guarded.h"
#include "inductorfs/remote/remote.h"

namespace inductorfs::testing {

/// What a FaultyRemote does, shared with the test that turns it. Safe for concurrent use.
class Fault {
 public:
  enum class Mode { kNone, kHang, kFail };

  void set(Mode mode) {
    state_.notify_with([&](State& state) { state.mode = mode; });
  }
  /// Only fetches that ask for one of these are touched; empty: all.
  void only(std::set<codec::Digest> digests) {
    state_.with([&](State& state) { state.only = std::move(digests); });
  }
  /// Publishes fail as with a server that is away.
  void refuse_publishes(bool refused) {
    state_.with([&](State& state) { state.deaf = refused; });
  }
  [[nodiscard]] bool refuses_publishes() const {
    return state_.with([](const State& state) { return state.deaf; });
  }
  [[nodiscard]] size_t hanging() const {
    return state_.with([](const State& state) { return state.hanging; });
  }
  [[nodiscard]] size_t fetched(const codec::Digest& digest) const {
    return state_.with([&](const State& state) { return state.asked.count(digest); });
  }

  /// Returns when the fetch may go on; false when it must fail.
  bool pass(std::span<const codec::Digest> digests, Deadline deadline) {
    const bool touched = state_.with([&](State& state) {
      bool hit = state.only.empty();
      for (const auto& digest : digests) {
        state.asked.insert(digest);
        hit = hit || state.only.contains(digest);
      }
      if (hit) ++state.hanging;
      return hit;
    });
    if (!touched) return true;
    return state_.wait_until(
        deadline.at(), [](const State& state) { return state.mode != Mode::kHang; },
        [](State& state) {
          --state.hanging;
          return state.mode == Mode::kNone;
        });
  }

 private:
  struct State {
    Mode mode = Mode::kNone;
    std::set<codec::Digest> only;
    std::multiset<codec::Digest> asked;
    size_t hanging = 0;
    bool deaf = false;
  };
  Guarded<State> state_;
};

/// Hands all but fetches on to another remote. Safe for concurrent use.
class RemoteInFront : public remote::Remote {
 public:
  explicit RemoteInFront(std::unique_ptr<remote::Remote> inner) : inner_(std::move(inner)) {}

  Result<remote::PublishOutcome> publish(const remote::PublishGroup& group, remote::BlobSource& source,
                                         Deadline deadline) override {
    return inner_->publish(group, source, deadline);
  }
  Result<remote::Delta> read_changes(const remote::ScopeId& scope, const remote::Position& from,
                                     Deadline deadline) override {
    return inner_->read_changes(scope, from, deadline);
  }
  Result<std::vector<remote::ScopeId>> wait_for_changes(
      const std::vector<std::pair<remote::ScopeId, remote::Position>>& scopes, Milliseconds most,
      const std::function<bool()>& cancelled) override {
    return inner_->wait_for_changes(scopes, most, cancelled);
  }
  Result<void> report_lost(const remote::ScopeId& scope, const std::string& path, const codec::Digest& digest,
                           Deadline deadline) override {
    return inner_->report_lost(scope, path, digest, deadline);
  }
  Result<void> announce_scope(const remote::ScopeInformation& scope, Deadline deadline) override {
    return inner_->announce_scope(scope, deadline);
  }
  Result<std::vector<remote::ScopeInformation>> list_scopes(size_t limit, Deadline deadline) override {
    return inner_->list_scopes(limit, deadline);
  }
  Result<remote::ServerFacts> probe(Deadline deadline) override { return inner_->probe(deadline); }
  Health health() const override { return inner_->health(); }

 protected:
  std::unique_ptr<remote::Remote> inner_;
};

/// A cluster whose blobs hang or fail while its index goes on. Safe for concurrent use.
class FaultyRemote final : public RemoteInFront {
 public:
  FaultyRemote(std::unique_ptr<remote::Remote> inner, std::shared_ptr<Fault> fault)
      : RemoteInFront(std::move(inner)), fault_(std::move(fault)) {}

  void fetch(std::span<const codec::Digest> digests, remote::BlobSink& sink, Deadline deadline) override {
    if (fault_->pass(digests, deadline)) return inner_->fetch(digests, sink, deadline);
    for (const auto& digest : std::set<codec::Digest>(digests.begin(), digests.end())) {
      sink.done(digest, fail(ErrorCode::kTimedOut, "a fault of the test"));
    }
  }
  Result<remote::PublishOutcome> publish(const remote::PublishGroup& group, remote::BlobSource& source,
                                         Deadline deadline) override {
    if (fault_->refuses_publishes()) return fail(ErrorCode::kUnavailable, "a fault of the test");
    return RemoteInFront::publish(group, source, deadline);
  }

 private:
  std::shared_ptr<Fault> fault_;
};

}  // namespace inductorfs::testing
