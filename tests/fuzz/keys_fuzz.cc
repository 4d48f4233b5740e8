// SPDX-License-Identifier: Apache-2.0
#include "fuzz_target.h"
#include "inductorfs/trust/revoked_keys.h"
#include "inductorfs/trust/signing_key.h"
#include "inductorfs/trust/ssh_signature.h"
#include "inductorfs/trust/trusted_keys.h"
#include "trust/wire.h"

namespace fuzz = inductorfs::fuzz;
namespace trust = inductorfs::trust;

namespace {

/// A certificate of the key of zeros, which nobody has signed.
trust::Signer certified() {
  trust::Certificate certificate;
  certificate.serial = 7;
  certificate.key_id = "n";
  certificate.principals = {"tier=ci"};
  certificate.valid_before = UINT64_MAX;
  return {certificate.key, certificate, {}, {}};
}

void fuzz_private(std::string_view input) {
  (void)trust::SigningKey::parse(input, "key");  // its armour refuses nearly all
  const auto key = trust::SigningKey::parse(trust::to_armour(input, "OPENSSH PRIVATE KEY"), "key");
  if (!key) return;
  INDUCTORFS_CHECK(key->public_key().has_signed("x", key->sign("x")));
  INDUCTORFS_CHECK(trust::PublicKey::from_blob(key->signer().blob).value() == key->public_key());
}

void fuzz_signer(std::string_view input) {
  (void)trust::Signer::from_line(input);
  const auto signer = trust::Signer::from_blob(input);
  if (!signer) return;
  INDUCTORFS_CHECK(signer->blob == input);
  const std::string line = std::string(signer->certificate ? trust::kCertificateType : trust::kKeyType) + " " +
                           trust::to_base64(input) + " comment";
  const auto again = trust::Signer::from_line(line);
  INDUCTORFS_CHECK(again && again->key == signer->key && again->blob == input && again->comment == "comment");
  if (!signer->certificate) return;
  INDUCTORFS_CHECK(signer->certificate->valid_after < signer->certificate->valid_before);
  INDUCTORFS_CHECK(signer->certificate->signed_bytes.size() < input.size());
  (void)signer->certificate->is_genuine();
}

void fuzz_trusted(std::string_view input) {
  const auto keys = trust::TrustedKeys::parse(input, "trusted");
  if (!keys) return;
  const auto plain = trust::Signer::from_blob(trust::PublicKey{}.blob()).value();
  for (const trust::Signer& signer : {plain, certified()}) {
    const trust::Decision by = keys->decide(signer, {"tier=ci"}, trust::kNamespace, 1'790'000'000, {});
    INDUCTORFS_CHECK((by.line == 0) == (by.verdict == trust::Verdict::kUnknownKey));
    INDUCTORFS_CHECK(keys->decide(signer, {}, trust::kNamespace, 1, {}).verdict != trust::Verdict::kTrusted);
    // Nobody has signed this certificate.
    INDUCTORFS_CHECK(!signer.certificate || by.verdict != trust::Verdict::kTrusted);
  }
}

void fuzz_revoked(std::string_view input) {
  const auto keys = trust::RevokedKeys::parse(input, "revoked");
  if (!keys) return;
  trust::RevokedKeys all;
  all.merge(*keys);
  INDUCTORFS_CHECK(all.has(certified()) == keys->has(certified()));
  INDUCTORFS_CHECK(!keys->empty() || !keys->has(certified()));
}

}  // namespace

/// The first byte picks: a private key, a public key or certificate, trusted keys, revoked keys.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input = fuzz::view(data, size);
  if (input.empty()) return 0;
  constexpr void (*kTargets[])(std::string_view) = {fuzz_private, fuzz_signer, fuzz_trusted, fuzz_revoked};
  const uint8_t picked = fuzz::take_byte(input);
  kTargets[picked % 4](input);
  return 0;
}
