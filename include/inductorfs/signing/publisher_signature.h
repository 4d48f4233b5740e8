// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/remote/statements.h"
#include "inductorfs/signing/verifier.h"
#include "inductorfs/trust/statement.h"

namespace inductorfs::signing {

/// Signs what a mount publishes: the daemon's rules have let it publish the entries, and no job asks for a signature.
/// Safe for concurrent use.
class PublisherSignature {
 public:
  static constexpr uint64_t kLifetimeSeconds = trust::kStatementLifetime;
  /// trust::sign_statement() with somebody's key. May block.
  using Sign = std::function<Result<trust::SignedStatement>(const trust::TrustStatement&)>;

  /// All references must outlive it. `cluster` as SignatureOptions::cluster.
  PublisherSignature(std::string cluster, Sign sign, remote::Statements& statements, StatementVerifier& verifier,
                     Counters& counters, const Clock& clock = system_clock());

  /// Writes statements that cover those of these entries which nobody covers whose signature counts and has at least a
  /// tenth of its time left, kCoveredLimit to a statement. It is to be called before they are published. Blocks on the
  /// cluster, and on whoever signs. An error: what is left is not signed, and a second call signs it.
  [[nodiscard]] Result<void> sign(const std::string& scope, std::span<const codec::Entry> entries, Deadline deadline);

 private:
  [[nodiscard]] uint64_t next_serial();

  const std::string cluster_;
  const Sign sign_;
  remote::Statements& statements_;
  StatementVerifier& verifier_;
  const Clock& clock_;
  Counter& signed_;
  Guarded<uint64_t> serial_{0};
};

}  // namespace inductorfs::signing
