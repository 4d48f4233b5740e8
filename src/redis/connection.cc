// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/redis/connection.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "reply_parser.h"
#include "transport.h"

namespace inductorfs::redis {
namespace {

/// Larger feeds are slower with many small replies: hiredis moves the rest of its buffer for each.
constexpr size_t kReadBytes = size_t{16} << 10;
/// Commands are put into words in slices of about this size, so that a pipeline of large values is not copied whole.
constexpr size_t kWriteBytes = size_t{256} << 10;
/// How much later than its `block` a resting call may be answered.
constexpr Milliseconds kBlockMargin{2000};

/// What one conversation wants and how far it is.
struct Conversation {
  const std::vector<Command>& commands;
  const std::function<Result<void>(size_t, Reply&&)>& on_reply;
  Deadline total;
  Milliseconds without_progress;
  const std::function<bool()>* cancelled = nullptr;
  size_t formatted = 0;
  size_t received = 0;
  std::string out{};
  size_t sent = 0;
  Deadline quiet{SteadyTime{}};
};

class SocketConnection final : public Connection {
 public:
  explicit SocketConnection(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

  Result<void> pipeline(const std::vector<Command>& commands, Patience patience,
                        const std::function<Result<void>(size_t, Reply&&)>& on_reply) override {
    Conversation talk{commands, on_reply, Deadline::after(patience.total), patience.without_progress,
                      patience.cancelled};
    return hold(talk);
  }

  Result<Reply> call_blocking(const Command& command, Milliseconds block,
                              const std::function<bool()>& cancelled) override {
    const std::vector<Command> commands{command};
    Reply answer;
    const std::function<Result<void>(size_t, Reply &&)> keep = [&](size_t, Reply&& reply) -> Result<void> {
      answer = std::move(reply);
      return {};
    };
    const Milliseconds most = block + kBlockMargin;
    Conversation talk{commands, keep, Deadline::after(most), most, &cancelled};
    INDUCTORFS_TRY(hold(talk));
    return answer;
  }

  bool broken() const override { return transport_ == nullptr || !transport_->idle_ok(); }

 private:
  Result<void> hold(Conversation& talk) {
    if (transport_ == nullptr) return fail(ErrorCode::kUnavailable, "the connection has ended before");
    auto outcome = converse(talk);
    // Late replies would be taken for those of the next conversation.
    if (!parser_.drained() || talk.received < talk.commands.size()) transport_.reset();
    return outcome;
  }

  Result<void> converse(Conversation& talk) {
    talk.quiet = Deadline::after(talk.without_progress);
    while (talk.received < talk.commands.size()) {
      auto written = write_some(talk);
      if (!written) return fail(std::move(written).error());
      auto got = read_some(talk);
      if (!got) return fail(std::move(got).error());
      if (talk.total.passed()) return fail(ErrorCode::kTimedOut, "the server did not answer in time");
      if (*written + *got > 0) {
        talk.quiet = Deadline::after(talk.without_progress);
      } else {
        INDUCTORFS_TRY(rest(talk));
      }
    }
    return {};
  }

  Result<size_t> write_some(Conversation& talk) {
    if (talk.sent == talk.out.size()) {
      talk.out.clear();
      talk.sent = 0;
      while (talk.formatted < talk.commands.size() && talk.out.size() < kWriteBytes) {
        INDUCTORFS_TRY(append_command(talk.commands[talk.formatted++], talk.out));
      }
    }
    if (talk.out.empty()) return size_t{0};
    auto moved = transport_->write(std::string_view(talk.out).substr(talk.sent));
    if (moved) talk.sent += *moved;
    return moved;
  }

  Result<size_t> read_some(Conversation& talk) {
    std::array<char, kReadBytes> bytes;  // not initialised: read fills it
    auto got = transport_->read(bytes.data(), bytes.size());
    if (!got || *got == 0) return got;
    INDUCTORFS_TRY(parser_.feed({bytes.data(), *got}));
    while (talk.received < talk.commands.size()) {
      auto reply = parser_.next();
      if (!reply) return fail(std::move(reply).error());
      if (!*reply) break;
      const size_t index = talk.received++;
      INDUCTORFS_TRY(talk.on_reply(index, std::move(**reply)));
    }
    return got;
  }

  // Waits until bytes can move again, the patience ends, or somebody cancels.
  Result<void> rest(Conversation& talk) {
    const bool writing = talk.sent < talk.out.size() || talk.formatted < talk.commands.size();
    const auto events = static_cast<short>(transport_->read_events() | (writing ? POLLOUT : 0));
    const Deadline until(std::min(talk.total.at(), talk.quiet.at()));
    const auto ready = wait_ready(transport_->fd(), events, {until, talk.cancelled});
    if (!ready) return fail(ready.error());
    if (*ready) return {};
    if (talk.total.passed()) return fail(ErrorCode::kTimedOut, "the server did not answer in time");
    return fail(ErrorCode::kTimedOut,
                "no byte from the server for " + std::to_string(talk.without_progress.count()) + " ms");
  }

  std::unique_ptr<Transport> transport_;
  ReplyParser parser_;
};

// The first word of an error ("WRONGPASS"). The rest of an answer to AUTH is never shown: "unknown command 'AUTH',
// with args beginning with: ..." quotes the password.
std::string_view error_word(std::string_view text) {
  const size_t size = std::min(text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), text.size());
  return size == 0 ? "an error" : text.substr(0, size);
}

Result<void> greet(Connection& connection, const Endpoint& endpoint, const Wait& wait) {
  enum class Step { kAuth, kSelect, kName };
  std::vector<Command> commands;
  std::vector<Step> steps;
  const std::string database = std::to_string(endpoint.database);
  if (!endpoint.password.empty() || !endpoint.user.empty()) {
    commands.push_back(endpoint.user.empty() ? Command{"AUTH", endpoint.password}
                                             : Command{"AUTH", endpoint.user, endpoint.password});
    steps.push_back(Step::kAuth);
  }
  if (endpoint.database != 0) {
    commands.push_back({"SELECT", database});
    steps.push_back(Step::kSelect);
  }
  if (!endpoint.client_name.empty()) {
    commands.push_back({"CLIENT", "SETNAME", endpoint.client_name});
    steps.push_back(Step::kName);
  }
  const Patience patience{wait.deadline.left(), wait.deadline.left(), wait.cancelled};
  return connection.pipeline(commands, patience, [&](size_t index, Reply&& reply) -> Result<void> {
    if (!reply.is_error() || steps[index] == Step::kName) return {};
    if (steps[index] == Step::kSelect) return fail(to_error(reply).with_context("SELECT " + database));
    const std::string word(error_word(reply.text));
    const Error error = to_error(reply);
    const ErrorCode code = error.code() == ErrorCode::kUnavailable ? error.code() : ErrorCode::kNotPermitted;
    return fail(code, "AUTH refused: " + word + " (check user and password)");
  });
}

std::string printable(std::string_view text) {
  constexpr size_t kShown = 200;
  std::string out(text.substr(0, kShown));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

}  // namespace

Error to_error(const Reply& reply) {
  if (!reply.is_error()) return Error(ErrorCode::kInternal, "the server answered something else than expected");
  const std::string& text = reply.text;
  const std::string_view word = std::string_view(text).substr(0, text.find(' '));
  constexpr std::array<std::string_view, 9> kUnavailable = {
      "READONLY", "LOADING", "OOM", "MISCONF", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "BUSY", "NOREPLICAS"};
  constexpr std::array<std::string_view, 3> kNotPermitted = {"NOAUTH", "WRONGPASS", "NOPERM"};
  const auto is_in = [&](const auto& words) { return std::find(words.begin(), words.end(), word) != words.end(); };
  ErrorCode code = ErrorCode::kInternal;
  if (is_in(kUnavailable) || text.find("max number of clients") != std::string::npos) {
    code = ErrorCode::kUnavailable;
  } else if (is_in(kNotPermitted)) {
    code = ErrorCode::kNotPermitted;
  } else if (word == "MOVED" || word == "ASK") {
    code = ErrorCode::kNotSupported;
  }
  return Error(code, "the server says: " + printable(text));
}

Result<std::unique_ptr<Connection>> Connection::open(const Endpoint& endpoint, Deadline deadline,
                                                     const std::function<bool()>* cancelled) {
  const Wait wait{deadline, cancelled};
  auto socket = connect_socket(endpoint, wait);
  if (!socket) return fail(std::move(socket).error());
  std::unique_ptr<Transport> transport;
  if (endpoint.tls) {
    auto made = make_tls_transport(std::move(*socket), endpoint, wait);
    if (!made) return fail(std::move(made).error());
    transport = std::move(*made);
  } else {
    transport = make_plain_transport(std::move(*socket));
  }
  auto connection = std::make_unique<SocketConnection>(std::move(transport));
  INDUCTORFS_TRY(greet(*connection, endpoint, wait));
  return connection;
}

Result<Reply> Connection::call(const Command& command, Patience patience) {
  Reply answer;
  INDUCTORFS_TRY(pipeline({command}, patience, [&](size_t, Reply&& reply) -> Result<void> {
    answer = std::move(reply);
    return {};
  }));
  return answer;
}

}  // namespace inductorfs::redis
