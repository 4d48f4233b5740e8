// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
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

/// How often something took how long. A duration counts in the first bucket whose bound it does not exceed.
/// Safe for concurrent use. observe() takes no lock, and costs a few nanoseconds.
class Histogram {
 public:
  /// The bounds of the buckets in nanoseconds, from a request that the page cache answers (10 us) to a publish that
  /// waits for a server (1 h). A last bucket without a bound follows them.
  static constexpr std::array<uint64_t, 16> kBounds{10'000,         25'000,         50'000,          100'000,
                                                    250'000,        1'000'000,      5'000'000,       25'000'000,
                                                    100'000'000,    250'000'000,    1'000'000'000,   2'500'000'000,
                                                    10'000'000'000, 60'000'000'000, 600'000'000'000, 3'600'000'000'000};
  struct Snapshot {
    std::array<uint64_t, kBounds.size() + 1> cumulative{};  ///< observations up to each bound; the last is their number
    uint64_t sum = 0;                                       ///< nanoseconds

    [[nodiscard]] uint64_t count() const noexcept { return cumulative.back(); }
  };

  void observe(uint64_t nanoseconds) noexcept;
  /// The buckets agree with each other and with count(). `sum` may lack an observation of this moment.
  [[nodiscard]] Snapshot snapshot() const noexcept;

 private:
  std::array<std::atomic<uint64_t>, kBounds.size() + 1> buckets_{};
  std::atomic<uint64_t> sum_{0};
};

/// The counters of one mount, by name ("fuse.lookup", "fetch.corrupt"). A caller looks a counter up once and keeps the
/// reference, which is valid as long as this object. Safe for concurrent use.
class Counters {
 public:
  Counters();
  ~Counters();
  [[nodiscard]] Counter& get(std::string_view name);
  [[nodiscard]] std::map<std::string, uint64_t> snapshot() const;
  /// The same for histograms, whose names are their own ("fuse.request").
  [[nodiscard]] Histogram& histogram(std::string_view name);
  [[nodiscard]] std::map<std::string, Histogram::Snapshot> histograms() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace inductorfs
