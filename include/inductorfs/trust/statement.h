// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/trust/revoked_keys.h"
#include "inductorfs/trust/signing_key.h"
#include "inductorfs/trust/trusted_keys.h"

/// What a publisher signs of what it publishes (docs/formats/statements.md). Everything here is pure and safe for
/// concurrent use; times are Unix seconds.
namespace inductorfs::trust {

inline constexpr size_t kStatementEntries = 256;
inline constexpr size_t kStatementTextLimit = size_t{32} << 10;  ///< bytes
inline constexpr uint64_t kStatementLifetime = 90ULL * 24 * 3600;
inline constexpr size_t kClusterIdLimit = 64;

/// Names a path with the bytes and the mode that it has: the SHA-256 of "DIGEST SIZE MODE PATH", with the digest in
/// hexadecimal and four octal digits of the mode. So a statement has 32 bytes of each entry, and the index the rest.
[[nodiscard]] codec::Digest stated(const codec::Entry& entry);

/// The content of a statement. Its text is one line for each field, then one for each entry, in the order of their
/// digests, and has one encoding.
struct TrustStatement {
  std::string cluster;    ///< 1 to 64 printable characters of ASCII, no blank
  std::string scope;      ///< 64 lower-case hexadecimal digits
  std::string publisher;  ///< fingerprint of the key that signs
  uint64_t serial = 0;
  uint64_t issued = 0;
  uint64_t expires = 0;  ///< after `issued`, by kStatementLifetime at most; the first second that is too late
  std::vector<codec::Digest> entries;  ///< stated()
  bool operator==(const TrustStatement&) const = default;
};

/// Sorts the entries and writes the text. kInvalid: a field is none, or one entry comes twice; kTooLarge: more than
/// kStatementEntries.
[[nodiscard]] Result<std::string> statement_text(TrustStatement statement);
/// Reads a text, and refuses (kCorrupt) whatever statement_text() does not write.
[[nodiscard]] Result<TrustStatement> parse_statement(std::string_view text);

/// A text, its signature, and who signed.
struct SignedStatement {
  std::string text;
  std::string signature;  ///< 64 bytes, SSHSIG in the namespace "inductorfs"
  std::string signer;     ///< Signer::blob

  /// The bytes of one value in Redis:
  ///     value := "IFST" version head_size signer_size count head { digest } signer signature
  ///     version := u8 = 1, head_size, signer_size, count := u16, little-endian; digest := 32 bytes, of each line for
  ///     an entry at the end of the text; head := the text before them; signature := 64 bytes
  [[nodiscard]] std::string encode() const;
  /// kCorrupt: cut, longer than it says, or over a limit; kNotSupported: another version.
  [[nodiscard]] static Result<SignedStatement> decode(std::string_view bytes);
  /// The file that `ssh-keygen -Y verify -n inductorfs -s FILE` takes, with `text` as its standard input.
  [[nodiscard]] std::string armoured() const;
};

/// Signs a statement; sets its publisher. Errors are those of statement_text().
[[nodiscard]] Result<SignedStatement> sign_statement(const SigningKey& key, TrustStatement statement);

/// What a reader asks of a statement.
struct Expectation {
  std::string cluster;
  std::string scope;
  std::vector<std::string> principals;  ///< all of which its signer needs
  uint64_t now = 0;
};

/// What became of it. The statement is empty unless it is trusted.
struct Verified {
  Verdict verdict = Verdict::kMalformed;
  std::string why;  ///< a sentence for people; empty if trusted
  Decision by;
  TrustStatement statement;
};

/// Decides whether a statement counts. In this order, so that a stranger's bytes cost little: limits, the signer's
/// form, whether the signer is trusted (a certificate is verified only under a known authority), the signature over the
/// bytes of the text, and only then the text. 256 entries cost 0.6 ms, and 0.2 ms more under a certificate.
[[nodiscard]] Verified verify_statement(const SignedStatement& given, const TrustedKeys& trusted,
                                        const RevokedKeys& revoked, const Expectation& expected);

}  // namespace inductorfs::trust
