// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/codec/keyed_digest.h"

#include <openssl/evp.h>

#include "inductorfs/base/result.h"

namespace inductorfs::codec {

Digest keyed_digest_of(std::string_view key, std::string_view bytes) {
  Digest digest;
  size_t size = 0;
  const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
  const unsigned char* const made = EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, key.data(), key.size(), data,
                                              bytes.size(), digest.bytes.data(), digest.bytes.size(), &size);
  INDUCTORFS_CHECK(made != nullptr && size == digest.bytes.size());
  return digest;
}

}  // namespace inductorfs::codec
