// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "inductorfs/trust/signing_key.h"

/// Signatures of text as `ssh-keygen -Y sign` makes them (OpenSSH's PROTOCOL.sshsig), with SHA-512. The namespace says
/// what a signature is for, so that one of this program is none of anything else. Everything here is pure and safe for
/// concurrent use.
namespace inductorfs::trust {

/// Of everything that this program signs.
inline constexpr std::string_view kNamespace = "inductorfs";

/// Returns the 64 bytes of the signature.
[[nodiscard]] std::string sign_text(const SigningKey& key, std::string_view space, std::string_view text);
[[nodiscard]] bool is_signed_by(const PublicKey& key, std::string_view space, std::string_view text,
                                std::string_view signature);
/// Returns the file that `ssh-keygen -Y verify -s FILE` takes. `signer_blob` is Signer::blob.
[[nodiscard]] std::string armoured_signature(std::string_view signer_blob, std::string_view space,
                                             std::string_view signature);

}  // namespace inductorfs::trust
