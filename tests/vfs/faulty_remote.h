// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <utility>

#include "inductorfs/base/guarded.h"
#include "remote/forwarding_remote.h"

namespace inductorfs::testing {

/// What with_faults() does, shared with the test that turns it. Safe for concurrent use.
class Fault {
 public:
  enum class Mode { kNone, kHang, kFail, kNewer };

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
  /// What a fetch that fails says.
  [[nodiscard]] Error error() const {
    const bool newer = state_.with([](const State& state) { return state.mode == Mode::kNewer; });
    return {newer ? ErrorCode::kNotSupported : ErrorCode::kTimedOut, "a fault of the test"};
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

/// Blobs that hang or fail. Safe for concurrent use.
class FaultyBlobs final : public remote::ForwardingBlobs {
 public:
  FaultyBlobs(std::shared_ptr<remote::Blobs> inner, std::shared_ptr<Fault> fault)
      : ForwardingBlobs(std::move(inner)), fault_(std::move(fault)) {}

  void fetch(std::span<const codec::Digest> digests, remote::BlobSink& sink, Deadline deadline) override {
    if (fault_->pass(digests, deadline)) return inner().fetch(digests, sink, deadline);
    for (const auto& digest : std::set<codec::Digest>(digests.begin(), digests.end())) {
      sink.done(digest, fail(fault_->error()));
    }
  }
  void fetch_within(std::span<const codec::Digest> digests, remote::BlobSink& sink, Budget& budget) override {
    fetch(digests, sink, budget.total());
  }

 private:
  std::shared_ptr<Fault> fault_;
};

/// An index that takes no publishes, and goes on otherwise. Safe for concurrent use.
class FaultyIndex final : public remote::ForwardingIndex {
 public:
  FaultyIndex(std::shared_ptr<remote::Index> inner, std::shared_ptr<Fault> fault)
      : ForwardingIndex(std::move(inner)), fault_(std::move(fault)) {}

  Result<remote::PublishOutcome> publish(const remote::PublishGroup& group, remote::BlobSource& source,
                                         Deadline deadline) override {
    if (fault_->refuses_publishes()) return fail(ErrorCode::kUnavailable, "a fault of the test");
    return inner().publish(group, source, deadline);
  }

 private:
  std::shared_ptr<Fault> fault_;
};

inline remote::Remote with_faults(remote::Remote inner, const std::shared_ptr<Fault>& fault) {
  inner.blobs = std::make_shared<FaultyBlobs>(std::move(inner.blobs), fault);
  inner.index = std::make_shared<FaultyIndex>(std::move(inner.index), fault);
  return inner;
}

}  // namespace inductorfs::testing
