// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "inductorfs/base/result.h"
#include "inductorfs/layout/layout.h"

/// The input and the errors of the checks of an artefact's content. Everything is pure and safe for concurrent use.
namespace inductorfs::layout {

/// An artefact as a check sees it: its name and its bytes, which must outlive it. Immutable after construction.
struct Artefact {
  std::string_view name;   ///< the path's last component
  std::string_view bytes;  ///< all, or the first part
  uint64_t size = 0;
  [[nodiscard]] bool whole() const { return bytes.size() == size; }
};

/// Makes the error for an artefact that contradicts its name or is damaged: no host can use it.
[[nodiscard]] inline tl::unexpected<Error> corrupt(const Artefact& artefact, std::string_view what) {
  return fail(ErrorCode::kCorrupt, std::string(artefact.name) + ": " + std::string(what));
}
/// Makes the error for an artefact that is sound, but for another host.
[[nodiscard]] inline tl::unexpected<Error> foreign(const Artefact& artefact, std::string_view what) {
  return fail(ErrorCode::kNotSupported, std::string(artefact.name) + ": " + std::string(what));
}
/// Makes the error for a caller that gave fewer bytes than bytes_to_check() asks for.
[[nodiscard]] inline tl::unexpected<Error> wants_whole() {
  return fail(ErrorCode::kInvalid, "the check needs every byte");
}

/// Reads little-endian numbers anywhere in untrusted bytes. Outside of them it answers zero, and ok() is false from
/// then on. Confined to the thread of one check.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] uint64_t size() const { return bytes_.size(); }
  [[nodiscard]] bool has(uint64_t at, uint64_t length) const {
    return at <= bytes_.size() && length <= bytes_.size() - at;
  }
  uint64_t number(uint64_t at, uint64_t length) {
    if (!has(at, length)) {
      ok_ = false;
      return 0;
    }
    uint64_t value = 0;
    for (uint64_t i = length; i > 0; --i) value = (value << 8U) | static_cast<uint8_t>(bytes_[at + i - 1]);
    return value;
  }
  /// Returns the bytes; none if they are not all there.
  std::string_view piece(uint64_t at, uint64_t length) {
    if (!has(at, length)) {
      ok_ = false;
      return {};
    }
    return bytes_.substr(at, length);
  }
  /// Returns a string that ends with a NUL within the bytes, and within `limit`.
  std::string_view text(uint64_t at, uint64_t limit) {
    const std::string_view rest = has(at, 1) ? bytes_.substr(at, limit) : std::string_view();
    const size_t end = rest.find('\0');
    if (end == std::string_view::npos) {
      ok_ = false;
      return {};
    }
    return rest.substr(0, end);
  }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace inductorfs::layout
