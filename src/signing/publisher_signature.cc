// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/signing/publisher_signature.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace inductorfs::signing {
namespace {

constexpr uint64_t kRenewedBelow = PublisherSignature::kLifetimeSeconds / 10;

bool is_well_covered(const SignatureFinding& finding, uint64_t now) {
  return finding.standing == SignatureFinding::Standing::kTrusted && finding.expires > now + kRenewedBelow;
}

}  // namespace

PublisherSignature::PublisherSignature(std::string cluster, Sign sign, remote::Statements& statements,
                                       StatementVerifier& verifier, Counters& counters, const Clock& clock)
    : cluster_(std::move(cluster)),
      sign_(std::move(sign)),
      statements_(statements),
      verifier_(verifier),
      clock_(clock),
      signed_(counters.get("signing.signed")) {}

/// Grows over restarts, too, as long as the clock does.
uint64_t PublisherSignature::next_serial() {
  const auto now = static_cast<uint64_t>(clock_.wall_now());
  return serial_.with([&](uint64_t& last) { return last = std::max(last + 1, now); });
}

Result<void> PublisherSignature::sign(const std::string& scope, std::span<const codec::Entry> entries,
                                      Deadline deadline) {
  const auto now = static_cast<uint64_t>(clock_.wall_now() / 1'000'000'000);
  // Not from memory: the cluster may have lost what it had, and then only this publish brings it back.
  const auto findings = verifier_.examine(scope, entries, deadline, StatementVerifier::From::kCluster);
  std::map<codec::Digest, codec::Entry> by_hash;  // one that comes twice is signed once
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!is_well_covered(findings[i], now)) by_hash.emplace(trust::stated(entries[i]), entries[i]);
  }
  std::vector<codec::Entry> left;
  for (auto& [_, entry] : by_hash) left.push_back(std::move(entry));
  for (size_t at = 0; at < left.size(); at += remote::kCoveredLimit) {
    const auto some = std::span(left).subspan(at, std::min(remote::kCoveredLimit, left.size() - at));
    trust::TrustStatement statement{cluster_, scope, {}, next_serial(), now, now + kLifetimeSeconds, {}};
    std::vector<std::string> keys;
    for (const codec::Entry& entry : some) {
      statement.entries.push_back(trust::stated(entry));
      keys.push_back(cover_key(entry));
    }
    INDUCTORFS_TRY_ASSIGN(const auto made, sign_(statement));
    INDUCTORFS_TRY(
        statements_.put_statement(scope, made.encode(), keys, std::chrono::seconds(kLifetimeSeconds), deadline));
    verifier_.forget(scope, some);
    signed_.add(some.size());
  }
  return {};
}

}  // namespace inductorfs::signing
