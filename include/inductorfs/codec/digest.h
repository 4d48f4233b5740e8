// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/result.h"

namespace inductorfs::codec {

/// The SHA-256 of an artefact's bytes, which is the artefact's name in the store and in the cluster. Immutable value.
struct Digest {
  static constexpr size_t kSize = 32;
  std::array<uint8_t, kSize> bytes{};

  auto operator<=>(const Digest&) const = default;
  [[nodiscard]] std::string to_hex() const;
  /// The 32 raw bytes, as Redis keys carry them.
  [[nodiscard]] std::string_view raw() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
  [[nodiscard]] static std::optional<Digest> from_hex(std::string_view hex);
  [[nodiscard]] static std::optional<Digest> from_raw(std::string_view raw);
};

[[nodiscard]] Digest digest_of(std::string_view bytes);
/// Computes the digest of the whole file behind `fd`. It reads from offset 0 in pieces, and the file offset does not
/// move.
[[nodiscard]] Result<Digest> digest_of_file(int fd);

/// Computes a SHA-256 in steps. Needs external synchronisation.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  void update(std::string_view bytes);
  /// Returns the digest of all bytes. Must be called at most once, after the last update().
  [[nodiscard]] Digest finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns the first 51 characters of lower-case base32(sha256(bytes)), alphabet a-z2-7: how torch names code and keys
/// (torch/_inductor/codecache.py: sha256_hash).
[[nodiscard]] std::string torch_hash(std::string_view bytes);

}  // namespace inductorfs::codec

template <>
struct std::hash<inductorfs::codec::Digest> {
  size_t operator()(const inductorfs::codec::Digest& digest) const noexcept {
    size_t value = 0;
    std::memcpy(&value, digest.bytes.data(), sizeof value);
    return value;
  }
};
