// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "fingerprint/processes/writers_process.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"

namespace inductorfs::fingerprint {

/// One examination of a writing process, on a background thread. Safe for concurrent use.
class Look {
 public:
  /// nullptr means that the process cannot be examined.
  using Found = std::shared_ptr<const Writer>;

  [[nodiscard]] SteadyTime begun() const { return begun_; }
  /// Returns the result; empty while the examination is under way.
  [[nodiscard]] std::optional<Found> found() const {
    return found_.with([](const auto& found) { return found; });
  }
  /// Waits for the result until `until`, and returns it as found() does.
  [[nodiscard]] std::optional<Found> wait(SteadyTime until) const {
    return found_.wait_until(
        until, [](const auto& found) { return found.has_value(); }, [](const auto& found) { return found; });
  }
  void finish(Found result) {
    found_.notify_with([&](auto& found) { found = std::move(result); });
  }

 private:
  const SteadyTime begun_ = system_clock().now();
  mutable Guarded<std::optional<Found>> found_;
};

}  // namespace inductorfs::fingerprint
