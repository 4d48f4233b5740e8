// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/trust/ssh_signature.h"

#include <openssl/evp.h>

#include <array>

#include "trust/wire.h"

namespace inductorfs::trust {
namespace {

constexpr std::string_view kMagic = "SSHSIG";
constexpr uint32_t kVersion = 1;
constexpr std::string_view kHash = "sha512";

/// What is signed in place of the text.
std::string signed_for(std::string_view space, std::string_view text) {
  std::array<char, EVP_MAX_MD_SIZE> hash{};
  unsigned size = 0;
  INDUCTORFS_CHECK(EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(hash.data()), &size,
                              EVP_sha512(), nullptr) == 1);
  std::string bytes(kMagic);
  for (const std::string_view part : {space, std::string_view(), kHash, std::string_view(hash.data(), size)}) {
    append_string(bytes, part);
  }
  return bytes;
}

}  // namespace

std::string sign_text(const SigningKey& key, std::string_view space, std::string_view text) {
  return key.sign(signed_for(space, text));
}

bool is_signed_by(const PublicKey& key, std::string_view space, std::string_view text, std::string_view signature) {
  return key.has_signed(signed_for(space, text), signature);
}

std::string armoured_signature(std::string_view signer_blob, std::string_view space, std::string_view signature) {
  std::string inner;
  append_string(inner, kKeyType);
  append_string(inner, signature);
  std::string bytes(kMagic);
  append_number(bytes, kVersion);
  for (const std::string_view part : {signer_blob, space, std::string_view(), kHash, std::string_view(inner)}) {
    append_string(bytes, part);
  }
  return to_armour(bytes, "SSH SIGNATURE");
}

}  // namespace inductorfs::trust
