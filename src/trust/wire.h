// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/encoding.h"
#include "inductorfs/base/result.h"

/// The encodings of SSH (RFC 4251, section 5): big-endian integers, and strings with their length before them.
namespace inductorfs::trust {

inline void append_number(std::string& out, uint32_t value) { append_integer(out, __builtin_bswap32(value)); }
inline void append_string(std::string& out, std::string_view bytes) {
  append_number(out, static_cast<uint32_t>(bytes.size()));
  out.append(bytes);
}

/// A ByteReader of such encodings. Needs external synchronisation.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : reader_(bytes) {}
  [[nodiscard]] uint8_t byte() { return reader_.integer<uint8_t>(); }
  [[nodiscard]] uint32_t number() { return __builtin_bswap32(reader_.integer<uint32_t>()); }
  [[nodiscard]] uint64_t long_number() { return __builtin_bswap64(reader_.integer<uint64_t>()); }
  [[nodiscard]] std::string_view string() { return reader_.bytes(number()); }
  [[nodiscard]] std::string_view bytes(size_t size) { return reader_.bytes(size); }
  [[nodiscard]] bool failed() const { return reader_.failed(); }
  [[nodiscard]] bool complete() const { return reader_.complete(); }
  [[nodiscard]] bool more() const { return reader_.left() > 0; }
  [[nodiscard]] size_t left() const { return reader_.left(); }

 private:
  ByteReader reader_;
};

/// RFC 4648 base64, with padding.
[[nodiscard]] std::string to_base64(std::string_view bytes);
/// Empty unless `text` is whole, padded and has nothing else in it.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);
/// The text between two lines, 70 characters a line, as OpenSSH writes private keys and signatures.
[[nodiscard]] std::string to_armour(std::string_view bytes, std::string_view what);

/// Bytes that are cleared at the end. Not copied, and never made longer. Needs external synchronisation.
struct SecretBytes {
  SecretBytes() = default;
  explicit SecretBytes(std::string&& taken) : bytes(std::move(taken)) {}
  SecretBytes(const SecretBytes&) = delete;
  SecretBytes& operator=(const SecretBytes&) = delete;
  ~SecretBytes();
  std::string bytes;
};

/// Reads a file that only root and this user may have written. An error names the file; `what` it is: "trusted keys".
[[nodiscard]] Result<std::string> read_trusted_list(std::string_view what, const std::string& path, uint64_t limit);

/// Says where text has lines that end as on Windows; 0 if none does.
[[nodiscard]] size_t line_with_return(std::string_view text);

}  // namespace inductorfs::trust
