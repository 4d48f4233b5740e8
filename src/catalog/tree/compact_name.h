// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

#include "inductorfs/codec/entry.h"

namespace inductorfs::catalog {

/// A component of a path in one allocation. As the key of a map with very many nodes it takes 24 bytes less than a
/// std::string, which most names do not fit into. Immutable after construction.
class CompactName {
 public:
  /// Requires: name.size() <= codec::kPathLimit.
  explicit CompactName(std::string_view name) : bytes_(std::make_unique<char[]>(sizeof(Length) + name.size())) {
    const auto length = static_cast<Length>(name.size());
    std::memcpy(bytes_.get(), &length, sizeof length);
    std::memcpy(bytes_.get() + sizeof length, name.data(), length);
  }

  operator std::string_view() const {
    Length length = 0;
    std::memcpy(&length, bytes_.get(), sizeof length);
    return {bytes_.get() + sizeof length, length};
  }

  /// Orders names and views of names alike.
  struct Less {
    using is_transparent = void;
    bool operator()(std::string_view one, std::string_view other) const { return one < other; }
  };

 private:
  using Length = uint16_t;
  static_assert(codec::kPathLimit <= UINT16_MAX);
  std::unique_ptr<char[]> bytes_;
};

}  // namespace inductorfs::catalog
