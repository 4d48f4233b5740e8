// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/trust/signer.h"

namespace inductorfs::trust {

/// The keys and certificates that count no more: what RevokedKeys of sshd_config(5) takes, a list of public keys, one a
/// line, or a binary list that `ssh-keygen -k` makes (OpenSSH's PROTOCOL.krl), and fingerprints that orders name. Keys
/// of other types are read, and match no signer. Reading is safe for concurrent use; merging needs external
/// synchronisation.
class RevokedKeys {
 public:
  static constexpr size_t kFileLimit = size_t{1} << 20;

  /// Reads a list that only root and this user may have written (base/trusted_file.h). Blocks on the disk. kInvalid:
  /// something in it is unknown or damaged, so that nothing of it counts; the error names file, line and reason.
  [[nodiscard]] static Result<RevokedKeys> load(const std::string& path);
  [[nodiscard]] static Result<RevokedKeys> parse(std::string_view bytes, const std::string& name);

  /// Adds "SHA256:...", as `ssh-keygen -l` prints it. kInvalid: it is none.
  [[nodiscard]] Result<void> add_fingerprint(std::string_view fingerprint);
  void merge(const RevokedKeys& others);

  /// Says whether the signer's key, its certificate, or its certificate's authority is revoked.
  [[nodiscard]] bool has(const Signer& signer) const;
  [[nodiscard]] bool empty() const { return sha256_.empty() && sha1_.empty() && certificates_.empty(); }

 private:
  /// What is revoked of the certificates of one authority, or of all of them.
  struct OfAuthority {
    std::string authority;                                  ///< blob; empty: any
    std::vector<std::pair<uint64_t, uint64_t>> serials;     ///< from, to; both are revoked
    std::vector<std::pair<uint64_t, std::string>> bitmaps;  ///< serial of the lowest bit; big-endian
    std::set<std::string, std::less<>> key_ids;
  };
  [[nodiscard]] Result<void> read_lines(std::string_view text, const std::string& name);
  /// These answer false for what is damaged or unknown.
  [[nodiscard]] bool read_list(std::string_view bytes);
  [[nodiscard]] bool read_section(uint8_t type, std::string_view data);
  [[nodiscard]] static bool read_part(OfAuthority& into, uint8_t type, std::string_view data);
  [[nodiscard]] bool has_key(std::string_view blob) const;
  [[nodiscard]] static bool has_certificate(const OfAuthority& of, const Certificate& certificate);

  std::set<std::string, std::less<>> sha256_;  ///< of blobs of keys: 32 bytes
  std::set<std::string, std::less<>> sha1_;
  std::vector<OfAuthority> certificates_;
};

}  // namespace inductorfs::trust
