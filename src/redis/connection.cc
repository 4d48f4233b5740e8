// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/redis/connection.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "reply_parser.h"
#include "sentinel.h"
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
  Budget* budget = nullptr;
  size_t formatted = 0;
  size_t received = 0;
  std::string out{};
  size_t sent = 0;
  size_t unnoted = 0;  // bytes that came since the last progress
  Deadline quiet{SteadyTime{}};

  [[nodiscard]] Deadline patience_end() const { return budget != nullptr ? budget->end() : quiet; }
};

class SocketConnection final : public Connection {
 public:
  explicit SocketConnection(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

  Result<void> pipeline(const std::vector<Command>& commands, Patience patience,
                        const std::function<Result<void>(size_t, Reply&&)>& on_reply) override {
    Deadline total = Deadline::after(patience.total);
    if (patience.budget != nullptr) total = Deadline(std::min(total.at(), patience.budget->total().at()));
    Conversation talk{commands, on_reply, total, patience.without_progress, patience.cancelled, patience.budget};
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
    Conversation talk{commands, keep, Deadline::after(most), most, &cancelled, nullptr};
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
      INDUCTORFS_TRY_ASSIGN(auto written, write_some(talk));
      const size_t before = talk.received;
      INDUCTORFS_TRY_ASSIGN(auto got, read_some(talk));
      if (talk.total.passed()) return fail(ErrorCode::kTimedOut, "the server did not answer in time");
      note_progress(talk, written, got, talk.received > before);
      if (talk.received == talk.commands.size()) break;
      if (talk.patience_end().passed()) return silence(talk);
      if (written + got == 0) INDUCTORFS_TRY(rest(talk));
    }
    return {};
  }

  // Called after the caller has handled the replies: its own work must not count as the server's silence.
  static void note_progress(Conversation& talk, size_t written, size_t got, bool replied) {
    if (written + got > 0) talk.quiet = Deadline::after(talk.without_progress);
    talk.unnoted += got;
    if (talk.budget == nullptr || (!replied && talk.unnoted < kProgressBytes)) return;
    talk.unnoted = 0;
    talk.budget->progress();
  }

  static tl::unexpected<Error> silence(const Conversation& talk) {
    if (talk.budget == nullptr) {
      return fail(ErrorCode::kTimedOut,
                  "no byte from the server for " + std::to_string(talk.without_progress.count()) + " ms");
    }
    return fail(ErrorCode::kTimedOut, "almost no data from the server for " +
                                          std::to_string(talk.budget->quiet().count()) +
                                          " ms; raise --lookup-patience if the server is far away");
  }

