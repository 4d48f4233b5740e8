// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace inductorfs {

/// A number that only grows, or a gauge. Safe for concurrent use.
class Counter {
 public:
  void add(uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  void set(uint64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
  [[nodiscard]] uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

/// The counters of one mount, by name ("fuse.lookup", "fetch.corrupt"). A caller looks a counter up once and keeps the
/// reference, which is valid as long as this object. Safe for concurrent use.
class Counters {
 public:
  Counters();
  ~Counters();
  [[nodiscard]] Counter& get(std::string_view name);
  [[nodiscard]] std::map<std::string, uint64_t> snapshot() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace inductorfs
