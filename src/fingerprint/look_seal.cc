// SPDX-License-Identifier: Apache-2.0
#include "look_seal.h"

#include <sys/random.h>

#include <array>
#include <cstring>

#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/fingerprint/examiner.h"

namespace inductorfs::fingerprint {
namespace {

/// Twice, as HMAC does it: who knows the digest of a text does not know that of a longer one.
std::string keyed(const std::string& key, std::string_view text) {
  codec::Hasher inner;
  inner.update("inner ");
  inner.update(key);
  inner.update(text);
  codec::Hasher outer;
  outer.update("outer ");
  outer.update(key);
  outer.update(inner.finish().to_hex());
  return outer.finish().to_hex();
}

}  // namespace

std::string new_seal_secret() {
  std::array<char, 32> bytes{};
  INDUCTORFS_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return codec::digest_of({bytes.data(), bytes.size()}).to_hex();
}

std::string seal_key(const std::string& secret, pid_t pid, uint64_t start, uid_t owner) {
  return keyed(secret, std::to_string(pid) + " " + std::to_string(start) + " " + std::to_string(owner));
}

std::string seal_of(const std::string& key, std::string_view what, std::string_view text) {
  return keyed(key, std::string(what).append(" ").append(text));
}

void forget(const SealSecret& secret) {
  if (secret) ::explicit_bzero(secret->data(), secret->size());
}

}  // namespace inductorfs::fingerprint
