// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"

/// Ed25519 keys and certificates in the forms of OpenSSH, so that its tools make and check what this program uses.
/// Sources: RFC 4253 and RFC 8709 (public keys), OpenSSH's PROTOCOL.certkeys (certificates). Everything in this header
/// is pure and safe for concurrent use; errors are kInvalid and say what was wrong, without the name of the file.
namespace inductorfs::trust {

inline constexpr std::string_view kKeyType = "ssh-ed25519";
inline constexpr std::string_view kCertificateType = "ssh-ed25519-cert-v01@openssh.com";
/// Of a signer's blob. ssh-keygen writes up to 256 principals into a certificate.
inline constexpr size_t kSignerLimit = size_t{16} << 10;

/// The Ed25519 public key. Immutable value.
struct PublicKey {
  static constexpr size_t kSize = 32;
  std::array<uint8_t, kSize> bytes{};

  auto operator<=>(const PublicKey&) const = default;
  [[nodiscard]] std::string_view raw() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
  [[nodiscard]] static std::optional<PublicKey> from_raw(std::string_view raw);
  /// The bytes that a line of a .pub file has in base64: `string "ssh-ed25519", string key`.
  [[nodiscard]] std::string blob() const;
  [[nodiscard]] static Result<PublicKey> from_blob(std::string_view blob);
  /// "SHA256:..." as `ssh-keygen -l` prints it.
  [[nodiscard]] std::string fingerprint() const;
  /// Says whether `signature` (64 bytes) is this key's over exactly these bytes. Some 150 us.
  [[nodiscard]] bool has_signed(std::string_view bytes, std::string_view signature) const;
};

/// A user certificate, which an authority has signed for an Ed25519 key. Immutable value.
struct Certificate {
  PublicKey key;
  uint64_t serial = 0;
  std::string key_id;
  std::vector<std::string> principals;  ///< as written: a wildcard here is a letter like any other
  uint64_t valid_after = 0;             ///< Unix seconds, the first that is valid
  uint64_t valid_before = 0;            ///< Unix seconds, the first that is not; UINT64_MAX: forever
  PublicKey authority;
  std::string signed_bytes;
  std::string signature;

  /// Reads a certificate, and does not yet verify it: who does not know its authority needs no signature of it. Refuses
  /// host certificates, authorities that are no plain Ed25519 key or certify themselves, and every critical option,
  /// because none of them has a meaning for a signature.
  [[nodiscard]] static Result<Certificate> from_blob(std::string_view blob);
  /// Says whether its authority has signed it.
  [[nodiscard]] bool is_genuine() const { return authority.has_signed(signed_bytes, signature); }
};

/// Who signs: a key by itself, or by a certificate. Immutable value.
struct Signer {
  PublicKey key;
  std::optional<Certificate> certificate;
  std::string comment;  ///< of the line that it was read from
  std::string blob;     ///< as the line has it in base64: what goes beside a signature

  [[nodiscard]] static Result<Signer> from_blob(std::string_view blob);
  /// Reads "TYPE BASE64 [COMMENT]", as FILE.pub and FILE-cert.pub have it.
  [[nodiscard]] static Result<Signer> from_line(std::string_view line);
};

}  // namespace inductorfs::trust
