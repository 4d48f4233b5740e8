// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/remote/local_remote.h"

namespace inductorfs::remote {
namespace {

/// Every blob as nothing.
class EmptySource final : public remote::BlobSource {
 public:
  Result<void> read(const codec::Digest&, size_t, const std::function<Result<void>(std::string_view)>&) override {
    return {};
  }
};

class LocalRemote final : public remote::Remote {
 public:
  LocalRemote() : index_(remote::open_memory(remote::make_memory_cluster())) {}

  void fetch(std::span<const codec::Digest> digests, remote::BlobSink& sink, Deadline) override {
    for (const codec::Digest& digest : digests) sink.done(digest, fail(ErrorCode::kNotFound));
  }
  Result<remote::PublishOutcome> publish(const remote::PublishGroup& group, remote::BlobSource&,
                                         Deadline deadline) override {
    EmptySource nothing;
    return index_->publish(group, nothing, deadline);
  }
  Result<remote::Delta> read_changes(const remote::ScopeId& scope, const remote::Position& from,
                                     Deadline deadline) override {
    return index_->read_changes(scope, from, deadline);
  }
  Result<std::vector<remote::ScopeId>> wait_for_changes(
      const std::vector<std::pair<remote::ScopeId, remote::Position>>& scopes, Milliseconds most,
      const std::function<bool()>& cancelled) override {
    return index_->wait_for_changes(scopes, most, cancelled);
  }
  Result<void> report_lost(const remote::ScopeId& scope, const std::string& path, const codec::Digest& digest,
                           Deadline deadline) override {
    return index_->report_lost(scope, path, digest, deadline);
  }
  Result<void> announce_scope(const remote::ScopeInformation& scope, Deadline deadline) override {
    return index_->announce_scope(scope, deadline);
  }
  Result<std::vector<remote::ScopeInformation>> list_scopes(size_t limit, Deadline deadline) override {
    return index_->list_scopes(limit, deadline);
  }
  Result<remote::ServerFacts> probe(Deadline deadline) override { return index_->probe(deadline); }
  [[nodiscard]] Health health() const override { return index_->health(); }

 private:
  std::unique_ptr<remote::Remote> index_;
};

class AbsentRemote final : public remote::Remote {
 public:
  explicit AbsentRemote(std::string why) : why_(std::move(why)) {}

  void fetch(std::span<const codec::Digest> digests, remote::BlobSink& sink, Deadline) override {
    for (const codec::Digest& digest : digests) sink.done(digest, absent());
  }
  Result<remote::PublishOutcome> publish(const remote::PublishGroup&, remote::BlobSource&, Deadline) override {
    return absent();
  }
  Result<remote::Delta> read_changes(const remote::ScopeId&, const remote::Position&, Deadline) override {
    return absent();
  }
  Result<std::vector<remote::ScopeId>> wait_for_changes(
      const std::vector<std::pair<remote::ScopeId, remote::Position>>&, Milliseconds,
      const std::function<bool()>&) override {
    return absent();
  }
  Result<void> report_lost(const remote::ScopeId&, const std::string&, const codec::Digest&, Deadline) override {
    return absent();
  }
  Result<void> announce_scope(const remote::ScopeInformation&, Deadline) override { return absent(); }
  Result<std::vector<remote::ScopeInformation>> list_scopes(size_t, Deadline) override { return absent(); }
  Result<remote::ServerFacts> probe(Deadline) override { return absent(); }
  [[nodiscard]] Health health() const override { return {false, "off", why_}; }

 private:
  [[nodiscard]] tl::unexpected<Error> absent() const { return fail(ErrorCode::kUnavailable, why_); }
  const std::string why_;
};

}  // namespace

std::unique_ptr<remote::Remote> make_local_remote() { return std::make_unique<LocalRemote>(); }

std::unique_ptr<remote::Remote> make_absent_remote(std::string why) {
  return std::make_unique<AbsentRemote>(std::move(why));
}

}  // namespace inductorfs::remote
