// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/counters.h"

#include <algorithm>
#include <functional>

#include "inductorfs/base/guarded.h"

namespace inductorfs {

namespace {

// A node of std::map never moves: references to its values stay good.
template <typename Value>
using ByName = SharedGuarded<std::map<std::string, Value, std::less<>>>;

template <typename Value>
Value& find_or_make(ByName<Value>& all, std::string_view name) {
  Value* found = all.write([&](auto& by_name) {
    const auto at = by_name.find(name);
    return at != by_name.end() ? &at->second : &by_name.try_emplace(std::string(name)).first->second;
  });
  return *found;
}

}  // namespace

void Histogram::observe(uint64_t nanoseconds) noexcept {
  const auto bucket = std::lower_bound(kBounds.begin(), kBounds.end(), nanoseconds) - kBounds.begin();
  buckets_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(nanoseconds, std::memory_order_relaxed);
}

Histogram::Snapshot Histogram::snapshot() const noexcept {
  Snapshot now;
  uint64_t sum = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    now.cumulative[i] = sum += buckets_[i].load(std::memory_order_relaxed);
  }
  now.sum = sum_.load(std::memory_order_relaxed);
  return now;
}

struct Counters::State {
  ByName<Counter> counters;
  ByName<Histogram> histograms;
};

Counters::Counters() : state_(std::make_unique<State>()) {}
Counters::~Counters() = default;

Counter& Counters::get(std::string_view name) { return find_or_make(state_->counters, name); }

std::map<std::string, uint64_t> Counters::snapshot() const {
  std::map<std::string, uint64_t> values;
  state_->counters.read([&](const auto& by_name) {
    for (const auto& [name, counter] : by_name) values.emplace(name, counter.get());
  });
  return values;
}

Histogram& Counters::histogram(std::string_view name) { return find_or_make(state_->histograms, name); }

std::map<std::string, Histogram::Snapshot> Counters::histograms() const {
  std::map<std::string, Histogram::Snapshot> values;
  state_->histograms.read([&](const auto& by_name) {
    for (const auto& [name, histogram] : by_name) values.emplace(name, histogram.snapshot());
  });
  return values;
}

}  // namespace inductorfs
