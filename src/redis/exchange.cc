// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <algorithm>
#include <list>
#include <utility>
#include <vector>

#include "socket_connection.h"

namespace inductorfs::redis {
namespace {

using Talk = SocketConnection::Talk;

/// One exchange that is under way.
struct Line {
  Exchange* exchange;
  SocketConnection* connection;
  Talk talk;
};

void end(Line& line, Result<void> outcome) {
  line.connection->end(line.talk);
  line.exchange->outcome = std::move(outcome);
}

// Waits until bytes can move on one of them; false when the first patience has ended. kBusy when somebody cancels.
Result<bool> rest(const std::list<Line>& lines, const std::function<bool()>* cancelled) {
  std::vector<pollfd> entries;
  SteadyTime until = SteadyTime::max();
  for (const Line& line : lines) {
    const Transport& transport = line.connection->transport();
    const auto events = static_cast<short>(transport.read_events() | (line.talk.writing() ? POLLOUT : 0));
    entries.push_back({transport.fd(), events, 0});
    until = std::min({until, line.talk.total.at(), line.talk.patience_end().at()});
  }
  return wait_any(entries, {Deadline(until), cancelled});
}

}  // namespace

void exchange_all(std::span<Exchange> exchanges, const Patience& patience) {
  std::list<Line> lines;
  for (Exchange& exchange : exchanges) {
    auto* connection = dynamic_cast<SocketConnection*>(exchange.connection);
    INDUCTORFS_CHECK(connection != nullptr);  // open() makes no others
    Line& line =
        lines.emplace_back(Line{&exchange, connection, Talk::of(exchange.commands, patience, exchange.on_reply)});
    exchange.outcome = connection->begin(line.talk);
    if (!exchange.outcome) lines.pop_back();
  }
  while (!lines.empty()) {
    bool moved = false;
    for (auto at = lines.begin(); at != lines.end();) {
      auto over = at->connection->step(at->talk);
      moved = moved || at->talk.moved;
      if (over && !*over) {
        ++at;
        continue;
      }
      moved = true;
      end(*at, over ? Result<void>() : fail(std::move(over).error()));
      at = lines.erase(at);
    }
    if (lines.empty() || moved) continue;
    const auto ready = rest(lines, patience.cancelled);
    if (ready) continue;  // step() says whose patience has ended
    for (Line& line : lines) end(line, fail(ready.error()));
    return;
  }
}

}  // namespace inductorfs::redis
