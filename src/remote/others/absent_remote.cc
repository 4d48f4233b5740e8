// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/remote/local_remote.h"

namespace inductorfs::remote {
namespace {

class AbsentRemote final : public Blobs, public Index, public Operators, public Leases, public Statements {
 public:
  explicit AbsentRemote(std::string why) : why_(std::move(why)) {}

  void fetch(std::span<const codec::Digest> digests, BlobSink& sink, Deadline) override {
    for (const codec::Digest& digest : digests) sink.done(digest, absent());
  }
  Result<PublishOutcome> publish(const PublishGroup&, BlobSource&, Deadline) override { return absent(); }
  Result<Delta> read_changes(const ScopeId&, const Position&, Deadline) override { return absent(); }
  Result<std::vector<ScopeId>> wait_for_changes(const std::vector<std::pair<ScopeId, Position>>&, Milliseconds,
                                                const std::function<bool()>&) override {
    return absent();
  }
  Result<void> report_lost(const ScopeId&, const std::string&, const codec::Digest&, Deadline) override {
    return absent();
  }
  Result<void> announce_scope(const ScopeInformation&, Deadline) override { return absent(); }
  Result<std::vector<ScopeInformation>> list_scopes(size_t, Deadline) override { return absent(); }
  Result<BeatAnswer> beat(const std::string&, std::string_view, Deadline) override { return absent(); }
  Result<std::vector<NodeRecord>> list_nodes(size_t, Deadline) override { return absent(); }
  Result<void> remember_node(const std::string&, Deadline) override { return absent(); }
  Result<std::vector<MissingNode>> list_missing_nodes(Milliseconds, Deadline) override { return absent(); }
  Result<OrdersNow> read_orders(Deadline) override { return absent(); }
  Result<void> put_statement(const std::string&, std::string_view, std::span<const std::string>, Milliseconds,
                             Deadline) override {
    return absent();
  }
  Result<std::vector<std::string>> find_statements(const std::string&, std::span<const std::string>,
                                                   Deadline) override {
    return absent();
  }
  Result<std::vector<std::string>> read_statements(const std::string&, std::span<const std::string>,
                                                   Deadline) override {
    return absent();
  }
  Result<ServerFacts> probe(Deadline) override { return absent(); }
  [[nodiscard]] Health health() const override { return {false, "off", why_}; }

 private:
  [[nodiscard]] tl::unexpected<Error> absent() const { return fail(ErrorCode::kUnavailable, why_); }
  const std::string why_;
};

}  // namespace

Remote make_absent_remote(std::string why) {
  const auto all = std::make_shared<AbsentRemote>(std::move(why));
  return {all, all, all, all, all};
}

}  // namespace inductorfs::remote
