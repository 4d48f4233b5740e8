// SPDX-License-Identifier: Apache-2.0
#include "mount/cluster/signatures.h"

#include <utility>
#include <vector>

#include "inductorfs/trust/revoked_keys.h"
#include "inductorfs/trust/signer.h"
#include "inductorfs/trust/trusted_keys.h"

namespace inductorfs::mount {
namespace {

/// For one statement: a child is started, reads the key, and signs.
constexpr Milliseconds kSignPatience{5'000};
/// What this mount asks of signatures is whether it has made them.
const std::vector<std::string> kOwn{"own"};

signing::SignatureOptions own_signatures(const config::Settings& settings) {
  signing::SignatureOptions options;
  options.cluster = cluster_name(settings);
  options.principals = [](const std::string&) { return kOwn; };
  return options;
}

}  // namespace

std::string cluster_name(const config::Settings& settings) {
  return settings.cluster_name.empty() ? settings.prefix : settings.cluster_name;
}

Signatures::Signatures(const config::Settings& settings, int mounter, std::function<void()> stands_still,
                       remote::Statements& statements, Counters& counters)
    : file_(settings.signing_key),
      signer_(mounter, std::move(stands_still)),
      verifier_(own_signatures(settings), statements, counters),
      signature_(
          cluster_name(settings), [this](const trust::TrustStatement& statement) { return make(statement); },
          statements, verifier_, counters) {}

Result<void> Signatures::read_key(Deadline deadline) {
  auto line = signer_.public_line(deadline);
  if (!line) return fail(std::move(line).error().with_context("--signing-key"));
  // A certificate counts for nothing here: what is signed with it is signed once more when it is published again.
  if (auto own = trust::TrustedKeys::parse("* " + *line, file_)) (void)verifier_.use_keys(std::move(*own), {});
  line_.with([&](std::string& known) { known = std::move(*line); });
  return {};
}

Result<void> Signatures::sign(const std::string& scope, std::span<const codec::Entry> entries, Deadline deadline) {
  // Of a mount that was resumed while its key could not be read.
  if (public_line().empty()) INDUCTORFS_TRY(read_key(Deadline::after(kSignPatience)));
  return signature_.sign(scope, entries, deadline);
}

Result<trust::SignedStatement> Signatures::make(const trust::TrustStatement& statement) {
  auto made = signer_.sign(statement, Deadline::after(kSignPatience));
  if (!made) return fail(std::move(made).error().with_context("--signing-key"));
  const auto signer = trust::Signer::from_blob(made->signer);
  const auto known = trust::Signer::from_line(public_line());
  // Another key lies there now.
  if (signer && !(known && known->key == signer->key)) INDUCTORFS_TRY(read_key(Deadline::after(kSignPatience)));
  return made;
}

std::string Signatures::public_line() const {
  return line_.with([](const std::string& line) { return line; });
}

}  // namespace inductorfs::mount
