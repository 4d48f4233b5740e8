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

/// SHA-256 of an artefact's bytes: its name in the store and in the cluster. Immutable value.
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
/// Digest of the whole file behind `fd`, read from offset 0 in pieces; the file offset does not move.
[[nodiscard]] Result<Digest> digest_of_file(int fd);

/// Incremental SHA-256. Needs external synchronisation.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  void update(std::string_view bytes);
  /// Requires: called once.
  [[nodiscard]] Digest finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The first 51 characters of lower-case base32(sha256(bytes)), alphabet a-z2-7: how torch names code and keys
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
