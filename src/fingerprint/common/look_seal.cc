// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/common/look_seal.h"

#include <sys/random.h>

#include <array>
#include <cstring>

#include "inductorfs/base/result.h"
#include "inductorfs/codec/keyed_digest.h"
#include "inductorfs/fingerprint/examiner.h"

namespace inductorfs::fingerprint {

std::string new_seal_secret() {
  std::array<char, 32> bytes{};
  INDUCTORFS_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return codec::digest_of({bytes.data(), bytes.size()}).to_hex();
}

std::string seal_key(const std::string& secret, pid_t pid, uint64_t start, uid_t owner) {
  const std::string whose = std::to_string(pid) + " " + std::to_string(start) + " " + std::to_string(owner);
  return codec::keyed_digest_of(secret, whose).to_hex();
}

std::string seal_of(const std::string& key, std::string_view what, std::string_view text) {
  return codec::keyed_digest_of(key, std::string(what).append(" ").append(text)).to_hex();
}

void forget(const SealSecret& secret) {
  if (secret) ::explicit_bzero(secret->data(), secret->size());
}

}  // namespace inductorfs::fingerprint
