// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "catalog/cancellable_fake.h"
#include "catalog/fake_cluster.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/codec/frame.h"
#include "inductorfs/remote/remote.h"

namespace inductorfs::catalog {

/// A cluster in memory whose failures a test writes down. Safe for concurrent use.
class FakeRemote final : public remote::Blobs, public remote::Index {
 public:
  using Scope = fake::Scope;
  using State = fake::State;
  /// Runs at the start of each publish, before the state is touched: where another writer comes in between.
  std::function<void(const remote::PublishGroup&)> before_publish;
  Guarded<State> state;
  Guarded<std::map<std::string, Error>> refused_paths;  ///< what publishing a group with this path gives

  void fetch(std::span<const codec::Digest> digests, remote::BlobSink& sink, Deadline deadline) override {
    for (const auto& digest : digests) {
      if (auto error = obstacle(deadline)) {
        sink.done(digest, fail(*error));
        continue;
      }
      const auto frame = state.with([&](const State& now) -> std::optional<std::string> {
        auto found = now.frames.find(digest);
        return found == now.frames.end() ? std::nullopt : std::optional(found->second);
      });
      if (!frame) {
        sink.done(digest, fail(ErrorCode::kNotFound));
        continue;
      }
      sink.done(digest, sink.piece(digest, *frame));
    }
  }

  Result<remote::PublishOutcome> publish(const remote::PublishGroup& group, remote::BlobSource& source,
                                         Deadline deadline) override {
    state.with([](State& now) { ++now.publishes; });
    if (auto error = obstacle(deadline)) return fail(*error);
    for (const auto& entry : group.entries) {
      const auto why = refused_paths.with([&](const auto& paths) {
        const auto found = paths.find(entry.path);
        return found == paths.end() ? std::nullopt : std::optional(found->second);
      });
      if (why) return fail(*why);
    }
    if (before_publish) before_publish(group);
    std::map<codec::Digest, std::string> frames;
    for (const auto& entry : group.entries) {
      std::string& frame = frames[entry.digest];
      frame.clear();
      INDUCTORFS_TRY(source.read(entry.digest, 1000, [&](std::string_view piece) -> Result<void> {
        frame += piece;
        return {};
      }));
    }
    return state.notify_with([&](State& now) -> Result<remote::PublishOutcome> {
      const auto outcome = fake::commit(now, group);
      if (outcome == remote::PublishOutcome::kPublished) now.frames.merge(frames);
      if (auto lost = std::exchange(now.lost_answer, std::nullopt)) return fail(*lost);
      return outcome;
    });
  }

  Result<remote::GatherReport> gather(std::span<const codec::Digest> digests, Deadline) override {
    state.with([&](State& now) { now.gathered.emplace_back(digests.begin(), digests.end()); });
    return remote::GatherReport{digests.size()};
  }
  Result<void> renew(std::span<const codec::Digest> digests, Deadline deadline) override {
    if (auto error = obstacle(deadline)) return fail(*error);
    state.notify_with([&](State& now) { now.renewed.insert(now.renewed.end(), digests.begin(), digests.end()); });
    return {};
  }

  Result<remote::SweepReport> sweep(const remote::ScopeId&, bool wanted, Deadline) override {
    return state.notify_with([&](State& now) {
      ++(wanted ? now.swept : now.asked_to_sweep);
      now.full = false;
      return remote::SweepReport{.ours = true};
    });
  }

  Result<remote::Delta> read_changes(const remote::ScopeId& id, const remote::Position& from,
                                     Deadline deadline) override {
    state.with([&](State& now) { fake::count_read(now, id); });
    if (auto error = obstacle(deadline)) return fail(*error);
    return state.with([&](State& now) -> Result<remote::Delta> {
      Scope& scope = now.scopes[id];
      if (!scope.scripted.empty()) {
        remote::Delta delta = std::move(scope.scripted.front());
        scope.scripted.pop_front();
        scope.scripted_end.emplace(delta.position, scope.log.size());
        return delta;
      }
      if (scope.scripted_end == std::pair(from, scope.log.size())) return remote::Delta{false, {}, {}, from};
      const uint64_t head = scope.log.size();
      if (from.generation == head && from.nonce == fake::nonce(head)) return remote::Delta{false, {}, {}, from};
      const bool unknown = from.nonce != fake::nonce(from.generation) || from.generation > head ||
                           from.generation < scope.trimmed || from.generation == 0;
      if (!unknown) {
        remote::Delta step = scope.log[from.generation];
        step.at_head = step.position.generation == head;
        return step;
      }
      remote::Delta snapshot{true, {}, {}, {head, fake::nonce(head)}, true};
      for (const auto& [path, entry] : scope.entries) snapshot.set.push_back(entry);
      return snapshot;
    });
  }

