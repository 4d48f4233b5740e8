// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/counters.h"

#include <functional>

#include "inductorfs/base/guarded.h"

namespace inductorfs {

struct Counters::State {
  // A node of std::map never moves: references to its counters stay good.
  using ByName = std::map<std::string, Counter, std::less<>>;
  SharedGuarded<ByName> by_name;
};

Counters::Counters() : state_(std::make_unique<State>()) {}
Counters::~Counters() = default;

Counter& Counters::get(std::string_view name) {
  Counter* found = state_->by_name.write([&](State::ByName& by_name) {
    const auto at = by_name.find(name);
    return at != by_name.end() ? &at->second : &by_name.try_emplace(std::string(name)).first->second;
  });
  return *found;
}

std::map<std::string, uint64_t> Counters::snapshot() const {
  std::map<std::string, uint64_t> values;
  state_->by_name.read([&](const State::ByName& by_name) {
    for (const auto& [name, counter] : by_name) values.emplace(name, counter.get());
  });
  return values;
}

}  // namespace inductorfs
