// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "inductorfs/base/result.h"
#include "inductorfs/trust/signer.h"

namespace inductorfs::trust {

/// The private key of whoever signs: an Ed25519 key in OpenSSH's file format ("openssh-key-v1", PROTOCOL.key), without
/// a passphrase. The private part is held by OpenSSL, which clears it at the end; every buffer it went through is
/// cleared too, and no function returns or prints it. Movable. Safe for concurrent use.
class SigningKey {
 public:
  static constexpr size_t kFileLimit = size_t{64} << 10;

  /// Reads a key, and FILE-cert.pub beside it if that exists. The file is opened without following a link in its last
  /// name, must be regular, of root or the effective user, without rights for group and others, of at most kFileLimit
  /// bytes. Blocks on the disk. kNotPermitted: owner or mode; kInvalid: another kind of key, or damaged; others are
  /// those of open(2). Each error names the file, and the remedy.
  [[nodiscard]] static Result<SigningKey> load(const std::string& path);
  /// Reads the text of such a file. `name` is the file in errors.
  [[nodiscard]] static Result<SigningKey> parse(std::string_view text, const std::string& name);
  /// Makes a new key, writes it to `path` (mode 0600) and its public line to `path`.pub, and returns it. Neither file
  /// may exist: kExists. The private file is on the disk when this returns.
  [[nodiscard]] static Result<SigningKey> generate(const std::string& path, std::string_view comment);

  SigningKey(SigningKey&&) noexcept;
  SigningKey& operator=(SigningKey&&) noexcept;
  ~SigningKey();

  [[nodiscard]] const PublicKey& public_key() const { return signer_.key; }
  /// The certificate too, if there is one.
  [[nodiscard]] const Signer& signer() const { return signer_; }
  /// "ssh-ed25519 AAAA... COMMENT"
  [[nodiscard]] std::string public_line() const;
  /// Returns the 64 bytes of a signature over exactly these bytes. Some 50 us.
  [[nodiscard]] std::string sign(std::string_view bytes) const;

 private:
  struct Private;
  SigningKey(std::unique_ptr<Private> key, Signer signer);
  [[nodiscard]] Result<void> take_certificate(const std::string& path);

  std::unique_ptr<Private> private_;
  Signer signer_;
};

}  // namespace inductorfs::trust