  Result<std::vector<remote::ScopeId>> wait_for_changes(
      const std::vector<std::pair<remote::ScopeId, remote::Position>>& scopes, Milliseconds most,
      const std::function<bool()>& cancelled) override {
    const auto deadline = Deadline::after(most);
    const auto moved = [&](const State& now) {
      std::vector<remote::ScopeId> names;
      for (const auto& [id, position] : scopes) {
        auto found = now.scopes.find(id);
        if (found == now.scopes.end()) continue;
        if (now.named_in_vain == id) names.push_back(id);
        const bool ended = found->second.scripted_end == std::pair(position, found->second.log.size());
        const bool news = !found->second.scripted.empty() || found->second.log.size() != position.generation;
        if (!found->second.scripted.empty() || (news && !ended)) names.push_back(id);
      }
      return names;
    };
    std::vector<remote::ScopeId> names;
    while (!cancelled() && !deadline.passed()) {
      // In slices, as a real connection asks `cancelled`.
      const auto slice = std::min(deadline.at(), std::chrono::steady_clock::now() + Milliseconds(10));
      const auto over = [&](const State& now) { return !now.hanging && (now.failure || !moved(now).empty()); };
      const bool done = state.wait_until(slice, over, [&](const State& now) {
        names = moved(now);
        return over(now);
      });
      if (done) break;
    }
    return state.with([&](const State& now) -> Result<std::vector<remote::ScopeId>> {
      if (now.failure) return fail(*now.failure);
      return names;
    });
  }

  Result<void> report_lost(const remote::ScopeId& id, const std::string& path, const codec::Digest& digest,
                           Deadline deadline) override {
    if (auto error = obstacle(deadline)) return fail(*error);
    state.notify_with([&](State& now) {
      now.lost.emplace_back(path, digest);
      auto found = now.scopes[id].entries.find(path);
      if (found != now.scopes[id].entries.end() && found->second.digest == digest) fake::remove_in(now, id, path);
    });
    return {};
  }

  Result<void> announce_scope(const remote::ScopeInformation&, Deadline) override { return {}; }
  Result<std::vector<remote::ScopeInformation>> list_scopes(size_t, Deadline) override { return {}; }
  std::shared_ptr<remote::Blobs> blobs_until(std::function<bool()> over) override { return until(std::move(over)); }
  std::shared_ptr<remote::Index> index_until(std::function<bool()> over) override { return until(std::move(over)); }
  std::shared_ptr<CancellableFake> until(std::function<bool()> cancelled) {
    return std::make_shared<CancellableFake>(*this, *this, [this, cancelled = std::move(cancelled)](Deadline deadline) {
      const auto answers = [](const State& now) { return !now.hanging; };
      const Deadline end = state.with([deadline](State& now) { return fake::begin(now, deadline); });
      while (!end.passed() && !cancelled()) {
        if (state.wait_until(end.earlier(Milliseconds(10)).at(), answers, answers)) return true;
      }
      return !cancelled();
    });
  }

  // ---- What a test does as the rest of the cluster

  /// With a contest: the entry is a group that has a place in it.
  void set(const remote::ScopeId& id, const codec::Entry& entry, const std::string& contest = {}) {
    state.notify_with([&](State& now) {
      if (!contest.empty()) fake::enter(now.scopes[id], contest, {entry});
      fake::set_in(now, id, {entry});
    });
  }
  void set_with_bytes(const remote::ScopeId& id, codec::Entry entry, const std::string& bytes) {
    entry.digest = codec::digest_of(bytes);
    entry.size = bytes.size();
    auto frame = codec::encode_frame(bytes);
    state.notify_with([&](State& now) {
      now.frames[entry.digest] = *frame;
      fake::set_in(now, id, {entry});
    });
  }
  void remove(const remote::ScopeId& id, const std::string& path) {
    state.notify_with([&](State& now) { fake::remove_in(now, id, path); });
  }
  void script(const remote::ScopeId& id, remote::Delta delta) {
    state.notify_with([&](State& now) { now.scopes[id].scripted.push_back(std::move(delta)); });
  }
  /// The log is trimmed: readers behind its head get a snapshot.
  void trim(const remote::ScopeId& id) {
    state.with([&](State& now) { now.scopes[id].trimmed = now.scopes[id].log.size(); });
  }
  void fail_with(std::optional<Error> error) {
    state.notify_with([&](State& now) { now.failure = std::move(error); });
  }
  void hang(bool on, Milliseconds overtime = Milliseconds(0)) {
    state.notify_with([&](State& now) { std::tie(now.hanging, now.overtime) = std::tuple(on, overtime); });
  }
  [[nodiscard]] std::optional<codec::Entry> entry(const remote::ScopeId& id, const std::string& path) {
    return state.with([&](State& now) -> std::optional<codec::Entry> {
      auto found = now.scopes[id].entries.find(path);
      return found == now.scopes[id].entries.end() ? std::nullopt : std::optional(found->second);
    });
  }
  [[nodiscard]] std::string bytes(const codec::Digest& digest) {
    return state.with([&](State& now) {
      auto raw = codec::decode_frame(now.frames[digest], digest, uint64_t{1} << 30);
      return raw ? *raw : "(" + raw.error().to_string() + ")";
    });
  }
  /// The first path of each published group, in order.
  [[nodiscard]] std::vector<std::string> published() {
    return state.with([](const State& now) {
      std::vector<std::string> paths;
      for (const auto& group : now.published) paths.push_back(group.entries.front().path);
      return paths;
    });
  }

 private:
  std::optional<Error> obstacle(Deadline deadline) {
    const auto answers = [](const State& now) { return !now.hanging; };
    const Deadline end = state.with([&](const State& now) { return fake::end_of_hang(now, deadline); });
    return state.wait_until(end.at(), answers, [](const State& now) -> std::optional<Error> {
      return now.hanging ? Error(ErrorCode::kTimedOut, "no answer") : now.failure;
    });
  }
};

}  // namespace inductorfs::catalog
