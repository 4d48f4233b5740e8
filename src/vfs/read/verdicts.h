// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "inductorfs/base/guarded.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::vfs {

/// Which blob was found to fit which name, so that this is looked at once and not at each lookup. By name, not by
/// family: what a check asks is in the name, too (of an fxgraph entry the hash). Safe for concurrent use.
class Verdicts {
 public:
  /// What is remembered at most; then all of it is found out anew.
  static constexpr size_t kLimit = 16'384;

  /// To be taken before a check, for remember().
  [[nodiscard]] uint64_t age() const {
    return known_.with([](const Known& known) { return known.age; });
  }
  [[nodiscard]] bool fits(const std::string& path, const codec::Digest& digest) const {
    return known_.with([&](const Known& known) {
      const auto found = known.blobs.find(path);
      return found != known.blobs.end() && found->second == digest;
    });
  }
  /// Nothing when the host has changed since `age`.
  void remember(const std::string& path, const codec::Digest& digest, uint64_t age) {
    known_.with([&](Known& known) {
      if (known.age != age) return;
      if (known.blobs.size() >= kLimit) known.blobs.clear();
      known.blobs.insert_or_assign(path, digest);
    });
  }
  /// Calls `use`, under the lock, unless the host has changed since `age`: what it notes, who calls forget() next
  /// meets.
  template <typename F>
  void unless_changed(uint64_t age, F&& use) {
    known_.with([&](const Known& known) {
      if (known.age == age) use();
    });
  }
  /// The host is another: nothing that was found out counts.
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
