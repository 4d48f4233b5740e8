// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/codec/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <utility>

#include "inductorfs/base/encoding.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/handle.h"

namespace inductorfs::codec {
namespace {

using MdContext = Handle<EVP_MD_CTX, EVP_MD_CTX_free>;

constexpr size_t kFilePiece = 128ULL * 1024;
constexpr size_t kTorchHashLength = 51;

/// Fetched once and never freed: an implicit fetch in each EVP_DigestInit costs more than hashing 4 KiB (OpenSSL 3).
const EVP_MD* sha256() {
  static const EVP_MD* const algorithm = [] {
    const EVP_MD* fetched = EVP_MD_fetch(nullptr, "SHA256", nullptr);
    INDUCTORFS_CHECK(fetched != nullptr);
    return fetched;
  }();
  return algorithm;
}

/// One idle context a thread. It is taken out while in use, so that hashers may overlap and cross threads.
MdContext& idle_context() {
  thread_local MdContext context;
  return context;
}

MdContext take_context() {
  MdContext context = std::move(idle_context());
  if (!context) context.reset(EVP_MD_CTX_new());
  INDUCTORFS_CHECK(context != nullptr);
  INDUCTORFS_CHECK(EVP_DigestInit_ex(context.get(), sha256(), nullptr) == 1);
  return context;
}

}  // namespace

struct Hasher::State {
  MdContext context = take_context();
  State() = default;
  ~State() { idle_context() = std::move(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::update(std::string_view bytes) {
  INDUCTORFS_CHECK(state_ != nullptr);
  INDUCTORFS_CHECK(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()) == 1);
}

Digest Hasher::finish() {
  INDUCTORFS_CHECK(state_ != nullptr);
  Digest digest;
  INDUCTORFS_CHECK(EVP_DigestFinal_ex(state_->context.get(), digest.bytes.data(), nullptr) == 1);
  state_.reset();
  return digest;
}

std::string Digest::to_hex() const { return inductorfs::to_hex(raw()); }

std::optional<Digest> Digest::from_hex(std::string_view hex) {
  const auto raw = inductorfs::from_hex(hex);
  if (!raw) return std::nullopt;
  return from_raw(*raw);
}

std::optional<Digest> Digest::from_raw(std::string_view raw) {
  if (raw.size() != kSize) return std::nullopt;
  Digest digest;
  std::memcpy(digest.bytes.data(), raw.data(), kSize);
  return digest;
}

Digest digest_of(std::string_view bytes) {
  Hasher hasher;
  hasher.update(bytes);
  return hasher.finish();
}

Result<Digest> digest_of_file(int fd) {
  Hasher hasher;
  std::string buffer(kFilePiece, '\0');
  for (uint64_t offset = 0;;) {
    const auto got = pread_full(fd, buffer.data(), buffer.size(), offset);
    INDUCTORFS_TRY(got);
    hasher.update(std::string_view(buffer).substr(0, *got));
    if (*got < buffer.size()) return hasher.finish();
    offset += *got;
  }
}

std::string torch_hash(std::string_view bytes) { return to_base32(digest_of(bytes).raw()).substr(0, kTorchHashLength); }

}  // namespace inductorfs::codec
