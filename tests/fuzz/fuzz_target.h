// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "inductorfs/base/encoding.h"
#include "inductorfs/base/result.h"

/// What every target is: libFuzzer's entry point, or that of replay_main.cc. Each checks what must hold of any input,
/// not only that nothing crashes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace inductorfs::fuzz {

inline std::string_view view(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

/// The first byte, which picks what the rest is. Requires: not empty.
inline uint8_t take_byte(std::string_view& input) {
  const auto byte = static_cast<uint8_t>(input.front());
  input.remove_prefix(1);
  return byte;
}

/// What stands before and after the first NUL; no second half where there is none.
inline std::pair<std::string_view, std::string_view> halves(std::string_view input) {
  const size_t end = input.find('\0');
  if (end == std::string_view::npos) return {input, {}};
  return {input.substr(0, end), input.substr(end + 1)};
}

/// The bytes with the check that their format ends with: a fuzzer would never find it.
inline std::string checked(std::string_view bytes, std::string_view path = {}) {
  std::string out(bytes);
  append_integer(out, crc32(path, crc32(bytes)));
  return out;
}

}  // namespace inductorfs::fuzz
