// SPDX-License-Identifier: Apache-2.0
#include "socket_connection.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

namespace inductorfs::redis {
namespace {

/// Larger feeds are slower with many small replies: hiredis moves the rest of its buffer for each.
constexpr size_t kReadBytes = size_t{16} << 10;
/// Commands are put into words in slices of about this size, so that a pipeline of large values is not copied whole.
constexpr size_t kWriteBytes = size_t{256} << 10;
/// How much later than its `block` a resting call may be answered.
constexpr Milliseconds kBlockMargin{2000};

// Called after the caller has handled the replies: its own work must not count as the server's silence.
void note_progress(SocketConnection::Talk& talk, size_t written, size_t got, bool replied) {
  if (written + got > 0) talk.quiet = Deadline::after(talk.without_progress);
  talk.unnoted += got;
  if (talk.budget == nullptr || (!replied && talk.unnoted < kProgressBytes)) return;
  talk.unnoted = 0;
  talk.budget->progress();
}

}  // namespace

SocketConnection::Talk SocketConnection::Talk::of(const std::vector<Command>& commands, const Patience& patience,
                                                  const std::function<Result<void>(size_t, Reply&&)>& on_reply) {
  Deadline total = Deadline::after(patience.total);
  if (patience.budget != nullptr) total = Deadline(std::min(total.at(), patience.budget->total().at()));
  return {commands, on_reply, total, patience.without_progress, patience.cancelled, patience.budget};
}

Result<void> SocketConnection::pipeline(const std::vector<Command>& commands, Patience patience,
                                        const std::function<Result<void>(size_t, Reply&&)>& on_reply) {
  Talk talk = Talk::of(commands, patience, on_reply);
  return hold(talk);
}

Result<Reply> SocketConnection::call_blocking(const Command& command, Milliseconds block,
                                              const std::function<bool()>& cancelled) {
  const std::vector<Command> commands{command};
  Reply answer;
  const std::function<Result<void>(size_t, Reply &&)> keep = [&](size_t, Reply&& reply) -> Result<void> {
    answer = std::move(reply);
    return {};
  };
  const Milliseconds most = block + kBlockMargin;
  Talk talk{commands, keep, Deadline::after(most), most, &cancelled, nullptr};
  INDUCTORFS_TRY(hold(talk));
  return answer;
}

Result<void> SocketConnection::hold(Talk& talk) {
  auto outcome = begin(talk);
  if (outcome) outcome = converse(talk);
  end(talk);
  return outcome;
}

Result<void> SocketConnection::begin(Talk& talk) const {
  if (transport_ == nullptr) return fail(ErrorCode::kUnavailable, "the connection has ended before");
  talk.quiet = Deadline::after(talk.without_progress);
  return {};
}

void SocketConnection::end(const Talk& talk) {
  // Late replies would be taken for those of the next conversation.
  if (!parser_.drained() || talk.received < talk.commands.size()) transport_.reset();
}

Result<void> SocketConnection::converse(Talk& talk) {
  while (talk.received < talk.commands.size()) {
    INDUCTORFS_TRY_ASSIGN(const bool over, step(talk));
    if (!over && !talk.moved) INDUCTORFS_TRY(rest(talk));
  }
  return {};
}

Result<bool> SocketConnection::step(Talk& talk) {
  if (talk.received == talk.commands.size()) return true;
  INDUCTORFS_TRY_ASSIGN(const size_t written, write_some(talk));
  const size_t before = talk.received;
  INDUCTORFS_TRY_ASSIGN(const size_t got, read_some(talk));
  if (talk.total.passed()) return fail(ErrorCode::kTimedOut, "the server did not answer in time");
  note_progress(talk, written, got, talk.received > before);
  talk.moved = written + got > 0;
  if (talk.received == talk.commands.size()) return true;
  if (talk.patience_end().passed()) return late(talk);
  return false;
}

tl::unexpected<Error> SocketConnection::late(const Talk& talk) {
  if (talk.total.passed()) return fail(ErrorCode::kTimedOut, "the server did not answer in time");
  if (talk.budget == nullptr) {
    return fail(ErrorCode::kTimedOut,
                "no byte from the server for " + std::to_string(talk.without_progress.count()) + " ms");
  }
  return fail(ErrorCode::kTimedOut, "almost no data from the server for " +
                                        std::to_string(talk.budget->quiet().count()) +
                                        " ms; raise --lookup-patience if the server is far away");
}

Result<size_t> SocketConnection::write_some(Talk& talk) {
  if (talk.sent == talk.out.size()) {
    talk.out.clear();
    talk.sent = 0;
    while (talk.formatted < talk.commands.size() && talk.out.size() < kWriteBytes)
      INDUCTORFS_TRY(append_command(talk.commands[talk.formatted++], talk.out));
  }
  if (talk.out.empty()) return size_t{0};
  auto moved = transport_->write(std::string_view(talk.out).substr(talk.sent));
  if (moved) talk.sent += *moved;
  return moved;
}

Result<size_t> SocketConnection::read_some(Talk& talk) {
  std::array<char, kReadBytes> bytes;  // not initialised: read fills it
  auto got = transport_->read(bytes.data(), bytes.size());
  if (!got || *got == 0) return got;
  INDUCTORFS_TRY(parser_.feed({bytes.data(), *got}));
  while (talk.received < talk.commands.size()) {
    INDUCTORFS_TRY_ASSIGN(auto reply, parser_.next());
    if (!reply) break;
    const size_t index = talk.received++;
    INDUCTORFS_TRY(talk.on_reply(index, std::move(*reply)));
  }
  return got;
}

// Waits until bytes can move again, the patience ends, or somebody cancels.
Result<void> SocketConnection::rest(const Talk& talk) const {
  const auto events = static_cast<short>(transport_->read_events() | (talk.writing() ? POLLOUT : 0));
  const Deadline until(std::min(talk.total.at(), talk.patience_end().at()));
  INDUCTORFS_TRY_ASSIGN(const auto ready, wait_ready(transport_->fd(), events, {until, talk.cancelled}));
  return ready ? Result<void>() : late(talk);
}

}  // namespace inductorfs::redis
