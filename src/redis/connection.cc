// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/redis/connection.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sentinel.h"
#include "socket_connection.h"
#include "transport.h"

namespace inductorfs::redis {
namespace {

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
constexpr std::string_view kClusterRemedy = "it is part of a Redis Cluster: write redis+cluster:// in --remote";
constexpr std::array<Meaning, 16> kMeanings = {{
    {"LOADING", ErrorCode::kUnavailable, "it reads its data set and will answer when it has it"},
    {"READONLY", ErrorCode::kUnavailable, "it is a replica: name the master with --remote"},
    {"OOM", ErrorCode::kUnavailable, "raise maxmemory, or set maxmemory-policy to volatile-ttl, if it is not"},
    {"MISCONF", ErrorCode::kUnavailable, "it cannot save to its disk: see its log and its disk's free space"},
    {"NOREPLICAS", ErrorCode::kUnavailable, "its replicas are away: see min-replicas-to-write"},
    {"MASTERDOWN", ErrorCode::kUnavailable, "it is a replica without its master: name the master with --remote"},
    {"BUSY", ErrorCode::kUnavailable, "somebody's script runs: SCRIPT KILL ends it"},
    {"CLUSTERDOWN", ErrorCode::kUnavailable, "a shard is away: see CLUSTER INFO, and cluster-require-full-coverage"},
    {"TRYAGAIN", ErrorCode::kUnavailable, "the keys are moving to another shard: it answers when they have moved"},
    {"MOVED", ErrorCode::kNotSupported, kClusterRemedy},
    {"ASK", ErrorCode::kNotSupported, kClusterRemedy},
    {"NOAUTH", ErrorCode::kNotPermitted, "name the file of its password with --password-file"},
    {"WRONGPASS", ErrorCode::kNotPermitted, "check the user in --remote and the file of the password"},
    {"NOPERM", ErrorCode::kNotPermitted, "its user lacks a right: ACL LOG on the server says which"},
    {"DENIED", ErrorCode::kNotPermitted, "give the server a password, or switch its protected-mode off"},
    {"WRONGTYPE", ErrorCode::kInternal, "another program uses the key: give this cluster a --prefix of its own"},
}};
/// Begins the reply that unreachable() makes.
constexpr std::string_view kUnreachable = "UNREACHABLE ";
constexpr std::string_view kTooManyClients = "max number of clients";

/// Of refusals of AUTH that begin with ERR, what each server says that has the same reason.
struct Refusal {
  std::string_view said;
  std::string_view why;
};
constexpr std::array<Refusal, 4> kRefusals = {{
    {"without any password configured", "the server has no password: leave the user and --password-file out"},
    {"but no password is set", "the server has no password: leave the user and --password-file out"},
    {"wrong number of arguments", "the server knows no users: leave the user out of --remote"},
    {kTooManyClients, "too many clients: raise its maxclients"},
}};

/// Why AUTH was refused, in words of our own (error_word()).
std::string auth_refusal(const Reply& reply) {
  for (const Refusal& known : kRefusals) {
    if (reply.text.find(known.said) != std::string::npos) return std::string(known.why);
  }
  const std::string word(error_word(reply.text));
  const auto* const known = std::ranges::find(kMeanings, word, &Meaning::word);
  return word + " (" + std::string(known == kMeanings.end() ? "check user and password" : known->remedy) + ")";
}

// What a server says to a client that it will not have at all, whatever that asked, before it hangs up.
bool turned_away(const Reply& reply) {
  return reply.text.starts_with("DENIED ") || reply.text.find(kTooManyClients) != std::string::npos;
}

Result<void> greet(Connection& connection, const Endpoint& endpoint, const Wait& wait) {
  enum class Step { kAuth, kSelect, kName };
  std::vector<Command> commands;
  std::vector<Step> steps;
  const std::string database = std::to_string(endpoint.database);
  INDUCTORFS_TRY_ASSIGN(const auto password, password_of(endpoint));
  if (!password.empty() || !endpoint.user.empty()) {
    commands.push_back(endpoint.user.empty() ? Command{"AUTH", password} : Command{"AUTH", endpoint.user, password});
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
      return fail(ErrorCode::kInvalid, "the server has no database " + database +
                                           ": give another one in the URL, or raise `databases` of the server");
    }
    if (steps[index] == Step::kSelect) return fail(to_error(reply).with_context("SELECT " + database));
    const Error error = to_error(reply);
    const ErrorCode code = error.code() == ErrorCode::kUnavailable ? error.code() : ErrorCode::kNotPermitted;
    return fail(code, "AUTH refused: " + auth_refusal(reply));
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

Reply unreachable(const Error& why) {
  Reply reply;
  reply.kind = Reply::Kind::kError;
  reply.text = std::string(kUnreachable) + why.what();
  return reply;
}

bool is_unreachable(const Reply& reply) { return reply.is_error() && reply.text.starts_with(kUnreachable); }

Error to_error(const Reply& reply) {
  if (is_unreachable(reply)) return Error(ErrorCode::kUnavailable, reply.text.substr(kUnreachable.size()));
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
  if (!wanted.cluster.empty()) return fail(ErrorCode::kInvalid, "a Redis Cluster is not one server");
  // Without its password no server need be asked.
  if (const auto password = password_of(wanted); !password) return fail(of_given_file(password.error()));
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
