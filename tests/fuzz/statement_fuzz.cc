// SPDX-License-Identifier: Apache-2.0
#include "fuzz_target.h"
#include "inductorfs/trust/statement.h"

namespace fuzz = inductorfs::fuzz;
namespace trust = inductorfs::trust;

namespace {

void fuzz_text(std::string_view input) {
  const auto statement = trust::parse_statement(input);
  if (!statement) return;
  INDUCTORFS_CHECK(trust::statement_text(*statement).value() == input);
  INDUCTORFS_CHECK(!statement->entries.empty() && statement->entries.size() <= trust::kStatementEntries);
  INDUCTORFS_CHECK(!trust::parse_statement(input.substr(0, input.size() - 1)));
}

void fuzz_signed(std::string_view input) {
  const auto given = trust::SignedStatement::decode(input);
  if (!given) return;
  INDUCTORFS_CHECK(given->encode() == input);
  (void)given->armoured();
  const auto verified =
      trust::verify_statement(*given, {}, {}, {"cluster-1", std::string(64, '0'), {"tier=ci"}, 1'790'000'000});
  INDUCTORFS_CHECK(verified.verdict != trust::Verdict::kTrusted && !verified.why.empty());
  INDUCTORFS_CHECK(verified.statement == trust::TrustStatement{});
}

}  // namespace

/// The first byte picks: the text, the signed statement.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input = fuzz::view(data, size);
  if (input.empty()) return 0;
  if (fuzz::take_byte(input) % 2 == 0) {
    fuzz_text(input);
  } else {
    fuzz_signed(input);
  }
  return 0;
}
