// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/redis/listener.h"

#include <poll.h>

#include <array>
#include <utility>
#include <vector>

#include "reply_parser.h"
#include "socket_connection.h"
#include "transport.h"

namespace inductorfs::redis {
namespace {

/// Messages are short; one that is not is no message for us.
constexpr ReplyLimits kMessageLimits{.depth = 2, .elements = 64, .bulk_bytes = 4096, .reply_bytes = 16384};
constexpr size_t kReadBytes = 4096;

class SocketListener final : public Listener {
 public:
  explicit SocketListener(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

  Result<void> send(const Command& command, Deadline deadline) override {
    std::string bytes;
    INDUCTORFS_TRY(append_command(command, bytes));
    std::string_view rest = bytes;
    while (!rest.empty()) {
      INDUCTORFS_TRY_ASSIGN(const size_t sent, transport_->write(rest));
      rest.remove_prefix(sent);
      if (rest.empty() || sent > 0) continue;
      INDUCTORFS_TRY_ASSIGN(const bool ready, wait_ready(transport_->fd(), POLLOUT, {deadline}));
      if (!ready) return fail(ErrorCode::kTimedOut, "the server does not read");
    }
    return {};
  }

  Result<std::optional<Reply>> next() override {
    while (true) {
      INDUCTORFS_TRY_ASSIGN(auto reply, parser_.next());
      if (reply) return std::optional<Reply>(std::move(reply));
      std::array<char, kReadBytes> bytes;  // not initialised: read fills it
      INDUCTORFS_TRY_ASSIGN(const size_t got, transport_->read(bytes.data(), bytes.size()));
      if (got == 0) return std::optional<Reply>();
      INDUCTORFS_TRY(parser_.feed({bytes.data(), got}));
    }
  }

  [[nodiscard]] pollfd entry() const { return {transport_->fd(), transport_->read_events(), 0}; }

 private:
  std::unique_ptr<Transport> transport_;
  ReplyParser parser_{kMessageLimits};
};

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(const Endpoint& endpoint, Deadline deadline,
                                                 const std::function<bool()>* cancelled) {
  INDUCTORFS_TRY_ASSIGN(auto connection, Connection::open(endpoint, deadline, cancelled));
  return std::make_unique<SocketListener>(dynamic_cast<SocketConnection&>(*connection).release());
}

Result<void> Listener::wait(std::span<Listener* const> listeners, Deadline deadline,
                            const std::function<bool()>& cancelled) {
  std::vector<pollfd> entries;
  for (Listener* listener : listeners) entries.push_back(dynamic_cast<SocketListener&>(*listener).entry());
  const auto ready = wait_any(entries, {deadline, &cancelled});
  return ready ? Result<void>() : fail(ready.error());
}

}  // namespace inductorfs::redis
