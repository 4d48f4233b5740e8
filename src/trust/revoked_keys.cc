// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/trust/revoked_keys.h"

#include <openssl/evp.h>

#include <array>

#include "inductorfs/base/text.h"
#include "inductorfs/codec/digest.h"
#include "trust/wire.h"

namespace inductorfs::trust {
namespace {

constexpr std::string_view kMagic{"SSHKRL\n\0", 8};
constexpr uint32_t kVersion = 1;
constexpr size_t kSha1Size = 20;

// PROTOCOL.krl: sections, and parts of a section about certificates.
constexpr uint8_t kCertificates = 1;
constexpr uint8_t kKeys = 2;
constexpr uint8_t kSha1 = 3;
constexpr uint8_t kSignature = 4;
constexpr uint8_t kSha256 = 5;
constexpr uint8_t kExtension = 255;
constexpr uint8_t kSerials = 0x20;
constexpr uint8_t kRange = 0x21;
constexpr uint8_t kBitmap = 0x22;
constexpr uint8_t kKeyIds = 0x23;
constexpr uint8_t kPartExtension = 0x39;

/// Empty where the host forbids SHA-1.
std::string sha1_of(std::string_view bytes) {
  std::array<char, EVP_MAX_MD_SIZE> hash{};
  unsigned size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(hash.data()), &size, EVP_sha1(),
                 nullptr) != 1) {
    return {};
  }
  return {hash.data(), size};
}

/// An extension that may be passed over by who does not know it.
bool is_optional(std::string_view extension) {
  WireReader reader(extension);
  (void)reader.string();
  const bool is_critical = reader.byte() != 0;
  (void)reader.string();
  return reader.complete() && !is_critical;
}

bool has_bit(const std::string& bitmap, uint64_t bit) {
  if (bit / 8 >= bitmap.size()) return false;
  return ((static_cast<uint8_t>(bitmap[bitmap.size() - 1 - bit / 8]) >> (bit % 8)) & 1) != 0;
}

/// A key that is cut would revoke nothing. Of other types than ours only the form is known: a name, and strings.
bool is_whole_key(std::string_view blob) {
  WireReader reader(blob);
  const std::string_view type = reader.string();
  if (type == kKeyType) return PublicKey::from_blob(blob).has_value();
  size_t parts = 0;
  for (; reader.more(); ++parts) (void)reader.string();
  return reader.complete() && !type.empty() && parts > 0;
}

}  // namespace

Result<RevokedKeys> RevokedKeys::load(const std::string& path) {
  INDUCTORFS_TRY_ASSIGN(const auto bytes, read_trusted_list("revoked keys", path, kFileLimit));
  return parse(bytes, path);
}

Result<RevokedKeys> RevokedKeys::parse(std::string_view bytes, const std::string& name) {
  if (bytes.size() > kFileLimit) return fail(ErrorCode::kTooLarge, "revoked keys " + name + ": it has more than 1 MiB");
  RevokedKeys keys;
  if (!bytes.starts_with(kMagic)) {
    INDUCTORFS_TRY(keys.read_lines(bytes, name));
  } else if (!keys.read_list(bytes)) {
    return fail(ErrorCode::kInvalid,
                "revoked keys " + name +
                    ": the list is damaged, or has what this release does not know: make it again with "
                    "ssh-keygen -k");
  }
  return keys;
}

Result<void> RevokedKeys::read_lines(std::string_view text, const std::string& name) {
  const auto bad = [&name](size_t number, std::string_view why) {
    return fail(ErrorCode::kInvalid, "revoked keys " + name + ":" + std::to_string(number) + ": " + std::string(why));
  };
  if (const size_t number = line_with_return(text); number != 0) {
    return bad(number, "the line ends with a carriage return: run sed -i 's/\\r$//' on the file");
  }
  size_t number = 0;
  for (const std::string_view whole : parts_of(text, '\n')) {
    ++number;
    std::string_view line = trimmed(whole);
    if (line.empty() || line.front() == '#') continue;
    const std::string_view type = take_part(line, ' ');
    auto blob = from_base64(take_part(line, ' '));
    WireReader reader(blob ? std::string_view(*blob) : std::string_view());
    if (!blob || reader.string() != type || (type != kCertificateType && !is_whole_key(*blob))) {
      return bad(number, "this is no public key: a line is TYPE BASE64 COMMENT, as a .pub file has it");
    }
    if (type == kCertificateType) {
      const auto certificate = Certificate::from_blob(*blob);
      if (!certificate) return bad(number, certificate.error().what());
      blob = certificate->key.blob();  // with it every certificate of the key
    }
    sha256_.emplace(codec::digest_of(*blob).raw());
  }
  return {};
}

