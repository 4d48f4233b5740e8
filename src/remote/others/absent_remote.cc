// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/remote/local_remote.h"

namespace inductorfs::remote {
namespace {

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
  Result<remote::BeatAnswer> beat(const std::string&, std::string_view, Deadline) override { return absent(); }
  Result<std::vector<remote::NodeRecord>> list_nodes(size_t, Deadline) override { return absent(); }
  Result<remote::OrdersNow> read_orders(Deadline) override { return absent(); }
  Result<remote::ServerFacts> probe(Deadline) override { return absent(); }
  [[nodiscard]] Health health() const override { return {false, "off", why_}; }

 private:
  [[nodiscard]] tl::unexpected<Error> absent() const { return fail(ErrorCode::kUnavailable, why_); }
  const std::string why_;
};

}  // namespace

std::unique_ptr<remote::Remote> make_absent_remote(std::string why) {
  return std::make_unique<AbsentRemote>(std::move(why));
}

}  // namespace inductorfs::remote
