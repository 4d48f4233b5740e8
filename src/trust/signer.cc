// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/trust/signer.h"

#include <openssl/evp.h>

#include <algorithm>
#include <utility>

#include "inductorfs/base/handle.h"
#include "inductorfs/base/text.h"
#include "inductorfs/codec/digest.h"
#include "trust/wire.h"

namespace inductorfs::trust {
namespace {

constexpr size_t kSignatureSize = 64;
constexpr uint32_t kUserCertificate = 1;
constexpr uint32_t kHostCertificate = 2;

const unsigned char* data_of(std::string_view bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }

/// A name of other people's bytes, as an error may have it.
std::string shown(std::string_view type) {
  const bool is_name = !type.empty() && type.size() <= 64 &&
                       std::all_of(type.begin(), type.end(), [](char c) { return c > ' ' && c <= '~'; });
  return is_name ? std::string(type) : "without a readable name";
}

tl::unexpected<Error> other_type(std::string_view type) {
  return fail(ErrorCode::kInvalid,
              "the key is of a type " + shown(type) + ", and only " + std::string(kKeyType) +
                  " is taken: make one with inductorfs key generate FILE, or ssh-keygen -t ed25519");
}

tl::unexpected<Error> bad_certificate(std::string_view why) {
  return fail(ErrorCode::kInvalid, "the certificate " + std::string(why));
}

Result<std::vector<std::string>> principals_in(std::string_view list) {
  std::vector<std::string> principals;
  WireReader reader(list);
  while (reader.more()) principals.emplace_back(reader.string());
  if (!reader.complete()) return bad_certificate("is damaged: its list of principals is cut");
  return principals;
}

/// The authority: its key, and of its signature the 64 bytes.
Result<void> read_authority(std::string_view key, std::string_view signature, Certificate& into) {
  WireReader type(key);
  const std::string_view name = type.string();
  if (name.find("-cert-v0") != name.npos) {
    return bad_certificate(
        "was signed by an authority that has a certificate itself: sign with the authority's plain key");
  }
  auto authority = PublicKey::from_blob(key);
  if (!authority) {
    return bad_certificate("was signed by an authority whose key is of a type " + shown(name) +
                           ": the authority needs an Ed25519 key, see ssh-keygen -t ed25519");
  }
  if (*authority == into.key) {
    return bad_certificate("is the authority's own: an authority certifies the keys of others, see ssh-keygen -s");
  }
  into.authority = *authority;
  WireReader reader(signature);
  const std::string_view kind = reader.string();
  into.signature = reader.string();
  if (!reader.complete() || kind != kKeyType || into.signature.size() != kSignatureSize) {
    return bad_certificate("is damaged: its signature is not one of Ed25519");
  }
  return {};
}

}  // namespace

std::optional<PublicKey> PublicKey::from_raw(std::string_view raw) {
  if (raw.size() != kSize) return std::nullopt;
  PublicKey key;
  std::copy(raw.begin(), raw.end(), key.bytes.begin());
  return key;
}

std::string PublicKey::blob() const {
  std::string blob;
  append_string(blob, kKeyType);
  append_string(blob, raw());
  return blob;
}

Result<PublicKey> PublicKey::from_blob(std::string_view blob) {
  WireReader reader(blob);
  const std::string_view type = reader.string();
  if (reader.failed()) return fail(ErrorCode::kInvalid, "the key is damaged: it has no type");
  if (type != kKeyType) return other_type(type);
  const auto key = from_raw(reader.string());
  if (!key || !reader.complete()) return fail(ErrorCode::kInvalid, "the key is damaged: it has not 32 bytes");
  return *key;
}

std::string PublicKey::fingerprint() const {
  std::string text = to_base64(codec::digest_of(blob()).raw());
  text.resize(text.find('='));
  return "SHA256:" + text;
}

bool PublicKey::has_signed(std::string_view signed_bytes, std::string_view signature) const {
  if (signature.size() != kSignatureSize) return false;
  const Handle<EVP_PKEY, EVP_PKEY_free> key(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, bytes.data(), bytes.size()));
  const Handle<EVP_MD_CTX, EVP_MD_CTX_free> context(EVP_MD_CTX_new());
  INDUCTORFS_CHECK(context != nullptr);
  return key && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(), data_of(signature), signature.size(), data_of(signed_bytes),
                          signed_bytes.size()) == 1;
}

Result<Certificate> Certificate::from_blob(std::string_view blob) {
  if (blob.size() > kSignerLimit) return bad_certificate("has more than 16 KiB");
  WireReader reader(blob);
  const std::string_view format = reader.string();
  if (reader.failed() || format != kCertificateType) return other_type(format);
  (void)reader.string();  // the nonce
  Certificate certificate;
  const auto key = PublicKey::from_raw(reader.string());
  certificate.serial = reader.long_number();
  const uint32_t type = reader.number();
  certificate.key_id = reader.string();
  const std::string_view principals = reader.string();
  certificate.valid_after = reader.long_number();
  certificate.valid_before = reader.long_number();
  const std::string_view critical = reader.string();
  (void)reader.string();  // extensions: rights at a login, and nothing here
  (void)reader.string();  // reserved
  const std::string_view authority = reader.string();
  certificate.signed_bytes = blob.substr(0, blob.size() - reader.left());
  const std::string_view signature = reader.string();
  if (!reader.complete() || !key) return bad_certificate("is cut or damaged");
  certificate.key = *key;
  if (type != kUserCertificate) {
    return bad_certificate(type == kHostCertificate ? "is a host certificate: make it without -h"
                                                    : "is of an unknown kind");
  }
  if (!critical.empty()) {
    WireReader option(critical);
    return bad_certificate("has the critical option " + shown(option.string()) +
                           ", which has no meaning for a signature: make it without -O");
  }
  if (certificate.valid_after >= certificate.valid_before) return bad_certificate("is valid at no time");
  INDUCTORFS_TRY_ASSIGN(certificate.principals, principals_in(principals));
  INDUCTORFS_TRY(read_authority(authority, signature, certificate));
  return certificate;
}

Result<Signer> Signer::from_blob(std::string_view blob) {
  WireReader reader(blob);
  if (reader.string() != kCertificateType) {
    INDUCTORFS_TRY_ASSIGN(const auto key, PublicKey::from_blob(blob));
    return Signer{key, {}, {}, std::string(blob)};
  }
  INDUCTORFS_TRY_ASSIGN(auto certificate, Certificate::from_blob(blob));
  const PublicKey key = certificate.key;
  return Signer{key, std::move(certificate), {}, std::string(blob)};
}

Result<Signer> Signer::from_line(std::string_view line) {
  std::string_view rest = trimmed(line);
  const std::string_view type = take_part(rest, ' ');
  const std::string_view text = take_part(rest, ' ');
  if (type != kKeyType && type != kCertificateType) return other_type(type);
  const auto blob = from_base64(text);
  if (!blob)
    return fail(ErrorCode::kInvalid, "the key is damaged: what follows " + std::string(type) + " is not base64");
  INDUCTORFS_TRY_ASSIGN(auto signer, from_blob(*blob));
  if (signer.certificate.has_value() != (type == kCertificateType)) {
    return fail(ErrorCode::kInvalid, "the key is damaged: it is not of the type " + std::string(type));
  }
  signer.comment = trimmed(rest);
  return signer;
}

}  // namespace inductorfs::trust
