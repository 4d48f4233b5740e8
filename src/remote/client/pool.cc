// SPDX-License-Identifier: Apache-2.0
#include "remote/client/pool.h"

#include <algorithm>
#include <utility>

namespace inductorfs::remote {

ConnectionPool::ConnectionPool(std::array<size_t, kUses> limits, std::function<uint64_t()> epoch)
    : epoch_(std::move(epoch)) {
  lanes_.with([&](Lanes& lanes) {
    for (size_t i = 0; i < kUses; ++i) lanes[i].limit = std::max<size_t>(limits[i], 1);
  });
}

ConnectionPool::Grant ConnectionPool::claim(Use use, Deadline deadline) {
  const auto index = static_cast<size_t>(use);
  const auto free_one = [index](const Lanes& lanes) {
    return !lanes[index].idle.empty() || lanes[index].open < lanes[index].limit;
  };
  return lanes_.wait_until(deadline.at(), free_one, [&](Lanes& lanes) {
    Grant slot;
    if (!free_one(lanes)) return slot;
    slot.granted = true;
    Lane& lane = lanes[index];
    if (lane.idle.empty()) {
      ++lane.open;
    } else {
      Idle& warmest = lane.idle.back();  // the coldest are the first to be found dead
      slot.connection = std::move(warmest.connection);
      slot.epoch = warmest.epoch;
      lane.idle.pop_back();
    }
    return slot;
  });
}

// The end moves on while those who have the connections get something.
ConnectionPool::Grant ConnectionPool::stand_in_line(Use use, Deadline deadline, Budget& budget) {
  while (true) {
    const Deadline until(std::min(deadline.at(), budget.end_in_line().at()));
    Grant slot = claim(use, until);
    if (slot.granted) budget.take_turn();
    if (slot.granted || deadline.passed() || budget.end_in_line().passed()) return slot;
  }
}

Result<ConnectionPool::Lease> ConnectionPool::take(Use use, Deadline deadline, const Opener& opener,
                                                   Freshness freshness, Budget* budget) {
  if (freshness == Freshness::kNew) drop_idle(use);
  Grant slot = budget == nullptr ? claim(use, deadline) : stand_in_line(use, deadline, *budget);
  if (!slot.granted) return fail(ErrorCode::kBusy, "all connections are in use");
  if (slot.connection != nullptr && !slot.connection->broken() && slot.epoch == epoch_()) {
    return Lease(this, use, std::move(slot.connection), slot.epoch, true);
  }
  slot.connection.reset();
  // From before it is opened, so that it is not taken for one to a later server; opening it may tell of that one.
  uint64_t epoch = epoch_();
  auto opened = opener(deadline);
  if (opened && epoch != epoch_()) {
    epoch = epoch_();
    opened->reset();
    opened = opener(deadline);
  }
  if (!opened) {
    release(use);
    return fail(std::move(opened).error());
  }
  return Lease(this, use, std::move(*opened), epoch, false);
}

std::optional<ConnectionPool::Lease> ConnectionPool::take_idle(Use use) {
  while (true) {
    std::optional<Idle> idle = lanes_.with([use](Lanes& lanes) -> std::optional<Idle> {
      Lane& lane = lanes[static_cast<size_t>(use)];
      if (lane.idle.empty()) return std::nullopt;
      Idle warmest = std::move(lane.idle.back());
      lane.idle.pop_back();
      return warmest;
    });
    if (!idle) return std::nullopt;
    if (!idle->connection->broken() && idle->epoch == epoch_()) {
      return std::optional<Lease>(std::in_place, this, use, std::move(idle->connection), idle->epoch, true);
    }
    idle.reset();
    release(use);
  }
}

void ConnectionPool::drop_idle(Use use) {
  std::vector<Idle> dropped;  // closed after the lock is gone
  lanes_.notify_with([&](Lanes& lanes) {
    Lane& lane = lanes[static_cast<size_t>(use)];
    lane.open -= lane.idle.size();
    dropped.swap(lane.idle);
  });
}

void ConnectionPool::drop_unused(Milliseconds lifetime) {
  const SteadyTime before = std::chrono::steady_clock::now() - lifetime;
  std::vector<Idle> dropped;  // closed after the lock is gone
  lanes_.notify_with([&](Lanes& lanes) {
    for (size_t i = 0; i < kUses; ++i) {
      Lane& lane = lanes[i];
      const size_t kept = static_cast<Use>(i) == Use::kPublish ? 0 : 1;
      while (lane.open > kept && !lane.idle.empty() && lane.idle.front().since < before) {
        dropped.push_back(std::move(lane.idle.front()));
        lane.idle.erase(lane.idle.begin());
        --lane.open;
      }
    }
  });
}

void ConnectionPool::release(Use use) {
  lanes_.notify_with([&](Lanes& lanes) { --lanes[static_cast<size_t>(use)].open; });
}

void ConnectionPool::take_back(Use use, std::unique_ptr<redis::Connection> connection, uint64_t epoch) {
  if (connection->broken() || epoch != epoch_()) {
    connection.reset();
    release(use);
    return;
  }
  lanes_.notify_with([&](Lanes& lanes) {
    lanes[static_cast<size_t>(use)].idle.push_back({std::move(connection), epoch, std::chrono::steady_clock::now()});
  });
}

}  // namespace inductorfs::remote
