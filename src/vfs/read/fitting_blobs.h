// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "inductorfs/base/guarded.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::vfs {

/// Remembers which blob was found to fit which name, so that this is checked once and not at each lookup. It does so by
/// name and not by family, because what a check compares is also in the name (the hash, for an fxgraph entry).
/// Safe for concurrent use.
class FittingBlobs {
 public:
  /// The most that is remembered; beyond it everything is forgotten and checked anew.
  static constexpr size_t kLimit = 16'384;

  /// Returns the age to pass to remember(); it must be taken before the check.
  [[nodiscard]] uint64_t age() const {
    return known_.with([](const Known& known) { return known.age; });
  }
  [[nodiscard]] bool fits(const std::string& path, const codec::Digest& digest) const {
    return known_.with([&](const Known& known) {
      const auto found = known.blobs.find(path);
      return found != known.blobs.end() && found->second == digest;
    });
  }
  /// Remembers a fit, unless the host has changed since `age`.
  void remember(const std::string& path, const codec::Digest& digest, uint64_t age) {
    known_.with([&](Known& known) {
      if (known.age != age) return;
      if (known.blobs.size() >= kLimit) known.blobs.clear();
      known.blobs.insert_or_assign(path, digest);
    });
  }
  /// Calls `use`, under the lock, unless the host has changed since `age`. A later call of forget() then finds what
  /// `use` noted.
  template <typename F>
  void unless_changed(uint64_t age, F&& use) {
    known_.with([&](const Known& known) {
      if (known.age == age) use();
    });
  }
  /// Forgets everything that was found out, because the host has changed.
  void forget() {
    known_.with([](Known& known) {
      ++known.age;
      known.blobs.clear();
    });
  }
  [[nodiscard]] size_t size() const {
    return known_.with([](const Known& known) { return known.blobs.size(); });
  }

 private:
  struct Known {
    uint64_t age = 0;
    std::unordered_map<std::string, codec::Digest> blobs;
  };
  Guarded<Known> known_;
};

}  // namespace inductorfs::vfs
