// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/remote/statements.h"
#include "inductorfs/signing/publisher_signature.h"
#include "inductorfs/signing/verifier.h"
#include "mount/processes/statement_signer.h"

namespace inductorfs::mount {

/// Returns the id of the cluster that statements of this mount name: --cluster-name, or else --prefix. Pure.
[[nodiscard]] std::string cluster_name(const config::Settings& settings);

/// Signs what a mount publishes (--signing-key). Safe for concurrent use.
class Signatures {
 public:
  /// `mounter`, `stands_still` as StatementSigner; the others must outlive it.
  Signatures(const config::Settings& settings, int mounter, std::function<void()> stands_still,
             remote::Statements& statements, Counters& counters);

  /// Has the key read, for a person who asks whether it can be. Blocks until the deadline.
  [[nodiscard]] Result<void> read_key(Deadline deadline);
  /// PublisherSignature::sign(). An error names the file of the key where that is the reason.
  [[nodiscard]] Result<void> sign(const std::string& scope, std::span<const codec::Entry> entries, Deadline deadline);
  /// Returns the public line of the key that has signed or was read last; empty: none was yet.
  [[nodiscard]] std::string public_line() const;

 private:
  [[nodiscard]] Result<trust::SignedStatement> make(const trust::TrustStatement& statement);

  const std::string file_;
  const StatementSigner signer_;
  signing::StatementVerifier verifier_;
  signing::PublisherSignature signature_;
  Guarded<std::string> line_;
};

}  // namespace inductorfs::mount
