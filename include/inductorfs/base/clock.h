// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace inductorfs {

using SteadyTime = std::chrono::steady_clock::time_point;
using Milliseconds = std::chrono::milliseconds;

/// Nanoseconds since the Unix epoch, as files carry them.
using WallNanoseconds = int64_t;

/// The only source of time for code whose behaviour depends on it, so that tests can set the time.
/// Safe for concurrent use.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual SteadyTime now() const = 0;
  [[nodiscard]] virtual WallNanoseconds wall_now() const = 0;
};

/// Returns the real clock, which lives for the whole process.
[[nodiscard]] const Clock& system_clock();

/// The moment until which an operation may go on, on the steady clock. Immutable after construction.
class Deadline {
 public:
  explicit Deadline(SteadyTime at) : at_(at) {}
  [[nodiscard]] static Deadline after(Milliseconds span) { return Deadline(std::chrono::steady_clock::now() + span); }
  [[nodiscard]] SteadyTime at() const { return at_; }
  [[nodiscard]] bool passed() const { return std::chrono::steady_clock::now() >= at_; }
  /// Returns the time that is left, never negative; it is rounded up, so that poll(2) does not spin.
  [[nodiscard]] Milliseconds left() const;
  [[nodiscard]] Deadline earlier(Milliseconds span) const;

 private:
  SteadyTime at_;
};

}  // namespace inductorfs