  Result<size_t> write_some(Conversation& talk) {
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

  Result<size_t> read_some(Conversation& talk) {
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
  Result<void> rest(Conversation& talk) {
    const bool writing = talk.sent < talk.out.size() || talk.formatted < talk.commands.size();
    const auto events = static_cast<short>(transport_->read_events() | (writing ? POLLOUT : 0));
    const Deadline until(std::min(talk.total.at(), talk.patience_end().at()));
    INDUCTORFS_TRY_ASSIGN(const auto ready, wait_ready(transport_->fd(), events, {until, talk.cancelled}));
    if (ready) return {};
    if (talk.total.passed()) return fail(ErrorCode::kTimedOut, "the server did not answer in time");
    return silence(talk);
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

struct Meaning {
  std::string_view word;  ///< the first of an error
  ErrorCode code;
  std::string_view remedy;
};
constexpr std::string_view kClusterRemedy = "Redis Cluster is not supported: name a server that is not part of one";
constexpr std::array<Meaning, 16> kMeanings = {{
    {"LOADING", ErrorCode::kUnavailable, "it reads its data set and will answer when it has it"},
    {"READONLY", ErrorCode::kUnavailable, "it is a replica: name the master with --remote"},
    {"OOM", ErrorCode::kUnavailable, "raise maxmemory, or set maxmemory-policy to volatile-ttl"},
    {"MISCONF", ErrorCode::kUnavailable, "it cannot save to its disk: see its log and its disk's free space"},
    {"NOREPLICAS", ErrorCode::kUnavailable, "its replicas are away: see min-replicas-to-write"},
    {"MASTERDOWN", ErrorCode::kUnavailable, "it is a replica without its master: name the master with --remote"},
    {"BUSY", ErrorCode::kUnavailable, "somebody's script runs: SCRIPT KILL ends it"},
    {"CLUSTERDOWN", ErrorCode::kUnavailable, kClusterRemedy},
    {"TRYAGAIN", ErrorCode::kUnavailable, kClusterRemedy},
    {"MOVED", ErrorCode::kNotSupported, kClusterRemedy},
    {"ASK", ErrorCode::kNotSupported, kClusterRemedy},
    {"NOAUTH", ErrorCode::kNotPermitted, "name the file of its password with --password-file"},
    {"WRONGPASS", ErrorCode::kNotPermitted, "check the user in --remote and the file of the password"},
    {"NOPERM", ErrorCode::kNotPermitted, "its user lacks a right: ACL LOG on the server says which"},
    {"DENIED", ErrorCode::kNotPermitted, "give the server a password, or switch its protected-mode off"},
    {"WRONGTYPE", ErrorCode::kInternal, "another program uses the key: give this cluster a --prefix of its own"},
}};
constexpr std::string_view kTooManyClients = "max number of clients";

// What a server says to a client that it will not have at all, whatever that asked, before it hangs up.
bool turned_away(const Reply& reply) {
  return reply.text.starts_with("DENIED ") || reply.text.find(kTooManyClients) != std::string::npos;
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
  const Patience patience{wait.deadline.left(), wait.deadline.left(), wait.cancelled, wait.budget};
  return connection.pipeline(commands, patience, [&](size_t index, Reply&& reply) -> Result<void> {
    if (!reply.is_error()) return {};
    if (steps[index] == Step::kName) return turned_away(reply) ? Result<void>(fail(to_error(reply))) : Result<void>();
    if (steps[index] == Step::kSelect && reply.text.find("DB index") != std::string::npos) {
      return fail(ErrorCode::kNotPermitted, "the server has no database " + database +
                                                ": give another one in the URL, or raise `databases` of the server");
    }
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
  const std::string said = "the server says: " + printable(text);
  const auto with_remedy = [&](std::string_view remedy) { return said + " (" + std::string(remedy) + ")"; };
  if (text.find(kTooManyClients) != std::string::npos) {
    return Error(ErrorCode::kUnavailable, with_remedy("raise its maxclients"));
  }
  const auto* const known =
      std::find_if(kMeanings.begin(), kMeanings.end(), [&](const Meaning& meaning) { return meaning.word == word; });
  if (known == kMeanings.end()) return Error(ErrorCode::kInternal, said);
  return Error(known->code, with_remedy(known->remedy));
}

Result<std::unique_ptr<Connection>> Connection::open(const Endpoint& wanted, Deadline deadline,
                                                     const std::function<bool()>* cancelled, Budget* budget) {
  const Wait wait{deadline, cancelled, budget};
  INDUCTORFS_TRY_ASSIGN(const auto server, find_server(wanted, wait));
  const Endpoint& endpoint = server;
  INDUCTORFS_TRY_ASSIGN(auto socket, connect_socket(endpoint, wait));
  std::unique_ptr<Transport> transport;
  if (endpoint.tls) {
    INDUCTORFS_TRY_ASSIGN(auto made, make_tls_transport(std::move(socket), endpoint, wait));
    transport = std::move(made);
  } else {
    transport = make_plain_transport(std::move(socket));
  }
  auto connection = std::make_unique<SocketConnection>(std::move(transport));
  INDUCTORFS_TRY(greet(*connection, endpoint, wait));
  INDUCTORFS_TRY(check_is_master(*connection, endpoint, wait));
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