bool RevokedKeys::read_list(std::string_view bytes) {
  WireReader reader(bytes.substr(kMagic.size()));
  if (reader.number() != kVersion) return false;
  for (int i = 0; i < 3; ++i) (void)reader.long_number();  // number of the list, time, flags
  (void)reader.string();                                   // reserved
  (void)reader.string();                                   // comment
  while (reader.more()) {
    const uint8_t type = reader.byte();
    const std::string_view data = reader.string();
    if (type == kSignature) {
      (void)reader.string();  // who may write the file says what is in it
      continue;
    }
    if (reader.failed() || !read_section(type, data)) return false;
  }
  return reader.complete();
}

bool RevokedKeys::read_section(uint8_t type, std::string_view data) {
  if (type == kExtension) return is_optional(data);
  if (type == kSha1 && sha1_of({}).empty()) return false;  // else what it revokes would count
  WireReader reader(data);
  if (type == kCertificates) {
    OfAuthority of;
    of.authority = reader.string();
    if (!of.authority.empty() && !is_whole_key(of.authority)) return false;
    (void)reader.string();  // reserved
    while (reader.more()) {
      const uint8_t part = reader.byte();
      if (!read_part(of, part, reader.string())) return false;
    }
    certificates_.push_back(std::move(of));
    return reader.complete();
  }
  while (reader.more()) {
    const std::string_view one = reader.string();
    if (type == kKeys && is_whole_key(one)) {
      sha256_.emplace(codec::digest_of(one).raw());
    } else if (type == kSha1 && one.size() == kSha1Size) {
      sha1_.emplace(one);
    } else if (type == kSha256 && one.size() == codec::Digest::kSize) {
      sha256_.emplace(one);
    } else {
      return false;
    }
  }
  return reader.complete() && (type == kKeys || type == kSha1 || type == kSha256);
}

bool RevokedKeys::read_part(OfAuthority& into, uint8_t type, std::string_view data) {
  WireReader reader(data);
  if (type == kPartExtension) return is_optional(data);
  if (type == kRange) {
    const uint64_t from = reader.long_number();
    const uint64_t to = reader.long_number();
    into.serials.emplace_back(from, to);
    return reader.complete() && from <= to;
  }
  if (type == kBitmap) {
    const uint64_t from = reader.long_number();
    into.bitmaps.emplace_back(from, reader.string());
    return reader.complete();
  }
  if (type != kSerials && type != kKeyIds) return false;
  while (reader.more()) {
    if (type == kKeyIds) {
      into.key_ids.emplace(reader.string());
    } else {
      const uint64_t serial = reader.long_number();
      into.serials.emplace_back(serial, serial);
    }
  }
  return reader.complete();
}

Result<void> RevokedKeys::add_fingerprint(std::string_view fingerprint) {
  constexpr std::string_view kHash = "SHA256:";
  const auto raw =
      fingerprint.starts_with(kHash) ? from_base64(std::string(fingerprint.substr(kHash.size())) + "=") : std::nullopt;
  if (!raw || raw->size() != codec::Digest::kSize) {
    return fail(ErrorCode::kInvalid,
                "this is no fingerprint of a key: give SHA256:..., as inductorfs key show prints it");
  }
  sha256_.insert(*raw);
  return {};
}

void RevokedKeys::merge(const RevokedKeys& others) {
  sha256_.insert(others.sha256_.begin(), others.sha256_.end());
  sha1_.insert(others.sha1_.begin(), others.sha1_.end());
  certificates_.insert(certificates_.end(), others.certificates_.begin(), others.certificates_.end());
}

bool RevokedKeys::has_key(std::string_view blob) const {
  return sha256_.contains(codec::digest_of(blob).raw()) || (!sha1_.empty() && sha1_.contains(sha1_of(blob)));
}

bool RevokedKeys::has_certificate(const OfAuthority& of, const Certificate& certificate) {
  if (!of.authority.empty() && of.authority != certificate.authority.blob()) return false;
  if (of.key_ids.contains(certificate.key_id)) return true;
  for (const auto& [from, to] : of.serials) {
    if (from <= certificate.serial && certificate.serial <= to) return true;
  }
  for (const auto& [from, bits] : of.bitmaps) {
    if (certificate.serial >= from && has_bit(bits, certificate.serial - from)) return true;
  }
  return false;
}

bool RevokedKeys::has(const Signer& signer) const {
  if (empty()) return false;
  if (has_key(signer.key.blob())) return true;
  if (!signer.certificate) return false;
  for (const OfAuthority& of : certificates_) {
    if (has_certificate(of, *signer.certificate)) return true;
  }
  return has_key(signer.certificate->authority.blob());
}

}  // namespace inductorfs::trust
