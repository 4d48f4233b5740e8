// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/trust/revoked_keys.h"
#include "inductorfs/trust/signer.h"

namespace inductorfs::trust {

/// Whether something signed counts, or the reason for which it does not. The reasons of a key first, then those of a
/// statement (trust/statement.h).
enum class Verdict {
  kTrusted,
  kUnknownKey,       ///< no line has the key, or the certificate's authority
  kWrongNamespace,   ///< the line is for other signatures
  kNotItsPrincipal,  ///< the line or the certificate does not let it sign for this
  kNotYetValid,
  kExpired,
  kRevoked,
  kMalformed,  ///< cut, damaged, or not in the one form that a statement has
  kBadSignature,
  kOtherCluster,
  kOtherScope,
  kNotYetIssued,
  kStatementExpired,
};

/// Returns the verdict as metrics and answers have it: "unknown_key".
[[nodiscard]] std::string_view to_string(Verdict verdict);

/// Clocks of hosts differ: what begins to be valid within this time is valid.
inline constexpr uint64_t kClockSkewSeconds = 300;

/// What trusted keys say of a signer. `name` and `line` are of the line that was nearest, and of no line (0) for a key
/// that is unknown. Immutable value.
struct Decision {
  Verdict verdict = Verdict::kUnknownKey;
  std::string name;  ///< the certificate's key id, or the comment of the line; bytes of others
  size_t line = 0;
};

/// The keys whose signatures count: an allowed_signers file of OpenSSH (ssh-keygen(1), ALLOWED SIGNERS). Only Ed25519
/// keys. Immutable after construction.
class TrustedKeys {
 public:
  static constexpr size_t kFileLimit = size_t{1} << 20;
  static constexpr size_t kLineLimit = 4096;
  static constexpr size_t kPatternsLimit = 1024;  ///< bytes of a list of patterns, as in OpenSSH

  /// Reads a file that only root and this user may have written (base/trusted_file.h). Blocks on the disk. kInvalid:
  /// one of its lines is wrong, so that nothing of it counts; the error names file, line, reason and remedy.
  [[nodiscard]] static Result<TrustedKeys> load(const std::string& path);
  [[nodiscard]] static Result<TrustedKeys> parse(std::string_view text, const std::string& name);

  /// Decides whether what this signer signs counts for all `needed` principals (at least one), in a namespace, at `now`
  /// (Unix seconds). One line has to fit as a whole: its patterns match each principal; if it is a cert-authority, the
  /// certificate is of that authority, genuine, valid, and has each principal literally. A certificate is never taken
  /// for its plain key. If several lines do not fit, the answer is of the one that nearly did. Costs one verification
  /// (150 us) if a certificate's authority is known, and none otherwise, nor if the certificate `is_genuine`, which a
  /// decision before has found.
  [[nodiscard]] Decision decide(const Signer& signer, const std::vector<std::string>& needed, std::string_view space,
                                uint64_t now, const RevokedKeys& revoked, bool is_genuine = false) const;
  [[nodiscard]] size_t size() const { return lines_.size(); }

  struct Line {
    size_t number = 0;
    PublicKey key;
    std::string principals;
    std::string comment;
    std::string namespaces;  ///< patterns; empty: all
    bool is_authority = false;
    uint64_t valid_after = 0;
    uint64_t valid_before = UINT64_MAX;  ///< the last second that is valid
  };

 private:
  std::vector<Line> lines_;
};

}  // namespace inductorfs::trust
